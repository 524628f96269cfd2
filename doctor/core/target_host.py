"""A target read off the facts of a host: the GPUs on its bus, its system, and what is installed."""

from __future__ import annotations

import re
from collections import Counter

from doctor.core.goal import Term
from doctor.core.host import Host, Package, known
from doctor.core.matrix import Matrix
from doctor.core.target import Target, make_target
from doctor.core.versions import Deb, Dotted, Rpm

__all__ = ["PACKAGED", "target_of"]

#: Packages whose upstream version is that of a component, by the beginning of their names.
_PACKAGES = (
    ("fabric-manager", re.compile(r"(?:nvidia|cuda)-?fabric-?manager(?:-\d+)?(?:-open)?$")),
    ("imex", re.compile(r"nvidia-imex(?:-\d+)?$")),
    ("container-toolkit", re.compile(r"nvidia-container-toolkit$")),
    ("libnvidia-container", re.compile(r"libnvidia-container1$")),
    ("docker", re.compile(r"docker-ce$|docker\.io$")),
    ("containerd", re.compile(r"containerd(?:\.io)?$")),
    ("podman", re.compile(r"podman$")),
    ("cri-o", re.compile(r"cri-o$")),
    ("dcgm", re.compile(r"datacenter-gpu-manager(?:-4-core|-\d)?$")),
    ("cuda-compat", re.compile(r"cuda-compat-\d+-\d+$")),
)
#: Components that a host's packages tell of.
PACKAGED = tuple(component for component, _ in _PACKAGES)


def target_of(matrix: Matrix, host: Host, *, hold: tuple[str, ...] = ()) -> Target:
    """The machine that evidence describes. What was not collected is not said, never guessed."""
    os = known(host.system.os)
    place = known(host.system.virtualisation)
    release = known(host.kernel.release) or ""
    have = dict[str, str]()
    _driver(host, release, have)
    _toolkits(host, have)
    _packages(host, have)
    secure = known(host.kernel.secure_boot)
    if secure in ("enabled", "disabled"):
        have["secure-boot"] = "on" if secure == "enabled" else "off"
    if place is not None and (place.kind == "wsl2" or place.vgpu_guest):
        have["driver-kind"] = "windows" if place.kind == "wsl2" else "vgpu-guest"
    return make_target(
        matrix,
        gpus=[f"{device}x{count}" for device, count in _devices(host).items()],
        os=f"{os.id}-{os.version}" if os else "",
        kernel="" if have.get("driver-kind") == "windows" else release,
        arch=known(host.system.architecture) or "",
        have=[Term(component=name, spec=f"=={raw}") for name, raw in have.items()],
        hold=hold,
    )


def _driver(host: Host, release: str, have: dict[str, str]) -> None:
    """The loaded module; where none is loaded, the file that the running kernel would take."""
    kernel = next((k for k in known(host.kernel.installed) or () if k.release == release), None)
    files = (known(kernel.nvidia_modules) or ()) if kernel else ()
    module = next((file for file in files if file.name == "nvidia"), None)
    version = known(host.driver.kernel_version) or (module.version if module else None)
    version = version or known(host.driver.userspace_version)
    if version is not None:
        have["driver"] = version.raw
    flavour = known(host.driver.flavour) or (module.flavour if module else None)
    if flavour:
        have["kernel-modules"] = flavour
    if module is not None and not module.signer:
        have["module-signature"] = "none"


def _devices(host: Host) -> Counter[str]:
    """Cards by PCI id; where no bus was read (WSL2, a pasted nvidia-smi), by the names the driver gives."""
    found = Counter(device.device_id for device in host.gpus_on_bus)
    for answered in (known(host.driver.nvml), known(host.driver.smi)):
        if not found and answered is not None:
            found = Counter(gpu.name for gpu in answered.gpus if gpu.name)
    return found


def _toolkits(host: Host, have: dict[str, str]) -> None:
    toolkits = known(host.cuda.toolkits) or ()
    chosen = next((t for t in toolkits if t.is_default), toolkits[0] if toolkits else None)
    version = (chosen.nvcc_release or chosen.version) if chosen else None
    if version is not None:
        have["cuda-toolkit"] = version.raw
    compiler = known(host.kernel.compiler_on_path) or ""
    match = re.search(r"(\d+\.\d+)(?:\.\d+)?\s*$", compiler)
    if match:
        have["gcc"] = match.group(1)


def _packages(host: Host, have: dict[str, str]) -> None:
    packages = known(host.packages)
    if packages is None:
        return
    for package in packages.installed:
        for component, pattern in _PACKAGES:
            if pattern.match(package.name) and package.state == "installed":
                raw = _upstream(package, packages.manager)
                if component not in have or Dotted(raw) > Dotted(have[component]):
                    have[component] = raw


def _upstream(package: Package, manager: str) -> str:
    """The version that the makers gave it: `580.95.05` of `580.95.05-0ubuntu1`, `1.18.0` of `1.18.0-1`."""
    text = package.version.partition(":")[2] or package.version
    kind = Deb if manager == "dpkg" else Rpm
    kind(package.version)  # a version of no such form is an error in the evidence
    match = re.match(r"\d+(?:\.\d+)*", text)
    return match.group() if match else "0"
