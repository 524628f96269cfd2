"""The GPU witnesses `nvml`, `cuinit` and `cuinit-caller`: what the driver's own libraries answer.

Each runs in a child of the collector, which kills it at its deadline: every answer is said as soon as
it is there, and before each call its name, so that a call that never returns is known. Python 3.6
syntax; `ctypes` is loaded by the collector already, pynvml only when there is a library to ask.
"""

import ctypes
import os
import re
import time

NVML_NOT_FOUND = 12

#: Getters of one handle and nothing else, as NVML calls them after `nvmlDeviceGet`.
PLAIN = (
    "Name", "UUID", "Serial", "CudaComputeCapability", "EccMode", "RemappedRows", "RetiredPagesPendingStatus",
    "MarginTemperature", "PowerUsage", "EnforcedPowerLimit", "PowerManagementDefaultLimit",
    "PowerManagementLimitConstraints", "PerformanceState", "MigMode", "PersistenceMode", "ComputeMode",
    "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "PcieReplayCounter",
    "VirtualizationMode", "GspFirmwareVersion", "GspFirmwareMode",
)
#: Getters with one or two more arguments: getter -> part of the answer -> arguments.
GROUPS = (
    ("TotalEccErrors", {
        "corrected_volatile": (0, 0), "uncorrected_volatile": (1, 0),
        "corrected_aggregate": (0, 1), "uncorrected_aggregate": (1, 1),
    }),
    ("ClockInfo", {"sm": (1,), "mem": (2,)}),
    ("MaxClockInfo", {"sm": (1,), "mem": (2,)}),
    ("TemperatureThreshold", {"shutdown": (0,), "slowdown": (1,), "mem_max": (2,), "gpu_max": (3,)}),
)
#: Answers that go by another call in older drivers.
OLD_AND_NEW = (
    ("current_clocks_event_reasons", (
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
    )),
    ("compute_running_processes", (
        "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
    )),
)
RECOVERY_ACTION_FIELD = 230
PROCESSES_MAX = 256


def testify(name, say, where):
    """Puts one witness's questions. `say` sends a piece to the parent, `where` tells what to load."""
    {"nvml": nvml, "cuinit": cuinit, "cuinit-caller": cuinit_caller}[name](say, where)


def load(soname, found):
    """(library, error) of a `find` answer: opened by the loader's own search or by its path."""
    path, _, refused = found
    if refused:
        return None, refused
    try:
        return ctypes.CDLL(path or soname), ""
    except OSError as exc:
        return None, str(exc)


def mapped(stem):
    """The file really mapped into this process whose name starts with `stem`; empty when none is."""
    with open("/proc/self/maps", "rb") as handle:
        text = os.fsdecode(handle.read())
    found = re.search(r"(/\S*/" + re.escape(stem) + r"[^/\n]*)$", text, re.M)
    return found.group(1) if found else ""


def not_loaded(found, error):
    """The item of a library that could not be opened: absent, or refused, or broken."""
    is_absent = not found[0] and not found[2] and "cannot open shared object file" in error
    return {"status": "missing" if is_absent else "error", "detail": error}


# --- NVML -----------------------------------------------------------------------------------------


def snake(getter):
    """`CurrPcieLinkWidth` as `curr_pcie_link_width`, `UUID` as `uuid`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", getter).lower()


def nvml(say, where):
    """Driver, library and every GPU, one after the other; a GPU that fails does not end the others."""
    soname = "libnvidia-ml.so.1"
    found = where.find(soname)
    say(say={"at": "loading " + soname})
    library, error = load(soname, found)
    if library is None:
        refusal = {"code": NVML_NOT_FOUND, "text": error}
        say(item=not_loaded(found, error), say={"errors": {"init": refusal}})
        return
    say(item={"detail": found[1]} if found[1] else {}, say={"library_path": mapped("libnvidia-ml.so")})
    try:
        import pynvml
    except ImportError:
        say(item={"status": "error", "detail": "not asked: the Python package nvidia-ml-py (pynvml) is not there"})
        return
    pynvml.nvmlLib = library
    if start(pynvml, say):
        ask_system(pynvml, say)
        ask_gpus(pynvml, say)


def attempt(pynvml, call, *arguments):
    """(answer, error) of one call; the error is `{code, text}`, the code None when NVML gave none."""
    try:
        return getattr(pynvml, call)(*arguments), None
    except pynvml.NVMLError as exc:
        return None, {"code": exc.value, "text": str(exc)}
    except Exception as exc:  # the border to foreign code: a getter that fails must not end the others
        return None, {"code": None, "text": "{}: {}".format(type(exc).__name__, exc)}


def start(pynvml, say):
    say(say={"at": "nvmlInit"})
    began = time.monotonic()
    _, error = attempt(pynvml, "nvmlInit")
    say(say={"init_ms": round((time.monotonic() - began) * 1000, 1)})
    if error:
        say(say={"errors": {"init": error}})
    return not error


def ask_system(pynvml, say):
    for key, call in (
        ("driver_version", "nvmlSystemGetDriverVersion"),
        ("nvml_version", "nvmlSystemGetNVMLVersion"),
        ("cuda_driver_version", "nvmlSystemGetCudaDriverVersion_v2"),
        ("count", "nvmlDeviceGetCount"),
    ):
        say(say={"at": call})
        value, error = attempt(pynvml, call)
        say(say={"errors": {key: error}} if error else {key: plain(value)})


def ask_gpus(pynvml, say):
    count, _ = attempt(pynvml, "nvmlDeviceGetCount")
    for index in range(min(count or 0, 64)):
        say(say={"at": "opening GPU {}".format(index)})
        handle, error = attempt(pynvml, "nvmlDeviceGetHandleByIndex", index)
        if error:
            say(say={"errors": {"gpu {}".format(index): error}})
            continue
        say(gpu=index, about={"index": index, "errors": {}})
        ask_gpu(pynvml, say, index, handle)


class Gpu:
    """One GPU being asked: each answer, or the error by getter, is said at once."""

    def __init__(self, pynvml, say, index, handle):
        self.pynvml = pynvml
        self.say = say
        self.index = index
        self.handle = handle

    def get(self, calls, *arguments):
        """(answer, error text) of the first of `calls` that this binding and driver know."""
        for call in calls:
            self.say(say={"at": "{} of GPU {}".format(call, self.index)})
            value, error = attempt(self.pynvml, call, self.handle, *arguments)
            if not error:
                return value, ""
        return None, error["text"]

    def put(self, key, calls, *arguments, shape=None):
        value, error = self.get(calls, *arguments)
        self.tell(key, None if error else (shape or plain)(value), error)

    def put_parts(self, key, call, parts):
        for part, arguments in sorted(parts.items()):
            value, error = self.get((call,), *arguments)
            self.tell(key + "." + part if error else key, {part: plain(value)}, error)

    def tell(self, key, value, error):
        self.say(gpu=self.index, about={"errors": {key: error}} if error else {key: value})


def ask_gpu(pynvml, say, index, handle):
    gpu = Gpu(pynvml, say, index, handle)
    gpu.put("pci_info", ("nvmlDeviceGetPciInfo",), shape=pci_info)
    gpu.put("memory_info", ("nvmlDeviceGetMemoryInfo",), shape=memory_info)
    gpu.put("temperature", ("nvmlDeviceGetTemperature",), 0)
    for getter in PLAIN:
        gpu.put(snake(getter), ("nvmlDeviceGet" + getter,))
    for key, calls in OLD_AND_NEW:
        gpu.put(key, calls, shape=processes if key == "compute_running_processes" else plain)
    for getter, parts in GROUPS:
        gpu.put_parts(snake(getter), "nvmlDeviceGet" + getter, parts)
    values, error = gpu.get(("nvmlDeviceGetFieldValues",), [RECOVERY_ACTION_FIELD])
    if not error and values[0].nvmlReturn != 0:
        error = str(pynvml.NVMLError(values[0].nvmlReturn))
    gpu.tell("gpu_recovery_action", None if error else values[0].value.uiVal, error)
    ask_fabric(pynvml, gpu)


def ask_fabric(pynvml, gpu):
    """NVML writes this answer into a structure of the caller's, which older bindings lack."""
    structure = getattr(pynvml, "c_nvmlGpuFabricInfoV_t", None)
    if structure is None:
        gpu.tell("gpu_fabric_info", None, "this pynvml has no nvmlDeviceGetGpuFabricInfoV")
        return
    info = structure()
    _, error = gpu.get(("nvmlDeviceGetGpuFabricInfoV",), ctypes.byref(info))
    gpu.tell("gpu_fabric_info", None if error else fabric_info(info), error)


def plain(value):
    """A pynvml answer as JSON can hold it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def pci_info(info):
    return {
        "bus_id": plain(info.busId),
        "domain": info.domain,
        "bus": info.bus,
        "device": info.device,
        "pci_device_id": info.pciDeviceId,
        "pci_sub_system_id": info.pciSubSystemId,
    }


def memory_info(memory):
    return {"total": memory.total, "free": memory.free, "used": memory.used}


def processes(found):
    return [{"pid": p.pid, "used_gpu_memory": p.usedGpuMemory} for p in found[:PROCESSES_MAX]]


def fabric_info(info):
    digits = "".join("{:02x}".format(byte) for byte in info.clusterUuid)
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return {
        "state": info.state,
        "status": info.status,
        "clique_id": info.cliqueId,
        "cluster_uuid": uuid,
        "health_mask": info.healthMask,
    }


# --- CUDA -----------------------------------------------------------------------------------------


def cuinit(say, where):
    """`cuInit(0)` of the libcuda that the loader finds by itself."""
    found = where.find("libcuda.so.1")
    if found[1]:
        found = ("", "", "")  # that one is for `cuinit-caller`
    probe(say, found)


def cuinit_caller(say, where):
    """The same with the caller's LD_LIBRARY_PATH, when that leads to another file."""
    soname = "libcuda.so.1"
    own = where.find(soname)
    other = first_of_caller(where, soname)
    if not other or (own[0] and not own[1] and where.root.real(other) == where.default_file(soname)):
        say(unwanted=True)
        return
    directory = os.path.dirname(other)
    refused = where.root.distrust(other)
    note = "found through the caller's LD_LIBRARY_PATH: " + directory
    place = other if where.root.is_outer else where.root.real(other)
    probe(say, (place, note, "not loaded: " + refused if refused else ""))


def first_of_caller(where, soname):
    for directory in where.caller.library_dirs():
        if where.root.exists(directory + "/" + soname):
            return directory + "/" + soname
    return ""


def probe(say, found):
    soname = "libcuda.so.1"
    say(say={"result": None, "name": "", "error": "", "library_path": "", "at": "loading " + soname})
    library, error = load(soname, found)
    if library is None:
        say(item=not_loaded(found, error), say={"error": error})
        return
    say(item={"detail": found[1]} if found[1] else {}, say={"library_path": mapped("libcuda.so"), "at": "cuInit"})
    try:
        result = library.cuInit(0)
        say(say={"result": result, "at": "cuDriverGetVersion"})
        say(say={"name": error_name(library, result)})
        for key, call in (("driver_version", "cuDriverGetVersion"), ("device_count", "cuDeviceGetCount")):
            number = ctypes.c_int()
            say(say={"at": call})
            if getattr(library, call)(ctypes.byref(number)) == 0:
                say(say={key: number.value})
    except AttributeError as exc:
        say(item={"status": "error", "detail": str(exc)}, say={"error": str(exc)})


def error_name(library, result):
    name = ctypes.c_char_p()
    library.cuGetErrorName(result, ctypes.byref(name))
    return (name.value or b"").decode("ascii", "replace")
