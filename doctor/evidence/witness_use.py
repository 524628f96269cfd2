"""Part of the witness `nvml`: who uses a GPU, how much, and the state of its NVLinks.

Python 3.6 syntax; it lies beside `witness_gpu.py`, which asks it.
"""

import os

TYPE_CHECKING = False  # the import of typing costs 3 ms
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from doctor.evidence.witness_gpu import _Gpu as Gpu

#: Counters of one link (nvml.h, `NVML_FI_DEV_NVLINK_ERROR_DL_*`; an H200 has these), and of all together,
#: which older cards have.
NVLINK_ERROR_FIELDS = (("replay", 161, 52), ("recovery", 162, 59), ("crc", 163, 38))
#: NVML_NVLINK_MAX_LINKS is 18; one that is too many answers *invalid argument*.
NVLINKS_MAX = 36
PROCESSES_MAX = 256


def ask_nvlinks(gpu: "Gpu") -> None:
    """The state of each link until NVML knows no more of them, then the sums of its error counters."""
    states = []  # type: list[int]
    error = ""
    while len(states) < NVLINKS_MAX:
        state, error = gpu.get(("nvmlDeviceGetNvLinkState",), len(states))
        if error:
            break
        states.append(int(state))
    if not states:
        # A card without NVLink may call its first link an invalid argument.
        gpu.tell("nvlinks", None, "Not Supported" if error == "Invalid Argument" else error)
        return
    counts = {}  # type: dict[str, int]
    by_link = [(name, (field, link)) for name, field, _ in NVLINK_ERROR_FIELDS for link in range(len(states))]
    _sum_fields(gpu, by_link, counts)
    if not counts:
        _sum_fields(gpu, [(name, field) for name, _, field in NVLINK_ERROR_FIELDS], counts)
    gpu.tell("nvlinks", {"states": states, "errors": counts}, "")


def _sum_fields(gpu: "Gpu", fields: "Sequence[tuple[str, object]]", counts: "dict[str, int]") -> None:
    """Adds what the fields say to the counts of their names; a field that the card lacks adds nothing."""
    values, _ = gpu.get(("nvmlDeviceGetFieldValues",), [field for _, field in fields])
    for number, value in enumerate(values or ()):
        if value.nvmlReturn == 0:
            name = fields[number][0]
            counts[name] = counts.get(name, 0) + value.value.ullVal


def processes(found: "Any") -> "list[dict[str, object]]":
    """Who uses a GPU: numbers of processes, and names where all processes of the host are seen.

    NVML gives the host's numbers; in a container's own count they would name somebody else.
    """
    is_first = _sees_all_processes()
    rows = []
    for process in found[:PROCESSES_MAX]:
        row = {"pid": process.pid, "used_gpu_memory": process.usedGpuMemory}  # type: dict[str, object]
        name = _process_name(process.pid) if is_first else ""
        rows.append(dict(row, process_name=name) if name else row)
    return rows


def _sees_all_processes() -> bool:
    """Whether this is the first process namespace, whose number the kernel fixes (PROC_PID_INIT_INO)."""
    try:
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"  # noqa: PTH115 - pathlib is not loaded here
    except OSError:
        return False


def _process_name(pid: int) -> str:
    try:
        fd = os.open(f"/proc/{pid}/comm", os.O_RDONLY)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as handle:
        return handle.read(64).decode("utf-8", "replace").strip()


def utilization(rates: "Any") -> "dict[str, int]":
    """Percent of the last sampling period in which something ran, or memory was moved."""
    return {"gpu": rates.gpu, "memory": rates.memory}
