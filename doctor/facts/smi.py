"""`nvidia-smi -q -x` as a report: GPUs from its XML, or the reason from its error text."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Gpu, GpuProcess, GpuReport, Known
from doctor.core.versions import Dotted
from doctor.facts.collectenv import report_by_env
from doctor.facts.limits import limit_of_label
from doctor.facts.smi_errors import address_of, broken_rows, code_of, device_failures, failure_in, is_broken
from doctor.facts.smi_list import is_smi_list, parse_smi_list
from doctor.facts.smi_table import is_smi_table, parse_smi_table
from doctor.facts.smi_text import is_smi_log, parse_smi_log
from doctor.facts.source import absent, dotted, fraction, line_of, runs, whole
from doctor.facts.xmltree import Node, XmlError, parse_xml

__all__ = ["RUN_AGAIN", "read_smi"]

#: Detail of a run that somebody pasted behind another one: what counts is the present.
RUN_AGAIN = "run again"

_MIB = 1024 * 1024
_GPUS_MAX = 512
_PROCESSES_MAX = 1024
_VIRTUALISATION = {
    "none": "none",
    "pass-through": "passthrough",
    "vgpu": "vgpu",
    "host vgpu": "host_vgpu",
    "host vsga": "host_vsga",
}


def read_smi(evidence: Evidence) -> Fact[GpuReport]:
    """What nvidia-smi printed; its exit status stands in `error_code` where it gave up."""
    asked = [r for r in runs(evidence, "nvidia-smi") if not _is_about_links(r)]
    facts = [_by_reading(evidence, r) for r in asked]
    is_thread = any(r.item is not None and r.item.detail == RUN_AGAIN for r in asked)
    if any(isinstance(fact, Known) for fact in facts):
        return (_latest if is_thread else _joined)(facts)
    unasked = evidence.command("nvidia-smi", "-q", "-x")
    return report_by_env(evidence) or (facts[0] if facts else absent(unasked))


def _is_about_links(reading: Reading) -> bool:
    """Bug reports run it with sub-commands too; what these print says nothing of the driver."""
    argv = reading.item.argv if reading.item is not None else ()
    return argv[1:2] in (("nvlink",), ("conf-compute",), ("topo",))


def _joined(facts: list[Fact[GpuReport]]) -> Fact[GpuReport]:
    """Of several runs one that failed, else the first that lists GPUs; the others fill its gaps.

    One lost GPU silences `--query`, while `--query --unit` still names the driver. Where runs
    contradict each other the failure counts: a host is not called ready on half of what it said.
    """
    spoke = [fact for fact in facts if isinstance(fact, Known)]
    best = next((fact for fact in spoke if fact.value.error), None)
    if best is not None:
        return best
    # `-L` knows no addresses: any other listing tells more.
    listings = sorted((f for f in spoke if f.value.gpus), key=lambda f: not f.value.gpus[0].pci_address)
    return _filled((listings or spoke)[0], spoke)


def _latest(facts: list[Fact[GpuReport]]) -> Fact[GpuReport]:
    """Of the runs in a thread the last one that says something of GPUs.

    Trouble first and none later: repaired, or asked in another place? The thread does not tell.
    """
    spoke = [fact for fact in facts if isinstance(fact, Known)]
    weighty = [f for f in spoke if f.value.error or f.value.gpus or f.value.device_errors] or spoke
    last = weighty[-1]
    if _trouble(last.value):
        return last if last.value.error else _filled(last, [last])
    trouble = next((_trouble(fact.value) for fact in weighty if _trouble(fact.value)), "")
    if trouble:
        detail = f"`{trouble[:300]}`, and no trouble in another run: which of them is now is not told"
        return Absent(reason="unreadable", origin=last.origin, detail=detail)
    return _filled(last, spoke)


def _trouble(report: GpuReport) -> str:
    return report.error or next(iter(report.device_errors), "")


def _filled(best: Known[GpuReport], spoke: list[Known[GpuReport]]) -> Fact[GpuReport]:
    """A report with what the other runs know besides."""
    drivers = (fact.value.driver_version for fact in spoke)
    cudas = (fact.value.cuda_driver_version for fact in spoke)
    report = replace(
        best.value,
        driver_version=best.value.driver_version or next((v for v in drivers if v is not None), None),
        cuda_driver_version=best.value.cuda_driver_version or next((v for v in cudas if v is not None), None),
        device_errors=tuple(dict.fromkeys(error for fact in spoke for error in fact.value.device_errors)),
    )
    return Known(value=report, origin=best.origin)


def _by_reading(evidence: Evidence, reading: Reading) -> Fact[GpuReport]:
    if not reading.has_data:
        return absent(reading, evidence.stderr(reading).strip()[:300])
    said = f"{reading.text[:100_000]}\n{evidence.stderr(reading)[:10_000]}"
    if reading.data.lstrip()[:1] == b"<":
        return _by_xml(reading, said)
    if is_smi_log(said):
        return _listed(reading, parse_smi_log(reading.text), said)
    if is_smi_table(said):
        return _listed(reading, parse_smi_table(reading.text), said)
    if is_smi_list(reading.text):
        return Known(value=parse_smi_list(reading.text), origin=reading.origin)
    return _by_text(reading, said)


def _listed(reading: Reading, root: Node, outside: str) -> Fact[GpuReport]:
    """A listing, as far as it goes: of one that was cut, the absence of a GPU is no answer."""
    report = _report(root, outside)
    attached = whole(_text(root, "attached_gpus"))
    told = len(root.all("gpu")) + len(device_failures(outside))
    is_cut = reading.status == "truncated" or (attached is not None and attached > told)
    if is_cut and not report.gpus and not report.device_errors:
        return absent(reading, "it ends before the first GPU")
    return Known(value=replace(report, is_complete=not is_cut), origin=reading.origin)


def _by_xml(reading: Reading, said: str) -> Fact[GpuReport]:
    # A failure on one GPU may follow the report on the others.
    report_xml, close, after = reading.data.lstrip().rpartition(b"</nvidia_smi_log>")
    try:
        root = parse_xml(report_xml + close or after)
    except XmlError as error:
        return absent(reading, f"its XML cannot be read: {error}")
    if root.name != "nvidia_smi_log":
        return absent(reading, f"a document `{root.name[:80]}`, not `nvidia_smi_log`")
    outside = said.rpartition("</nvidia_smi_log>")[2] if close else ""
    return _listed(reading, root, outside)


def _report(root: Node, outside: str) -> GpuReport:
    """A report that nvidia-smi finished; `outside` is what it said apart from it."""
    rows = root.all("gpu")[:_GPUS_MAX]
    return GpuReport(
        driver_version=dotted(_text(root, "driver_version")),
        cuda_driver_version=dotted(_text(root, "cuda_version")),
        gpus=tuple(_gpu(number, node) for number, node in enumerate(rows) if not is_broken(node)),
        device_errors=tuple(dict.fromkeys((*broken_rows(rows), *device_failures(outside)))),
    )


def _by_text(reading: Reading, said: str) -> Fact[GpuReport]:
    """Error texts, and the table that plain `nvidia-smi` prints, whose head names three versions."""
    failure, lost = failure_in(said), device_failures(said)
    driver = re.search(r"Driver Version\s*: *([0-9.]{3,30})", said)
    cuda = re.search(r"CUDA (?:UMD )?Version\s*: *([0-9.]{3,10})", said)
    if not failure and not lost and driver is None:
        if not reading.rc or reading.status == "truncated":
            return absent(reading, f"no report and no known error: {line_of(reading)[:200]}")
        error = line_of(reading)[:300] or f"exit status {reading.rc} without a word"
    else:
        error = failure
    report = GpuReport(
        error=error,
        error_code=code_of(error) or reading.rc or None,
        driver_version=dotted(driver.group(1)) if driver is not None else None,
        library_version=_library_version(said),
        cuda_driver_version=dotted(cuda.group(1)) if cuda is not None else None,
        device_errors=lost,
    )
    return Known(value=report, origin=reading.origin)


def _library_version(said: str) -> Dotted | None:
    """May lack its last part (`580.173`); it is kept as printed."""
    found = re.search(r"NVML library version: *([0-9.]{3,30})", said)
    return dotted(found.group(1)) if found is not None else None


def _text(node: Node, *path: str) -> str | None:
    """The text at a path; None where the card has no such thing."""
    found = node.child(*path)
    text = found.text if found is not None else ""
    return (
        text[:300]
        if text
        and text not in ("N/A", "[N/A]", "Not Supported", "Requested functionality has been deprecated")
        else None
    )


def _flag(node: Node, *path: str) -> bool | None:
    text = (_text(node, *path) or "").lower()
    if text in ("enabled", "yes", "active", "on"):
        return True
    return False if text in ("disabled", "no", "not active", "off") else None


def _gpu(number: int, node: Node) -> Gpu:
    mode = (_text(node, "compute_mode") or "").lower().replace(" ", "_")
    virtualisation = (_text(node, "gpu_virtualization_mode", "virtualization_mode") or "").lower()
    return Gpu(
        index=number,
        pci_address=address_of(node),
        name=_text(node, "product_name"),
        uuid=_text(node, "uuid"),
        serial=_text(node, "serial"),
        performance_state=_text(node, "performance_state"),
        mig_mode=_flag(node, "mig_mode", "current_mig"),
        mig_mode_pending=_flag(node, "mig_mode", "pending_mig"),
        persistence_mode=_flag(node, "persistence_mode"),
        compute_mode=mode or None,
        virtualisation_mode=_VIRTUALISATION.get(virtualisation, virtualisation) or None,
        recovery_action=_recovery(node),
        gsp_firmware=_text(node, "gsp_firmware_version"),
        fabric_state=_snake(_text(node, "fabric", "state")),
        fabric_status=_fabric_status(node),
        process_count=_process_count(node),
        processes=_processes(node),
        utilisation_percent=whole(_text(node, "utilization", "gpu_util")),
        **_memory(node),
        **_clocks(node),
        **_power(node),
        **_link(node),
    )


def _snake(text: str | None) -> str | None:
    return None if text is None else re.sub(r"\W+", "_", text.lower()).strip("_")


def _fabric_status(node: Node) -> str | None:
    """`Success`, or an error; it means something only once the state is *completed*."""
    is_done = _snake(_text(node, "fabric", "state")) == "completed"
    return _snake(_text(node, "fabric", "status")) if is_done else None


def _recovery(node: Node) -> str | None:
    """`None`, `Reset`, `GPU Reset`, `Drain P2P`, …: this element says `None` for no action."""
    action = _snake(_text(node, "gpu_recovery_action"))
    return action.removeprefix("gpu_").removeprefix("node_") if action is not None else None


def _process_count(node: Node) -> int | None:
    processes = node.child("processes")
    return len(processes.all("process_info")) if processes is not None else None


def _processes(node: Node) -> tuple[GpuProcess, ...] | None:
    """None where the element is not there, or says that the driver or the user may not tell."""
    processes = node.child("processes")
    if processes is None or processes.text:
        return None
    found = []
    for info in processes.all("process_info")[:_PROCESSES_MAX]:
        pid = whole(_text(info, "pid"))
        if pid is not None and pid >= 0:
            name = _text(info, "process_name") or ""
            found.append(GpuProcess(pid=pid, name=name, memory_bytes=_mebibytes(info, "used_memory")))
    return tuple(found)


def _mebibytes(node: Node, *path: str) -> int | None:
    size = whole(_text(node, *path))
    return None if size is None else size * _MIB


def _memory(node: Node) -> dict[str, Any]:
    return {
        "memory_bytes": _mebibytes(node, "fb_memory_usage", "total"),
        "memory_used_bytes": _mebibytes(node, "fb_memory_usage", "used"),
        "ecc_mode": _flag(node, "ecc_mode", "current_ecc"),
        "ecc_mode_pending": _flag(node, "ecc_mode", "pending_ecc"),
        "ecc_uncorrected_volatile": _ecc(node, "volatile", "uncorrectable", "double_bit"),
        "ecc_uncorrected_aggregate": _ecc(node, "aggregate", "uncorrectable", "double_bit"),
        "ecc_corrected_aggregate": _ecc(node, "aggregate", "_correctable", "single_bit"),
        "remapped_rows_correctable": whole(_text(node, "remapped_rows", "remapped_row_corr")),
        "remapped_rows_uncorrectable": whole(_text(node, "remapped_rows", "remapped_row_unc")),
        "remap_pending": _flag(node, "remapped_rows", "remapped_row_pending"),
        "remap_failure": _flag(node, "remapped_rows", "remapped_row_failure"),
        "retired_pages_pending": _retired(node),
    }


def _ecc(node: Node, counter: str, word: str, legacy: str) -> int | None:
    """A sum over memories (`sram_uncorrectable_parity`, `dram_correctable`, …); Volta has a total instead."""
    rows = node.child("ecc_errors", counter)
    if rows is None:
        return None
    total = whole(_text(rows, legacy, "total"))
    counts = [whole(child.text) for child in rows.children if word in child.name]
    known = [count for count in counts if count is not None]
    return sum(known) if known else total


def _retired(node: Node) -> bool | None:
    pending = _flag(node, "retired_pages", "pending_retirement")
    return pending if pending is not None else _flag(node, "retired_pages", "pending_blacklist")


def _clocks(node: Node) -> dict[str, Any]:
    reasons = node.child("clocks_event_reasons") or node.child("clocks_throttle_reasons")
    # As text, two reasons stand below `HW Slowdown`, whose parts they are.
    nested = [r for part in reasons.children for r in (part, *part.children)] if reasons is not None else []
    # Where the platform does not tell (`N/A`), no reason is said to be there or not.
    is_told = any(r.text in ("Active", "Not Active") for r in nested)
    limits = tuple(limit_of_label(r.name) for r in nested if r.text == "Active")
    return {
        "temperature_c": whole(_text(node, "temperature", "gpu_temp")),
        "temperature_slowdown_c": whole(_text(node, "temperature", "gpu_temp_slow_threshold")),
        "temperature_margin_c": whole(_text(node, "temperature", "gpu_temp_tlimit")),
        "clock_sm_mhz": whole(_text(node, "clocks", "sm_clock")),
        "clock_sm_max_mhz": whole(_text(node, "max_clocks", "sm_clock")),
        "clock_memory_mhz": whole(_text(node, "clocks", "mem_clock")),
        "clock_limits": limits if is_told else None,
    }


def _power(node: Node) -> dict[str, Any]:
    """The element was renamed with the 530 branch, the readings with 535, 545 and 560."""
    readings = node.child("gpu_power_readings") or node.child("power_readings") or node
    draw = ("instant_power_draw", "power_draw", "average_power_draw")
    limit = ("current_power_limit", "enforced_power_limit", "power_limit")
    return {
        "power_w": next(
            (w for w in (fraction(_text(readings, name)) for name in draw) if w is not None), None
        ),
        "power_limit_w": next(
            (w for w in (fraction(_text(readings, name)) for name in limit) if w is not None), None
        ),
        "power_limit_default_w": fraction(_text(readings, "default_power_limit")),
        "power_limit_max_w": fraction(_text(readings, "max_power_limit")),
    }


def _link(node: Node) -> dict[str, Any]:
    info = ("pci", "pci_gpu_link_info")
    return {
        "link_generation": whole(_text(node, *info, "pcie_gen", "current_link_gen")),
        "link_generation_max": whole(_text(node, *info, "pcie_gen", "max_link_gen")),
        "link_width": whole(_text(node, *info, "link_widths", "current_link_width")),
        "link_width_max": whole(_text(node, *info, "link_widths", "max_link_width")),
        "pcie_replays": whole(_text(node, "pci", "replay_counter")),
    }
