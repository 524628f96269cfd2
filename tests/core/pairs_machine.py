"""Pairs for the causes of `causes_machine.yaml`: events, power, headers, package sources."""

from __future__ import annotations

import msgspec

from doctor.core.host import BootLog, Host, KernelMessage, MessageKind, ModprobeLine, Sxid, Xid
from doctor.core.host_machine import Repository
from doctor.core.versions import Dotted
from tests.core.hosts import (
    DRIVER,
    FIRST,
    OTHER_RELEASE,
    RELEASE,
    RTX_5090,
    SECOND,
    device,
    failing_probe,
    fallen,
    gpu,
    having,
    healthy,
    installed_kernel,
    known_of,
    lost_gpu,
    package,
    packages_of,
    put,
    reports,
    said,
    without_module,
)
from tests.core.pair import Pair

SWITCH = "0000:c1:00.0"


def xid_text(code: int, text: str = "pid=1, name=x, as the kernel said", address: str = FIRST) -> str:
    return f"NVRM: Xid (PCI:{address[:-2]}): {code}, {text}"


def events(host: Host, *texts: str, address: str = FIRST, at_s: float | None = None) -> Host:
    """The host whose log of this boot ends with these lines, and counts the Xids among them."""
    log = host.kernel.logs.value[0]  # type: ignore[union-attr]
    spoken = tuple(
        KernelMessage(kind=_kind(t), text=t, gpu=address if "Xid" in t else "", seconds=at_s) for t in texts
    )
    first: dict[int, str] = {}
    for text in (t for t in texts if "NVRM: Xid" in t):
        first.setdefault(int(text.split("): ")[1].split(",")[0]), text)
    count = {c: sum(f"): {c}, " in t for t in texts) for c in first}
    xids = tuple(
        Xid(code=c, gpu=address, count=count[c], first_text=t, first_seconds=at_s) for c, t in first.items()
    )
    new: BootLog = msgspec.structs.replace(log, messages=(*log.messages, *spoken), xids=(*log.xids, *xids))
    return put(host, "kernel.logs", (new, *host.kernel.logs.value[1:]))  # type: ignore[union-attr]


def _kind(text: str) -> MessageKind:
    return "sxid" if "SXid" in text else "xid" if "Xid" in text else "loading"


def switch_error(host: Host, code: int, word: str = "Fatal", *after: str) -> Host:
    """The host whose NVSwitch reported an SXid, and what the kernel said after it."""
    text = f"nvidia-nvswitch0: SXid (PCI:{SWITCH}): {code}, {word}, Link 30 LTSSM Fault Up"
    host = events(host, text, *after)
    log = host.kernel.logs.value[0]  # type: ignore[union-attr]
    is_fatal = {"fatal": True, "non-fatal": False}.get(word.lower())
    sxid = Sxid(code=code, switch=SWITCH, is_fatal=is_fatal, count=1, first_text=text)
    return put(host, "kernel.logs", (msgspec.structs.replace(log, sxids=(*log.sxids, sxid)),))


LOADING = f"NVRM: loading NVIDIA UNIX Open Kernel Module  {DRIVER}"
GSP_TIMEOUT = xid_text(
    119, "pid=7, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
)
LINK_FATAL = xid_text(145, "RLW_CTRL Fatal XC1 i0 Link 08 (0x00000001 0x00000000)")
LINK_NONFATAL = xid_text(145, "RLW_CTRL Nonfatal XC1 i0 Link 08 (0x00000001 0x00000000)")
R525 = Dotted("525.60.13")
R525_MENDED = Dotted("525.105.17")
NO_DEVICE = failing_probe(100, "CUDA_ERROR_NO_DEVICE")


def hung(host: Host) -> Host:
    """The GPU's firmware does not answer any more, and CUDA does not start."""
    return put(events(host, GSP_TIMEOUT), "cuda.probe", NO_DEVICE)


def driven_by(host: Host, version: Dotted) -> Host:
    return having(
        reports(host, driver_version=version, library_version=version),
        {"driver.kernel_version": version, "driver.userspace_version": version, "cuda.toolkits": ()},
    )


# --- power ----------------------------------------------------------------------------------------

GONE = ("fallen_off_bus", f"NVRM: GPU {SECOND}: GPU has fallen off the bus.", SECOND)
LOST = said(device(lost_gpu(healthy()), 1, is_responding=False), GONE, xids=fallen(SECOND))
AT_LOAD_TEXT = (
    f"NVRM: The NVIDIA GPU {FIRST} (PCI ID: 10de:25a0) installed in this system has fallen off the bus "
    "and is not responding to commands."
)
AT_LOAD = ("fallen_off_bus", AT_LOAD_TEXT, FIRST)


def laptop(host: Host) -> Host:
    """One mobile GPU beside the processor's own, without the driver."""
    host = put(without_module(host), "pci", (host.pci.value[0],))  # type: ignore[union-attr]
    return having(
        device(host, 0, device_id="10de:25a0", class_code="030000"),
        {"machine.chassis": "laptop", "machine.other_displays": ("0000:00:02.0 8086:a7a0",)},
    )


ASLEEP = device(laptop(healthy()), 0, is_responding=False, power_state="D3cold")

#: As EnvyControl writes it.
BLACKLIST = ModprobeLine(file="/etc/modprobe.d/blacklist-nvidia.conf", directive="blacklist", module="nvidia")
INTEGRATED = having(
    laptop(healthy()),
    {
        "pci": (),
        "kernel.module_options": (
            ModprobeLine(
                file="/etc/modprobe.d/blacklist-nvidia.conf", directive="blacklist", module="nvidia"
            ),
        ),
    },
)

# --- sleep, faults of the kernel, the wrong flavour ------------------------------------------------

UNKNOWN_ERROR = failing_probe(999, "CUDA_ERROR_UNKNOWN")
SLEEP = ("sleep", "PM: suspend exit")
SLEPT = put(said(healthy(), SLEEP), "cuda.probe", UNKNOWN_ERROR)
PLACE = "nvidia_vma_access+0x8b/0x2a0 [nvidia]"
OOPS = ("oops", f"BUG: kernel NULL pointer dereference, address: 0000000000000030, stopped at {PLACE}")
#: A Blackwell card under the proprietary modules reports an Xid that says nothing of its health.
WRONG_FLAVOUR = events(
    having(
        lost_gpu(device(healthy(), 0, device_id=RTX_5090), FIRST),
        {"driver.flavour": "proprietary", "cuda.probe": NO_DEVICE},
    ),
    xid_text(169, "fd8cd000 94000000"),
)

# --- headers --------------------------------------------------------------------------------------


def devel(release: str) -> Host:
    """A kernel without headers and module, and a package of headers for another release."""
    kernel = installed_kernel(RELEASE, has_headers=False, nvidia_modules=known_of(()))
    host = put(without_module(healthy()), "kernel.installed", (kernel,))
    names = ("nvidia-driver-580-open", "nvidia-dkms-580-open", f"linux-headers-{release}")
    return put(host, "packages", packages_of(*(package(name) for name in names)))


# --- package sources ------------------------------------------------------------------------------

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"


def entry(file: str = "/etc/apt/sources.list.d/cuda.list", **fields: object) -> Repository:
    values: dict[str, object] = {"file": file, "uri": CUDA, "suite": "/", "signed_by": KEYRING}
    return Repository(**{**values, **fields})  # type: ignore[arg-type]


def sources(*entries: Repository) -> Host:
    return put(healthy(), "machine.repositories", entries)


OLDER = "/etc/apt/sources.list.d/cuda-ubuntu2404.list"
UBUNTU, NVIDIA = "Ubuntu Core Developers <x@lists.ubuntu.com>", "cudatools <cudatools@nvidia.com>"


def driver_from(*origins: str) -> Host:
    names = ("nvidia-driver-580-open", "nvidia-dkms-580-open", "libnvidia-compute-580")
    mine = (package(name, origin=origin) for name, origin in zip(names, origins, strict=True))
    return put(healthy(), "packages", packages_of(*mine))


SLOW = {
    "utilisation_percent": 99,
    "clock_sm_mhz": 210,
    "clock_sm_max_mhz": 2520,
    "performance_state": "P8",
    "clock_limits": (),
}

PAIRS = {
    "driver.headers_wrong_version": Pair(
        devel(OTHER_RELEASE), devel("6.8.0-31-generic"), "driver.headers_missing"
    ),
    "driver.known_branch_bug": Pair(
        hung(driven_by(healthy(), R525)), hung(driven_by(healthy(), R525_MENDED)), "gpu.hang"
    ),
    "driver.kernel_oops": Pair(
        said(healthy(), OOPS), said(driven_by(healthy(), Dotted("595.58.03")), OOPS), is_advice=True
    ),
    "gpu.hang": Pair(hung(healthy()), events(healthy(), GSP_TIMEOUT, LOADING)),
    "gpu.nvlink_fatal": Pair(
        events(gpu(healthy(), recovery_action=None), LINK_FATAL),
        events(gpu(healthy(), recovery_action=None), LINK_NONFATAL),
    ),
    "gpu.stuck_low_power": Pair(
        gpu(healthy(), **SLOW), gpu(healthy(), **{**SLOW, "clock_limits": ("sw_power_cap",)}), is_advice=True
    ),
    "gpu.compute_prohibited": Pair(
        gpu(gpu(healthy(), compute_mode="Prohibited"), 1, compute_mode="Prohibited"),
        gpu(healthy(), compute_mode="Exclusive_Process"),
    ),
    "laptop.hybrid_power": Pair(ASLEEP, put(ASLEEP, "machine.chassis", "server"), "unknown"),
    "prov.repo_key": Pair(
        sources(entry(key_present=False)),
        sources(entry(key_present=True), entry(OLDER, uri=f"{CUDA}/x")),
        is_advice=True,
    ),
    "prov.repo_duplicate_entry": Pair(
        sources(entry(), entry(OLDER, signed_by="")),
        sources(
            entry(),
            entry(OLDER, suite="stable"),
            entry("/etc/apt/sources.list.d/x.list", uri=f"{CUDA}2", signed_by=""),
        ),
        is_advice=True,
    ),
    "policy.mixed_repositories": Pair(
        driver_from(UBUNTU, UBUNTU, NVIDIA),
        driver_from(UBUNTU, "Ubuntu Kernel Team <kernel-team@lists.ubuntu.com>", UBUNTU),
        is_advice=True,
    ),
}
