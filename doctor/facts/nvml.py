"""The NVML witness (`nvml.json`) as a report. Raw units come in, typed facts go out."""

from __future__ import annotations

from typing import Any

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Fact, Gpu, GpuProcess, GpuReport, Known
from doctor.facts.cuda import cuda_version
from doctor.facts.limits import limits_of_mask
from doctor.facts.source import absent, at, document, dotted, integer, pci_address, string

__all__ = ["read_nvml"]

_VIRTUALISATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_RECOVERY = {0: "none", 1: "reset", 2: "reboot", 3: "drain_p2p", 4: "drain_and_reset"}
_FABRIC = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
_GPUS_MAX = 512
_PROCESSES_MAX = 1024
#: What is said where a card, its driver or the Python binding has no such thing: no fault of the GPU.
_NOT_SUPPORTED = ("not supported", "function not found", "this pynvml has no")


def read_nvml(evidence: Evidence) -> Fact[GpuReport]:
    """What NVML answered; GPUs that came before one that hung are kept, and that one is named."""
    reading = evidence.read("nvml")
    doc = document(reading.data) if reading.data else None
    # A library that is not there is an absence; the loader's words stand in the item.
    if doc is None or reading.status == "missing":
        return absent(reading, "not a JSON object" if reading.has_data else "")
    gpus = _gpus(doc)
    code, error = _init_error(doc)
    if not reading.has_data and not gpus and not error:
        call = string(at(doc, "at"))
        return absent(reading, f"no answer from {call}" if call and reading.status == "timeout" else "")
    if reading.has_data and not _is_answer(doc, code, error):
        return absent(reading, "it holds neither an answer nor an error")
    report = GpuReport(
        error=error,
        error_code=code,
        driver_version=dotted(string(at(doc, "driver_version"))),
        library_version=_library_version(doc),
        cuda_driver_version=cuda_version(integer(at(doc, "cuda_driver_version"))),
        gpus=gpus,
        device_errors=(*_device_errors(doc), *_unanswered(reading, doc, gpus)),
    )
    return Known(value=report, origin=reading.origin)


def _is_answer(doc: dict[str, object], code: int | None, error: str) -> bool:
    return bool(error) or code is not None or any(key in doc for key in ("driver_version", "count", "gpus"))


def _init_error(doc: dict[str, object]) -> tuple[int | None, str]:
    said = at(doc, "errors", "init")
    code, text = integer(at(said, "code")), string(at(said, "text")) or string(said) or ""
    if code and not text:
        text = f"NVML error {code}"
    return code or None, text


def _library_version(doc: dict[str, object]) -> Any:
    """`nvml_version` is `13.580.159.04`: the CUDA major, then the driver that the library came with.

    Branches before 525 write `11.515.65.01` alike; a text without a branch in second place is kept out.
    """
    text = string(at(doc, "nvml_version")) or ""
    head, _, rest = text.partition(".")
    version = dotted(rest if len(head) <= 2 else text)
    return version if version is not None and version.major >= 100 else None


def _device_errors(doc: dict[str, object]) -> tuple[str, ...]:
    """Everything in `errors` but `init`: GPUs without a handle, and calls that failed for the system."""
    errors = at(doc, "errors")
    rows = []
    for key, said in errors.items() if isinstance(errors, dict) else ():
        text = string(at(said, "text")) or string(said) or ""
        if key != "init" and text and not _is_unsupported(text):
            rows.append(f"{str(key)[:100].replace('_', ' ')}: {text[:300]}")
    return tuple(rows[:_GPUS_MAX])


def _unanswered(reading: Reading, doc: dict[str, object], gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """The GPUs that a call cut off by its deadline had not reported."""
    count = integer(at(doc, "count"))
    if reading.has_data or count is None:
        return ()
    seen = {gpu.index for gpu in gpus}
    missing = [index for index in range(min(count, _GPUS_MAX)) if index not in seen]
    return tuple(f"index {index}: no answer before the deadline" for index in missing)


def _gpus(doc: dict[str, object]) -> tuple[Gpu, ...]:
    rows = at(doc, "gpus")
    if not isinstance(rows, list):
        return ()
    return tuple(_gpu(number, row) for number, row in enumerate(rows[:_GPUS_MAX]) if isinstance(row, dict))


def _gpu(number: int, row: dict[str, object]) -> Gpu:
    index = integer(row.get("index"))
    return Gpu(
        index=number if index is None else index,
        pci_address=pci_address(string(at(row, "pci_info", "bus_id")) or ""),
        name=string(row.get("name")),
        uuid=string(row.get("uuid")),
        serial=string(row.get("serial")),
        compute_capability=_capability(row.get("cuda_compute_capability")),
        performance_state=_numbered(row, "performance_state", "P"),
        mig_mode=_flag(row, "mig_mode", 0),
        mig_mode_pending=_flag(row, "mig_mode", 1),
        persistence_mode=_flag(row, "persistence_mode"),
        compute_mode=_named(row, _COMPUTE_MODES, "compute_mode"),
        virtualisation_mode=_named(row, _VIRTUALISATION, "virtualization_mode"),
        recovery_action=_recovery(row),
        gsp_firmware=string(row.get("gsp_firmware_version")),
        fabric_state=_fabric(row),
        fabric_status=_fabric_status(row),
        process_count=_process_count(row),
        processes=_processes(row),
        utilisation_percent=_percent(at(row, "utilization_rates", "gpu")),
        errors=_errors(row),
        **_memory(row),
        **_clocks(row),
        **_power(row),
        **_link(row),
    )


def _capability(value: object) -> str | None:
    major, minor = integer(at(value, 0)), integer(at(value, 1))
    return None if major is None or minor is None else f"{major}.{minor}"


def _number(row: dict[str, object], *names: str) -> int | None:
    """The first of several getters that answered with a number."""
    return next((n for n in (integer(row.get(name)) for name in names) if n is not None), None)


def _flag(row: dict[str, object], name: str, position: int | None = None) -> bool | None:
    value = row.get(name) if position is None else at(row.get(name), position)
    if isinstance(value, bool):
        return value
    number = integer(value)
    return None if number is None else number != 0


def _numbered(row: dict[str, object], name: str, prefix: str) -> str | None:
    number = _number(row, name)
    # 32 is NVML's word for a state it does not know.
    return None if number is None or not 0 <= number < 32 else f"{prefix}{number}"


def _named(row: dict[str, object], names: dict[int, str], *getters: str) -> str | None:
    number = _number(row, *getters)
    return None if number is None else names.get(number, f"unknown_{number}")


def _recovery(row: dict[str, object]) -> str | None:
    return _named(row, _RECOVERY, "recovery_action", "gpu_recovery_action")


def _fabric(row: dict[str, object]) -> str | None:
    state = _fabric_number(row, "state")
    return None if state is None else _FABRIC.get(state, f"unknown_{state}")


def _fabric_number(row: dict[str, object], part: str) -> int | None:
    values = (integer(at(row, name, part)) for name in ("gpu_fabric_info", "gpu_fabric_info_v"))
    return next((n for n in values if n is not None), None)


def _fabric_status(row: dict[str, object]) -> str | None:
    """An nvmlReturn; it means something only once the state is *completed*."""
    status = _fabric_number(row, "status") if _fabric(row) == "completed" else None
    return None if status is None else "success" if status == 0 else f"error_{status}"


def _process_count(row: dict[str, object]) -> int | None:
    processes = row.get("compute_running_processes")
    return len(processes) if isinstance(processes, list) else integer(processes)


def _processes(row: dict[str, object]) -> tuple[GpuProcess, ...] | None:
    """Computing ones and displays; a process that does both stands once, with the memory of the first."""
    found: dict[int, GpuProcess] = {}
    lists = [row.get(f"{kind}_running_processes") for kind in ("compute", "graphics")]
    for entries in lists:
        for entry in entries[:_PROCESSES_MAX] if isinstance(entries, list) else ():
            pid, memory = integer(at(entry, "pid")), integer(at(entry, "used_gpu_memory"))
            if pid is not None and pid >= 0:
                name = string(at(entry, "process_name"), 200) or ""
                # All ones is NVML's word for memory that it cannot count (WDDM, vGPU).
                known = memory if memory is not None and 0 <= memory < 2**62 else None
                found.setdefault(pid, GpuProcess(pid=pid, name=name, memory_bytes=known))
    return tuple(found.values()) if any(isinstance(entries, list) for entries in lists) else None


def _percent(value: object) -> int | None:
    number = integer(value)
    return number if number is not None and 0 <= number <= 100 else None


def _errors(row: dict[str, object]) -> dict[str, str]:
    errors = row.get("errors")
    found = {}
    for getter, said in errors.items() if isinstance(errors, dict) else ():
        text = string(said) or string(at(said, "text"))
        if text is not None and not _is_unsupported(text):
            found[str(getter)[:100]] = text[:300]
    return found


def _is_unsupported(text: str) -> bool:
    return any(word in text.lower() for word in _NOT_SUPPORTED)


def _memory(row: dict[str, object]) -> dict[str, Any]:
    remapped = row.get("remapped_rows")
    return {
        "memory_bytes": integer(at(row, "memory_info", "total")),
        "memory_used_bytes": integer(at(row, "memory_info", "used")),
        "ecc_mode": _flag(row, "ecc_mode", 0),
        "ecc_mode_pending": _flag(row, "ecc_mode", 1),
        "ecc_uncorrected_volatile": _ecc(row, "uncorrected", "volatile"),
        "ecc_uncorrected_aggregate": _ecc(row, "uncorrected", "aggregate"),
        "ecc_corrected_aggregate": _ecc(row, "corrected", "aggregate"),
        "remapped_rows_correctable": integer(at(remapped, 0)),
        "remapped_rows_uncorrectable": integer(at(remapped, 1)),
        "remap_pending": _flag({"at": at(remapped, 2)}, "at"),
        "remap_failure": _flag({"at": at(remapped, 3)}, "at"),
        "retired_pages_pending": _flag(row, "retired_pages_pending_status"),
    }


def _ecc(row: dict[str, object], kind: str, counter: str) -> int | None:
    """`total_ecc_errors` takes two arguments; they stand in its name, or as keys below it."""
    errors = row.get("total_ecc_errors")
    places = (
        row.get(f"total_ecc_errors_{kind}_{counter}"),
        at(errors, f"{kind}_{counter}"),
        at(errors, f"{counter}_{kind}"),
        at(errors, kind, counter),
        at(errors, counter, kind),
    )
    return next((n for n in map(integer, places) if n is not None), None)


def _clocks(row: dict[str, object]) -> dict[str, Any]:
    mask = _number(row, "current_clocks_event_reasons", "current_clocks_throttle_reasons")
    temperature = row.get("temperature")
    slowdown = (
        _number(row, "temperature_threshold_slowdown", "temperature_slowdown"),
        integer(at(row, "temperature_threshold", "slowdown")),
        integer(at(row, "temperature_thresholds", "slowdown")),
    )
    return {
        "temperature_c": integer(at(temperature, "gpu") if isinstance(temperature, dict) else temperature),
        # A card that states a margin instead answers 0 here.
        "temperature_slowdown_c": next((n for n in slowdown if n), None),
        "temperature_margin_c": _number(row, "margin_temperature"),
        "clock_sm_mhz": _clock(row, "clock_info", "sm"),
        "clock_sm_max_mhz": _clock(row, "max_clock_info", "sm"),
        "clock_memory_mhz": _clock(row, "clock_info", "mem", "memory"),
        "clock_limits": limits_of_mask(mask),
    }


def _clock(row: dict[str, object], getter: str, *domains: str) -> int | None:
    places = [place for d in domains for place in (row.get(f"{getter}_{d}"), at(row.get(getter), d))]
    return next((n for n in map(integer, places) if n is not None), None)


def _power(row: dict[str, object]) -> dict[str, Any]:
    """Milliwatts to watts."""
    limits = row.get("power_management_limit_constraints")
    limit = _number(row, "enforced_power_limit", "power_management_limit")
    milliwatts = {
        "power_w": _number(row, "power_usage"),
        "power_limit_w": limit,
        "power_limit_default_w": _number(row, "power_management_default_limit"),
        "power_limit_max_w": integer(at(limits, 1))
        if integer(at(limits, 1)) is not None
        else integer(at(limits, "max")),
    }
    return {name: None if value is None else value / 1000 for name, value in milliwatts.items()}


def _link(row: dict[str, object]) -> dict[str, Any]:
    return {
        "link_generation": _number(row, "curr_pcie_link_generation"),
        "link_generation_max": _number(row, "max_pcie_link_generation"),
        "link_width": _number(row, "curr_pcie_link_width"),
        "link_width_max": _number(row, "max_pcie_link_width"),
        "pcie_replays": _number(row, "pcie_replay_counter"),
    }
