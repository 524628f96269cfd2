"""The GPU witnesses `nvml`, `cuinit` and `cuinit-caller`: what the driver's own libraries answer.

Each runs in a child of the collector, which kills it at its deadline: every answer is said as soon as
it is there, and before each call its name, so that a call that never returns is known. Python 3.6
syntax; `ctypes` is loaded by the collector already, pynvml only when there is a library to ask.
"""

import ctypes
import os
import re
import time

#: Lies beside this file, wherever that was copied to.
use = __import__("witness_use")

TYPE_CHECKING = False  # the import of typing costs 3 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from doctor.evidence.collector import Where

    Say = Callable[..., None]
    Shape = Callable[[Any], object]
    Found = tuple[str, str, str]

NVML_NOT_FOUND = 12

#: Getters of one handle and nothing else, as NVML calls them after `nvmlDeviceGet`.
PLAIN = (
    "Name",
    "UUID",
    "Serial",
    "CudaComputeCapability",
    "EccMode",
    "RemappedRows",
    "RetiredPagesPendingStatus",
    "MarginTemperature",
    "PowerUsage",
    "EnforcedPowerLimit",
    "PowerManagementDefaultLimit",
    "PowerManagementLimitConstraints",
    "PerformanceState",
    "MigMode",
    "PersistenceMode",
    "ComputeMode",
    "CurrPcieLinkGeneration",
    "CurrPcieLinkWidth",
    "MaxPcieLinkGeneration",
    "MaxPcieLinkWidth",
    "PcieReplayCounter",
    "VirtualizationMode",
    "GspFirmwareVersion",
    "GspFirmwareMode",
)
#: Getters with one or two more arguments: getter -> part of the answer -> arguments.
GROUPS = (  # type: tuple[tuple[str, dict[str, tuple[int, ...]]], ...]
    (
        "TotalEccErrors",
        {
            "corrected_volatile": (0, 0),
            "uncorrected_volatile": (1, 0),
            "corrected_aggregate": (0, 1),
            "uncorrected_aggregate": (1, 1),
        },
    ),
    ("ClockInfo", {"sm": (1,), "mem": (2,)}),
    ("MaxClockInfo", {"sm": (1,), "mem": (2,)}),
    ("TemperatureThreshold", {"shutdown": (0,), "slowdown": (1,), "mem_max": (2,), "gpu_max": (3,)}),
)
#: Answers that go by another call in older drivers.
OLD_AND_NEW = (
    (
        "current_clocks_event_reasons",
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ),
    ),
    (
        "compute_running_processes",
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        ),
    ),
    (
        "graphics_running_processes",
        (
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v2",
        ),
    ),
)
RECOVERY_ACTION_FIELD = 230


def testify(name: str, say: "Say", where: "Where") -> None:
    """Puts one witness's questions. `say` sends a piece to the parent, `where` tells what to load."""
    {"nvml": _nvml, "cuinit": _cuinit, "cuinit-caller": _cuinit_caller}[name](say, where)


def _load(soname: str, found: "Found") -> "tuple[ctypes.CDLL | None, str]":
    """(library, error) of a `find` answer: opened by the loader's own search or by its path."""
    path, _, refused = found
    if refused:
        return None, refused
    try:
        return ctypes.CDLL(path or soname), ""
    except OSError as exc:
        return None, str(exc)


def _mapped(stem: str) -> str:
    """The file really mapped into this process whose name starts with `stem`; empty when none is."""
    fd = os.open("/proc/self/maps", os.O_RDONLY)
    with os.fdopen(fd, "rb") as handle:
        text = os.fsdecode(handle.read())
    found = re.search(r"(/\S*/" + re.escape(stem) + r"[^/\n]*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _not_loaded(found: "Found", error: str) -> "dict[str, str]":
    """The item of a library that could not be opened: absent, or refused, or broken."""
    is_absent = not found[0] and not found[2] and "cannot open shared object file" in error
    return {"status": "missing" if is_absent else "error", "detail": error}


# --- NVML -----------------------------------------------------------------------------------------


def _snake(getter: str) -> str:
    """`CurrPcieLinkWidth` as `curr_pcie_link_width`, `UUID` as `uuid`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", getter).lower()


def _nvml(say: "Say", where: "Where") -> None:
    """Driver, library and every GPU, one after the other; a GPU that fails does not end the others."""
    soname = "libnvidia-ml.so.1"
    found = where.find(soname)
    say(say={"at": "loading " + soname})
    library, error = _load(soname, found)
    if library is None:
        refusal = {"code": NVML_NOT_FOUND, "text": error}
        say(item=_not_loaded(found, error), say={"errors": {"init": refusal}})
        return
    say(item={"detail": found[1]} if found[1] else {}, say={"library_path": _mapped("libnvidia-ml.so")})
    try:
        import pynvml
    except ImportError:
        say(
            item={
                "status": "error",
                "detail": "not asked: the Python package nvidia-ml-py (pynvml) is not there",
            }
        )
        return
    pynvml.nvmlLib = library
    if _start(pynvml, say):
        _ask_system(pynvml, say)
        _ask_gpus(pynvml, say)


def _attempt(pynvml: "Any", call: str, *arguments: object) -> "tuple[Any, dict[str, Any]]":
    """(answer, error) of one call; the error is `{code, text}`, the code None when NVML gave none."""
    try:
        return getattr(pynvml, call)(*arguments), {}
    except pynvml.NVMLError as exc:
        return None, {"code": exc.value, "text": str(exc)}
    except Exception as exc:  # noqa: BLE001 - the border to foreign code: a getter that fails must not end the others
        return None, {"code": None, "text": f"{type(exc).__name__}: {exc}"}


def _start(pynvml: "Any", say: "Say") -> bool:
    say(say={"at": "nvmlInit"})
    began = time.monotonic()
    _, error = _attempt(pynvml, "nvmlInit")
    say(say={"init_ms": round((time.monotonic() - began) * 1000, 1)})
    if error:
        say(say={"errors": {"init": error}})
    return not error


def _ask_system(pynvml: "Any", say: "Say") -> None:
    for key, call in (
        ("driver_version", "nvmlSystemGetDriverVersion"),
        ("nvml_version", "nvmlSystemGetNVMLVersion"),
        ("cuda_driver_version", "nvmlSystemGetCudaDriverVersion_v2"),
        ("count", "nvmlDeviceGetCount"),
    ):
        say(say={"at": call})
        value, error = _attempt(pynvml, call)
        say(say={"errors": {key: error}} if error else {key: _plain(value)})


def _ask_gpus(pynvml: "Any", say: "Say") -> None:
    count, _ = _attempt(pynvml, "nvmlDeviceGetCount")
    for index in range(min(count or 0, 64)):
        say(say={"at": f"opening GPU {index}"})
        handle, error = _attempt(pynvml, "nvmlDeviceGetHandleByIndex", index)
        if error:
            say(say={"errors": {f"gpu {index}": error}})
            continue
        say(gpu=index, about={"index": index, "errors": {}})
        gpu = _Gpu(pynvml, say, index, handle)
        _ask_gpu(gpu)
        if count > 1:  # links of a GPU that is alone lead nowhere
            use.ask_nvlinks(gpu)


class _Gpu:
    """One GPU being asked: each answer, or the error by getter, is said at once."""

    def __init__(self, pynvml: "Any", say: "Say", index: int, handle: object) -> None:
        self.pynvml = pynvml
        self.say = say
        self.index = index
        self.handle = handle

    def get(self, calls: "tuple[str, ...]", *arguments: object) -> "tuple[Any, str]":
        """(answer, error text) of the first of `calls` that this binding and driver know."""
        error = {}  # type: dict[str, Any]
        for call in calls:
            self.say(say={"at": f"{call} of GPU {self.index}"})
            value, error = _attempt(self.pynvml, call, self.handle, *arguments)
            if not error:
                return value, ""
        return None, str(error["text"])

    def put(
        self, key: str, calls: "tuple[str, ...]", *arguments: object, shape: "Shape | None" = None
    ) -> None:
        value, error = self.get(calls, *arguments)
        self.tell(key, None if error else (shape or _plain)(value), error)

    def put_parts(self, key: str, call: str, parts: "dict[str, tuple[int, ...]]") -> None:
        for part, arguments in sorted(parts.items()):
            value, error = self.get((call,), *arguments)
            self.tell(key + "." + part if error else key, {part: _plain(value)}, error)

    def tell(self, key: str, value: object, error: str) -> None:
        self.say(gpu=self.index, about={"errors": {key: error}} if error else {key: value})


def _ask_gpu(gpu: _Gpu) -> None:
    """Every getter of one GPU; what fails stands in its `errors`, by getter."""
    gpu.put("pci_info", ("nvmlDeviceGetPciInfo",), shape=_pci_info)
    gpu.put("memory_info", ("nvmlDeviceGetMemoryInfo",), shape=_memory_info)
    gpu.put("temperature", ("nvmlDeviceGetTemperature",), 0)
    for getter in PLAIN:
        gpu.put(_snake(getter), ("nvmlDeviceGet" + getter,))
    for key, calls in OLD_AND_NEW:
        gpu.put(key, calls, shape=use.processes if key.endswith("_processes") else _plain)
    gpu.put("utilization_rates", ("nvmlDeviceGetUtilizationRates",), shape=use.utilization)
    for getter, parts in GROUPS:
        gpu.put_parts(_snake(getter), "nvmlDeviceGet" + getter, parts)
    values, error = gpu.get(("nvmlDeviceGetFieldValues",), [RECOVERY_ACTION_FIELD])
    if not error and values[0].nvmlReturn != 0:
        error = str(gpu.pynvml.NVMLError(values[0].nvmlReturn))
    gpu.tell("gpu_recovery_action", None if error else values[0].value.uiVal, error)
    _ask_fabric(gpu)


def _ask_fabric(gpu: _Gpu) -> None:
    """NVML writes this answer into a structure of the caller's, which older bindings lack."""
    structure = getattr(gpu.pynvml, "c_nvmlGpuFabricInfoV_t", None)
    if structure is None:
        gpu.tell("gpu_fabric_info", None, "this pynvml has no nvmlDeviceGetGpuFabricInfoV")
        return
    info = structure()
    _, error = gpu.get(("nvmlDeviceGetGpuFabricInfoV",), ctypes.byref(info))
    gpu.tell("gpu_fabric_info", None if error else _fabric_info(info), error)


def _plain(value: object) -> object:
    """A pynvml answer as JSON can hold it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def _pci_info(info: "Any") -> "dict[str, object]":
    return {
        "bus_id": _plain(info.busId),
        "domain": info.domain,
        "bus": info.bus,
        "device": info.device,
        "pci_device_id": info.pciDeviceId,
        "pci_sub_system_id": info.pciSubSystemId,
    }


def _memory_info(memory: "Any") -> "dict[str, int]":
    return {"total": memory.total, "free": memory.free, "used": memory.used}


def _fabric_info(info: "Any") -> "dict[str, object]":
    digits = "".join(f"{byte:02x}" for byte in info.clusterUuid)
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return {
        "state": info.state,
        "status": info.status,
        "clique_id": info.cliqueId,
        "cluster_uuid": uuid,
        "health_mask": info.healthMask,
    }


# --- CUDA -----------------------------------------------------------------------------------------


def _cuinit(say: "Say", where: "Where") -> None:
    """`cuInit(0)` of the libcuda that the loader finds by itself."""
    found = where.find("libcuda.so.1")
    if found[1]:
        found = ("", "", "")  # that one is for `cuinit-caller`
    _probe(say, found)


def _cuinit_caller(say: "Say", where: "Where") -> None:
    """The same with the caller's LD_LIBRARY_PATH, when that leads to another file."""
    soname = "libcuda.so.1"
    own = where.find(soname)
    other = _first_of_caller(where, soname)
    if not other or (own[0] and not own[1] and where.root.real(other) == where.default_file(soname)):
        say(unwanted=True)
        return
    directory = other.rpartition("/")[0]
    refused = where.root.distrust(other)
    note = "found through the caller's LD_LIBRARY_PATH: " + directory
    place = other if where.root.is_outer else where.root.real(other)
    _probe(say, (place, note, "not loaded: " + refused if refused else ""))


def _first_of_caller(where: "Where", soname: str) -> str:
    for directory in where.caller.library_dirs():
        if where.root.exists(directory + "/" + soname):
            return directory + "/" + soname
    return ""


def _probe(say: "Say", found: "Found") -> None:
    soname = "libcuda.so.1"
    say(say={"result": None, "name": "", "error": "", "library_path": "", "at": "loading " + soname})
    library, error = _load(soname, found)
    if library is None:
        say(item=_not_loaded(found, error), say={"error": error})
        return
    say(
        item={"detail": found[1]} if found[1] else {},
        say={"library_path": _mapped("libcuda.so"), "at": "cuInit"},
    )
    try:
        result = library.cuInit(0)
        say(say={"result": result, "at": "cuDriverGetVersion"})
        say(say={"name": _error_name(library, result)})
        for key, call in (("driver_version", "cuDriverGetVersion"), ("device_count", "cuDeviceGetCount")):
            number = ctypes.c_int()
            say(say={"at": call})
            if getattr(library, call)(ctypes.byref(number)) == 0:
                say(say={key: number.value})
    except AttributeError as exc:
        say(item={"status": "error", "detail": str(exc)}, say={"error": str(exc)})


def _error_name(library: ctypes.CDLL, result: int) -> str:
    name = ctypes.c_char_p()
    library.cuGetErrorName(result, ctypes.byref(name))
    return (name.value or b"").decode("ascii", "replace")
