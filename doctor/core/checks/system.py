"""Checks of the system around the GPU: is there a card, was everything collected, is there room."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import on_gpu_host, with_module
from doctor.core.checks.told import fact_untold, has_failed, is_unasked
from doctor.core.claims.bus import vfio_bound_all
from doctor.core.claims.listed import REFUSALS
from doctor.core.host import Filesystem, Known, StuckItem, is_untold, known
from doctor.core.views import messages, on_jetson, report, same_version

__all__ = ["CHECKS"]

#: Below this an engine cannot write its caches or a package manager unpack a driver.
_ROOM_BYTES = 1024**3


@check("system.nvidia_gpu", "NVIDIA GPU present", critical=True)
def nvidia_gpu(case: Case) -> Iterator[Outcome]:
    """A GPU of vendor 10de on the PCI bus, or one that the driver lists where the bus is hidden."""
    gpus, answered = case.host.gpus_on_bus, report(case)
    wanted = "at least one NVIDIA GPU"
    if vfio_bound_all(case).holds:
        yield failed(f"{vfio_bound_all(case).because}: handed to virtual machines", wanted=wanted)
    elif gpus:
        yield passed(f"{len(gpus)} on the PCI bus", wanted=wanted)
    elif answered and answered.gpus:
        yield passed(f"the driver lists {len(answered.gpus)}", wanted=wanted)
    elif on_jetson(case):
        yield passed("part of the chip (Jetson): it is not on the PCI bus", wanted=wanted)
    elif (
        case.virtualisation == "wsl2" and is_untold(case.host.driver.nvml) and is_untold(case.host.driver.smi)
    ):
        yield unknown("under WSL2 only the driver can tell, and it was not asked", wanted=wanted)
    elif case.virtualisation == "wsl2":
        yield failed("Windows hands no NVIDIA adapter to this WSL2", wanted=wanted)
    elif isinstance(case.host.pci, Known):
        yield failed(
            "the PCI bus was read and holds no NVIDIA GPU",
            wanted=wanted,
            why=("looked in `/sys/bus/pci/devices` for vendor 10de, class 0300 or 0302",),
        )
    elif refused := next(messages(case, *REFUSALS, "init_failed"), None):
        yield passed(f"the kernel names {refused.gpu or 'one'}", wanted=wanted)
    else:
        why = case.host.pci.detail or "no `/sys/bus/pci/devices` and no `lspci` output"
        yield unknown("the PCI bus could not be read", wanted=wanted, why=(why,))


@check("system.collection", "everything answered in time")
def collection(case: Case) -> Iterator[Outcome]:
    """Names each item that did not answer by its deadline, with where its process waited."""
    taken = case.host.collection
    stuck = taken.stuck
    if not stuck and taken.root is None and not taken.boot_id:
        yield skipped("this evidence does not say how it was collected")
    elif not stuck:
        yield passed("no item was stuck")
    hint = "give it more time with `--timeout 60`; a process in state D waits inside the kernel"
    for number, item in enumerate(stuck):
        why = () if number else (hint,)
        yield unknown(_stuck_words(item), subject=item.key, wanted="an answer in time", why=why)


def _stuck_words(item: StuckItem) -> str:
    words = "no answer" if item.waited_s is None else f"no answer within {item.waited_s:.1f} s"
    if item.pid is not None:
        words += (
            f": pid {item.pid}, state {item.state or '?'}, waiting in {item.wchan or 'no kernel function'}"
        )
    return words


@check("system.witnesses", "witnesses agree", applies=(on_gpu_host, with_module))
def witnesses(case: Case) -> Iterator[Outcome]:
    """The loaded driver's version as files, NVML and nvidia-smi tell it; and how many GPUs they see."""
    driver = case.host.driver
    versions = {
        "/proc/driver/nvidia/version": known(driver.kernel_version),
        "NVML": (nvml := known(driver.nvml)) and nvml.driver_version,
        "nvidia-smi": (smi := known(driver.smi)) and smi.driver_version,
    }
    told = {who: version for who, version in versions.items() if version}
    if len(told) < 2:
        facts: tuple[object, ...] = (driver.kernel_version, driver.nvml, driver.smi)
        silent = next((fact for fact in facts if has_failed(fact)), None)
        yield fact_untold(silent, "one of the witnesses", absent="fewer than two witnesses answered")
        return
    first = next(iter(told.values()))
    if all(same_version(first, other) for other in told.values()):
        yield passed(f"driver {first} by {len(told)} witnesses")
    else:
        words = ", ".join(f"{who} says {version}" for who, version in told.items())
        yield warned(
            words, wanted="one driver version", why=("files are preferred, then NVML, then nvidia-smi",)
        )
    both = [r for r in (nvml, smi) if r and r.gpus and not r.error and not r.device_errors]
    if nvml and smi and len(both) == 2 and len(nvml.gpus) != len(smi.gpus):
        yield warned(
            f"NVML lists {len(nvml.gpus)} GPU(s), nvidia-smi {len(smi.gpus)}",
            subject="gpu count",
            wanted="the same number",
        )


@check("system.disk_space", "room on the file systems", needs=("system.resources",))
def disk_space(case: Case) -> Iterator[Outcome]:
    """At least 1 GiB free where caches, packages and models go."""
    resources = known(case.host.system.resources)
    filesystems = resources.filesystems if resources else ()
    full = [f for f in filesystems if _is_for_data(f) and f.free_bytes < _ROOM_BYTES]
    for place in full:
        free = place.free_bytes // 1024**2
        yield warned(f"{free} MiB free", subject=place.path, wanted="at least 1024 MiB free")
    if not full:
        yield passed() if filesystems else skipped("no file system was measured")


#: Images that are full by design.
_READ_ONLY = ("squashfs", "iso9660", "erofs", "udf", "cramfs", "romfs")


def _is_for_data(place: Filesystem) -> bool:
    """False for images, for what holds boot files only, and for what is too small to be meant."""
    is_boot = place.path == "/boot" or place.path.startswith(("/boot/", "/efi"))
    return place.total_bytes > _ROOM_BYTES and not is_boot and not place.kind.endswith(_READ_ONLY)


@check("system.caller_paths", "libraries found without the caller's variables")
def caller_paths(case: Case) -> Iterator[Outcome]:
    """What only LD_LIBRARY_PATH leads to: services started without it will not find the same thing."""
    variables = case.host.system.environment
    path = variables.get("LD_LIBRARY_PATH", "")
    if not path:
        # The collector always tells the caller's PATH; a report that somebody pasted has no caller.
        is_asked = variables or not is_unasked(case.host.cuda.probe_caller)
        yield passed("LD_LIBRARY_PATH is not set") if is_asked else skipped("not asked in this evidence")
        return
    other = known(case.host.cuda.probe_caller)
    own = known(case.host.cuda.probe)
    if other is None and is_untold(case.host.cuda.probe_caller):
        yield unknown(f"LD_LIBRARY_PATH={path} is set; whether it leads to another libcuda was not asked")
    elif other is None:
        yield passed(f"LD_LIBRARY_PATH={path} changes nothing for libcuda")
    elif own is None or not own.library_path:
        yield passed(
            f"libcuda is found through LD_LIBRARY_PATH only: {other.library_path}",
            why=("a service started without that variable will not find it; `ldconfig` would",),
        )
    else:
        yield passed(
            f"LD_LIBRARY_PATH puts {other.library_path} before {own.library_path}",
            why=("programs started from this shell load another libcuda than services do",),
        )


CHECKS = (nvidia_gpu, collection, witnesses, disk_space, caller_paths)
