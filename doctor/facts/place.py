"""Where this system runs: bare metal, a virtual machine, a container or WSL2; and on whose platform."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, PlatformName, Virtualisation
from doctor.facts.collectenv import hypervisor_by_env, release_by_env
from doctor.facts.source import absent, at, document, exists, integer, line_of, runs, stat_of

__all__ = ["read_platform", "read_virtualisation"]

_TEGRA = "/etc/nv_tegra_release"
_DGX = "/etc/dgx-release"

#: What `systemd-detect-virt` prints for containers; every other word but `none` is a machine.
_CONTAINERS = frozenset(
    [
        "container-other",
        "docker",
        "lxc",
        "lxc-libvirt",
        "openvz",
        "podman",
        "pouch",
        "proot",
        "rkt",
        "systemd-nspawn",
        "wsl",
    ]
)
#: DMI vendor or product, lower case -> the name systemd gives that hypervisor.
_DMI = (
    ("amazon ec2", "amazon"),
    ("google", "google"),
    ("qemu", "qemu"),
    ("kvm", "kvm"),
    ("vmware", "vmware"),
    ("virtualbox", "oracle"),
    ("innotek", "oracle"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("parallels", "parallels"),
    ("openstack", "kvm"),
    ("virtual machine", "microsoft"),
)


def read_virtualisation(evidence: Evidence) -> Fact[Virtualisation]:
    """WSL2 first, then containers, then machines: the innermost place decides."""
    for look in (_wsl, _container, _machine):
        found = look(evidence)
        if found is not None:
            kind, name, origin = found
            value = Virtualisation(
                kind=kind,  # type: ignore[arg-type]
                name=name,
                vgpu_guest=_vgpu_guest(evidence),
            )
            return Known(value=value, origin=origin)
    return Absent(reason="not_collected", origin="command:systemd-detect-virt")


def read_platform(evidence: Evidence) -> Fact[PlatformName]:
    """Jetson by JetPack's release file, its kernel's name, or the GPU's driver `nvgpu`; else DGX OS."""
    jetson = _jetson_origin(evidence)
    if jetson:
        return Known(value="jetson", origin=jetson)
    dgx = exists(evidence, _DGX)
    if dgx:
        return Known(value="dgx_os", origin=f"stat:{_DGX}")
    if dgx is False and exists(evidence, _TEGRA) is False:
        return Known(value="", origin=f"stat:{_TEGRA}")
    return absent(stat_of(evidence, _TEGRA))


def _jetson_origin(evidence: Evidence) -> str:
    if exists(evidence, _TEGRA):
        return f"stat:{_TEGRA}"
    release, uname = evidence.file("/proc/sys/kernel/osrelease"), evidence.command("uname", "-a")
    if _text(release).endswith("-tegra"):
        return release.origin
    if re.match(r"linux \S+ \S+-tegra ", _text(uname)):
        return uname.origin
    # No card on PCI has this driver.
    tables = (r for r in runs(evidence, "nvidia-smi") if r.has_data and b"(nvgpu)" in r.data)
    return next((table.origin for table in tables), "")


_Found = tuple[str, str, str]


def _text(reading: Reading) -> str:
    return line_of(reading).lower() if reading.has_data else ""


def _wsl(evidence: Evidence) -> _Found | None:
    release = evidence.file("/proc/sys/kernel/osrelease")
    version = evidence.file("/proc/version")
    told = [(_text(r), r.origin) for r in (release, version, evidence.command("uname", "-a"))]
    by_env = release_by_env(evidence)
    if isinstance(by_env, Known):
        told.append((by_env.value.lower(), by_env.origin))
    for text, origin in told:
        if "microsoft" in text and _is_wsl_kernel(evidence, text):
            return "wsl2", "wsl", origin
    detect = evidence.command("systemd-detect-virt")
    return ("wsl2", "wsl", detect.origin) if _text(detect) == "wsl" else None


def _is_wsl_kernel(evidence: Evidence, text: str) -> bool:
    """WSL kernels name both; `/dev/dxg` or its library directory settle the rest."""
    named = "wsl" in text or "microsoft-standard" in text
    return named or bool(exists(evidence, "/dev/dxg")) or bool(exists(evidence, "/usr/lib/wsl"))


#: Inode numbers of the first namespaces, fixed in the kernel's sources (include/linux/proc_ns.h).
#: A container has a PID, UTS or cgroup namespace of its own. A machine whose root file system was made
#: from a container image, such as a micro VM, has marker files of a container and all first namespaces.
_FIRST_NAMESPACES = {"pid": "4026531836", "uts": "4026531838", "cgroup": "4026531835"}


def _has_first_namespaces(evidence: Evidence) -> bool:
    links = {name: evidence.item(f"stat:/proc/self/ns/{name}") for name in _FIRST_NAMESPACES}
    return all(
        link is not None and link.link == f"{name}:[{_FIRST_NAMESPACES[name]}]"
        for name, link in links.items()
    )


def _container(evidence: Evidence) -> _Found | None:
    if _has_first_namespaces(evidence):
        return None
    detect = evidence.command("systemd-detect-virt")
    if _text(detect) in _CONTAINERS:
        return "container", _text(detect), detect.origin
    named = evidence.file("/run/systemd/container")
    if _text(named):
        return "container", _text(named), named.origin
    for path, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if exists(evidence, path):
            return "container", name, f"stat:{path}"
    groups = evidence.file("/proc/1/cgroup")
    hint = (
        re.search(r"/(docker|kubepods|lxc|libpod|machine\.slice/libpod)[-/.]", groups.text)
        if groups.has_data
        else None
    )
    if hint is not None:
        name = {"kubepods": "kubernetes", "libpod": "podman"}.get(hint.group(1), hint.group(1))
        return "container", name.removeprefix("machine.slice/"), groups.origin
    return None


def _machine(evidence: Evidence) -> _Found | None:
    detect = evidence.command("systemd-detect-virt")
    word = _text(detect)
    if word in _CONTAINERS:
        word = ""  # the namespaces have told better
    if word == "none":
        return "bare_metal", "", detect.origin
    if re.fullmatch(r"[a-z0-9-]{2,30}", word):
        return "vm", word, detect.origin
    cpu = evidence.file("/proc/cpuinfo")
    dmi = _dmi(evidence)
    is_guest = cpu.has_data and re.search(rb"^flags\s*:.*\bhypervisor\b", cpu.data, re.MULTILINE) is not None
    if dmi is not None:
        return "vm", dmi[0], dmi[1]
    hypervisor = evidence.file("/sys/hypervisor/type")
    if is_guest or _text(hypervisor):
        origin = cpu.origin if is_guest else hypervisor.origin
        return "vm", _text(hypervisor), origin
    # An x86 guest always shows the flag; other architectures have none to show.
    if cpu.has_data and re.search(rb"^flags\s*:", cpu.data, re.MULTILINE):
        return "bare_metal", "", cpu.origin
    named = hypervisor_by_env(evidence)
    return ("vm", named, "command:collect-env") if named else None


def _dmi(evidence: Evidence) -> tuple[str, str] | None:
    """A hypervisor's name in the firmware's tables, and where it stood."""
    readings = [evidence.file(f"/sys/class/dmi/id/{field}") for field in ("sys_vendor", "product_name")]
    texts = [(_text(reading), reading.origin) for reading in readings]
    # Clouds sell whole machines too; their product names say so (`i3.metal`).
    if any("metal" in text for text, _ in texts):
        return None
    named = ((name, origin) for text, origin in texts for word, name in _DMI if word in text)
    return next(named, None)


def _vgpu_guest(evidence: Evidence) -> bool | None:
    """NVML's virtualisation mode 2 is a slice of a vGPU host; 0 and 1 are whole GPUs."""
    reading = evidence.read("nvml")
    gpus = at(document(reading.data), "gpus") if reading.data else None
    modes = {integer(at(gpu, "virtualization_mode")) for gpu in gpus} if isinstance(gpus, list) else set()
    if 2 in modes:
        return True
    return False if modes & {0, 1} else None
