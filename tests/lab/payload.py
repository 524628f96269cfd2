"""What a stub package puts on a host, and what its scripts do there.

The content of a file follows from its path; a package's scripts from its files and its template's `postinst`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab.graph import Stub
from tests.lab.modulefile import module_file
from tests.lab.places import LAB
from tests.lab.systems import SystemFacts

__all__ = ["Entry", "entries", "scripts"]

MULTIARCH = "/usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or, with `link`, a symbolic link."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    is_config: bool = False


def entries(stub: Stub, facts: SystemFacts, libraries: Path) -> list[Entry]:
    """Everything that the package unpacks."""
    found = [Entry(path=f"/usr/share/lab-stub/{stub.name}", content=f"{stub.version}\n".encode())]
    for path in stub.files:
        found += _file(path, stub, libraries)
    if stub.name.startswith("nvidia-driver-pinning-"):
        found.append(_pin(stub))
    if stub.name == "dkms":
        found.append(Entry(path="/usr/sbin/dkms", content=(LAB / "guest/dkms").read_bytes(), mode=0o755))
    if stub.effect == "epel_release":
        found.append(_epel(facts))
    if stub.name.startswith("gcc") and stub.name.removeprefix("gcc").strip("-").isdigit():
        major = stub.name.partition("-")[2]
        found.append(
            _script(
                f"/usr/bin/gcc-{major}",
                f'case "$1" in -dumpversion) echo {major}.2.0;; *) echo "gcc (Lab) {major}.2.0";; esac',
            )
        )
    if stub.name == "gcc" or stub.effect == "gcc":
        major = "13" if facts.is_rocky else stub.version.split(":")[-1].partition(".")[0]
        found.append(
            _script(
                "/usr/bin/gcc",
                f'case "$1" in -dumpversion) echo {major}.2.0;; *) echo "gcc (Lab) {major}.2.0";; esac',
            )
        )
    found += _kernel(stub, facts)
    found += _runtime(stub)
    return found


def _script(path: str, body: str) -> Entry:
    return Entry(path=path, content=f"#!/bin/sh\n{body}\n".encode(), mode=0o755)


def _file(path: str, stub: Stub, libraries: Path) -> list[Entry]:
    """The content that this path has in any package."""
    name = path.rpartition("/")[2]
    version = stub.values.get("V", stub.version)
    for library in ("libnvidia-ml.so", "libcuda.so"):
        if name.startswith(f"{library}.") and not path.startswith("/usr/local"):
            link = Entry(path=f"{path.rpartition('/')[0]}/{library}.1", link=name)
            return [Entry(path=path, content=(libraries / library).read_bytes(), mode=0o755), link]
    if name == "nvidia-smi":
        return [Entry(path=path, content=(LAB / "guest/nvidia-smi").read_bytes(), mode=0o755)]
    if name == "dkms.conf":
        return [Entry(path=path, content=_dkms_conf(stub, version).encode())]
    if path.endswith(".service"):
        return [Entry(path=path, content=_unit(name, path, stub).encode())]
    if path.endswith(".conf"):
        return [Entry(path=path, content=b"blacklist nouveau\nblacklist nova_core\nblacklist nova_drm\n")]
    if path in PROGRAMS:
        return [_script(path, PROGRAMS[path].format(version=version, stub=stub.version))]
    if name == "version.json":
        return [
            Entry(
                path=path,
                content=json.dumps(
                    {"cuda": {"name": "CUDA SDK", "version": stub.version.partition("-")[0]}}
                ).encode(),
            )
        ]
    if "/bin/" in path or "/sbin/" in path:
        return [_script(path, f'echo "{name} of the lab, {version}"')]
    return [Entry(path=path, content=f"stub of {name} {version}\n".encode())]


PROGRAMS = {
    "/usr/bin/nvidia-persistenced": (
        '[ -e /sys/module/nvidia/version ] || {{ echo "nvidia-persistenced failed to initialize. Check syslog" >&2; exit 1; }}\n'
        "mkdir -p /run/nvidia-persistenced; echo $$ >/run/nvidia-persistenced/nvidia-persistenced.pid\nexec sleep infinity"
    ),
    # It serves its own driver only.
    "/usr/bin/nv-fabricmanager": (
        'loaded=$(cat /sys/module/nvidia/version 2>/dev/null)\nif [ "$loaded" != "{version}" ]; then\n'
        "  echo \"fabric manager NVIDIA GPU driver interface version {version} don't match with driver version $loaded. Please update with "
        'matching NVIDIA driver package." | tee -a /var/log/fabricmanager.log >&2\n  exit 1\nfi\n'
        'echo "Successfully configured all the available NVSwitches to route GPU NVLink traffic." >>/var/log/fabricmanager.log\nexec sleep infinity'
    ),
    "/usr/bin/nv-hostengine": "exec sleep infinity",
    "/usr/bin/nvidia-ctk": 'exec /usr/libexec/lab-nvidia-ctk "$@"',
}


def _dkms_conf(stub: Stub, version: str) -> str:
    is_open = "open" in stub.name
    names = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
    rows = "".join(
        f'BUILT_MODULE_NAME[{i}]="{n}"\nDEST_MODULE_LOCATION[{i}]="/updates/dkms"\n'
        for i, n in enumerate(names)
    )
    return (
        f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"\n{rows}'
        f'# For the lab\'s dkms.\nLAB_LICENSE="{"Dual MIT/GPL" if is_open else "NVIDIA"}"\n'
    )


def _unit(name: str, path: str, stub: Stub) -> str:
    program = {
        "nvidia-persistenced.service": "/usr/bin/nvidia-persistenced",
        "nvidia-fabricmanager.service": "/usr/bin/nv-fabricmanager",
        "nvidia-dcgm.service": "/usr/bin/nv-hostengine",
    }.get(name, "/bin/true")
    return (
        f"[Unit]\nDescription={name} of {stub.name} {stub.version}\n\n[Service]\nExecStart={program}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def _pin(stub: Stub) -> Entry:
    """The vendor's preference file; that it is named like its package is an assumption."""
    what = stub.name.removeprefix("nvidia-driver-pinning-")
    pin = f"{what}*" if "." in what else f"{what}.*"
    text = (
        "Package: src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any\n"
        f"Pin: version {pin}\nPin-Priority: 1000\n"
    )  # fmt: skip
    return Entry(path="/etc/apt/preferences.d/nvidia-driver-pinning", content=text.encode())


def _epel(facts: SystemFacts) -> Entry:
    return Entry(
        path="/etc/yum.repos.d/epel.repo",
        content=(
            f"[epel]\nname=Extra Packages for Enterprise Linux {facts.major}\nenabled=1\ngpgcheck=1\n"
            f"baseurl=https://dl.fedoraproject.org/pub/epel/{facts.major}/Everything/x86_64/\n"
            f"gpgkey=https://dl.fedoraproject.org/pub/epel/RPM-GPG-KEY-EPEL-{facts.major}\n"
        ).encode(),
    )


def _kernel(stub: Stub, facts: SystemFacts) -> list[Entry]:
    """A kernel's image and folder, or its headers."""
    kernel = stub.values.get("K", "")
    modules = f"/lib/modules/{kernel}"
    if stub.effect in ("kernel_image", "kernel_core"):
        names = ("modules.order", "modules.builtin", "modules.builtin.modinfo")
        return [
            Entry(path=f"/boot/vmlinuz-{kernel}", content=f"image of {kernel}\n".encode()),
            Entry(path=f"/boot/config-{kernel}", content=b"CONFIG_MODULES=y\nCONFIG_MODULE_SIG=y\n"),
            Entry(
                path=f"{modules}/kernel/drivers/gpu/drm/nouveau/nouveau.ko",
                content=module_file("nouveau", "", "GPL and additional rights", kernel),
            ),
            *(Entry(path=f"{modules}/{n}") for n in names),
        ]
    if stub.effect == "kernel_headers":
        source = f"/usr/src/kernels/{kernel}" if facts.is_rocky else f"/usr/src/linux-headers-{kernel}"
        return [
            Entry(path=f"{source}/Makefile", content=b"# headers\n"),
            Entry(path=f"{modules}/build", link=source),
        ]
    if stub.name.startswith("linux-objects-nvidia-"):
        return _signed_modules(stub)
    return []


def _signed_modules(stub: Stub) -> list[Entry]:
    """Canonical's: in the kernel's own folder, signed by a key that every Ubuntu kernel knows."""
    kernel, version = stub.values["K"], stub.values["V"]
    is_open = "-open-" in stub.name
    folder = f"/lib/modules/{kernel}/kernel/nvidia-{stub.values['B']}srv{'-open' if is_open else ''}"
    license_ = "Dual MIT/GPL" if is_open else "NVIDIA"
    signer = "Canonical Ltd. Kernel Module Signing"
    names = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
    return [
        Entry(path=f"{folder}/{n}.ko", content=module_file(n, version, license_, kernel, signer))
        for n in names
    ]


def _daemon(name: str, program: str) -> list[Entry]:
    tool = (LAB / "guest/container-engine").read_bytes()
    unit = f"[Unit]\nDescription={name}\n[Service]\nExecStart=/usr/bin/{program}\n[Install]\nWantedBy=multi-user.target\n"
    return [
        Entry(path=f"/usr/lib/systemd/system/{name}.service", content=unit.encode()),
        Entry(path=f"/usr/libexec/lab-{name}", content=tool, mode=0o755),
        _script(f"/usr/bin/{program}", f'exec /usr/libexec/lab-{name} {name} "$@"'),
    ]


def _runtime(stub: Stub) -> list[Entry]:
    """Container engines: a service that refuses a configuration which it cannot read, and the toolkit's tool."""
    if stub.name in ("docker.io", "docker-ce"):
        return [
            *_daemon("docker", "dockerd"),
            _script("/usr/bin/docker", 'echo "Docker version 27.0.0, build lab"'),
        ]
    if stub.name in ("containerd", "containerd.io"):
        return _daemon("containerd", "containerd")
    if stub.name == "podman":
        return [_script("/usr/bin/podman", 'echo "podman version 4.9.0"')]
    if stub.name == "nvidia-container-toolkit-base":
        tool = (LAB / "guest/nvidia-ctk").read_text().replace("@VERSION@", stub.values.get("V", ""))
        refresh = "[Unit]\nDescription=Refresh NVIDIA CDI specification file\n[Service]\nType=oneshot\nExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml\n[Install]\nWantedBy=multi-user.target\n"
        has_refresh = tuple(int(n) for n in stub.values["V"].split(".")) >= (1, 18)
        return [
            Entry(path="/usr/libexec/lab-nvidia-ctk", content=tool.encode(), mode=0o755),
            *(
                [Entry(path="/usr/lib/systemd/system/nvidia-cdi-refresh.service", content=refresh.encode())]
                if has_refresh
                else []
            ),
        ]
    return []


def scripts(stub: Stub, facts: SystemFacts) -> Mapping[str, str]:
    """Maintainer scripts as shell text: `postinst`, `prerm`, `postrm`, in dpkg's words for both managers."""
    found: dict[str, str] = {}
    if stub.effect.startswith("dkms_add_build_install"):
        found = _dkms_scripts(stub, hides="errors_ignored" in stub.effect)
    elif stub.effect in ("kernel_image", "kernel_core"):
        found = _image_scripts(stub.values["K"], facts)
    elif stub.effect == "kernel_headers" and not facts.is_rocky:
        found = {
            "postinst": f"command -v dkms >/dev/null && dkms autoinstall -k {stub.values['K']} >/dev/null || true"
        }
    if any(p.rpartition("/")[2].startswith(("libnvidia-ml.so", "libcuda.so")) for p in stub.files):
        # Enterprise Linux 8 and later run it once, by glibc's file trigger, when a transaction is through: run
        # earlier it would lead the links to the newer of two versions, which a way back then takes away.
        found = {**found, "posttrans" if facts.is_rocky else "postinst": "ldconfig", "postrm": "ldconfig"}
    if stub.name.startswith(("linux-objects-nvidia-", "linux-modules-nvidia-")) and "K" in stub.values:
        found = {
            "postinst": f"depmod {stub.values['K']} 2>/dev/null || true",
            "postrm": f"depmod {stub.values['K']} 2>/dev/null || true",
        }
    if any(p.endswith(".service") for p in stub.files) or stub.name.startswith(
        ("docker", "containerd", "nvidia-container-toolkit-base")
    ):
        units = " ".join(p.rpartition("/")[2] for p in stub.files if p.endswith(".service"))
        reload = "[ ! -d /run/systemd/system ] || systemctl daemon-reload >/dev/null 2>&1 || true"
        stop = (
            f"[ ! -d /run/systemd/system ] || systemctl stop {units} >/dev/null 2>&1 || true"
            if units
            else "true"
        )
        found = {
            **found,
            "postinst": f"{found.get('postinst', 'true')}\n{reload}",
            "prerm": f"{found.get('prerm', 'true')}\n{stop}",
        }
    if any(p.startswith("/usr/lib/modprobe.d/") for p in stub.files):
        # NVIDIA's packages rebuild the image of the newest kernel when they bring the blacklist.
        rebuild = "dracut --force >/dev/null 2>&1" if facts.is_rocky else "update-initramfs -u >/dev/null"
        found = {**found, "postinst": f"{found.get('postinst', 'true')}\n{rebuild} || true"}
    return found


def _dkms_scripts(stub: Stub, *, hides: bool) -> dict[str, str]:
    """As dkms' common.postinst: the running kernel and the newest one, each only where headers are."""
    version = stub.values["V"]
    tail = " || true" if hides else ""
    build = (
        f"dkms add -m nvidia -v {version}{tail}\nrunning=$(uname -r)\n"
        "newest=$(ls /boot | sed -n 's/^vmlinuz-//p' | sort -V | tail -1)\n"
        'for kernel in $(printf "%s\\n" "$running" "$newest" | sort -u); do\n'
        '  if [ ! -e "/lib/modules/$kernel/build/Makefile" ]; then\n'
        '    echo "Module build for kernel $kernel was skipped since the kernel headers for this kernel do not seem to be installed."\n'
        f"    continue\n  fi\n  dkms build -m nvidia -v {version} -k $kernel{tail}\n  dkms install -m nvidia -v {version} -k $kernel{tail}\ndone"
    )
    return {"postinst": build, "prerm": f"dkms remove -m nvidia -v {version} --all >/dev/null 2>&1 || true"}


def _image_scripts(kernel: str, facts: SystemFacts) -> dict[str, str]:
    make = (
        f"dracut --force /boot/initramfs-{kernel}.img {kernel}"
        if facts.is_rocky
        else f"update-initramfs -c -k {kernel} >/dev/null"
    )
    image = f"/boot/initramfs-{kernel}.img" if facts.is_rocky else f"/boot/initrd.img-{kernel}"
    return {
        "postinst": f"command -v dkms >/dev/null && dkms autoinstall -k {kernel} || true\ndepmod {kernel} 2>/dev/null || true\n{make}",
        "postrm": f"rm -f {image}; rm -rf /lib/modules/{kernel}",
    }
