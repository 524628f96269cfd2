"""The checks of the system around the GPU: a card, the collection, the witnesses, room, the caller."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.finding import Status
from doctor.core.host import Collection, Filesystem, GpuReport, Host, Resources, StuckItem
from tests.core.hosts import (
    DRIVER,
    GIB,
    MIB,
    NOT_THERE,
    OLD_DRIVER,
    REASONS,
    answer,
    at,
    devices,
    expect,
    failing_probe,
    findings,
    having,
    healthy,
    in_container,
    in_wsl2,
    jetson,
    lost_gpu,
    no_driver,
    pci_device,
    put,
    said,
    without,
    without_module,
    working_probe,
)

THIRD = "0000:01:00.0"
NO_CARD = put(no_driver(), "pci", ())
ASKED_IN_VAIN = having(in_wsl2(), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE})

NVIDIA_GPU: dict[str, tuple[Host, Status, str]] = {
    "on the bus": (healthy(), "pass", "2 on the PCI bus"),
    "the bus is hidden, the driver lists GPUs": (without(healthy(), ["pci"], "denied"), "pass", "lists 2"),
    "the bus shows none, the driver lists GPUs": (put(healthy(), "pci", ()), "pass", "lists 2"),
    "none": (NO_CARD, "fail", "holds no NVIDIA GPU"),
    "only a sound function and a bridge": (
        put(
            no_driver(),
            "pci",
            (
                pci_device("0000:01:00.1", "10de:22ba", class_code="040300", driver="snd_hda_intel"),
                pci_device("0000:c1:00.0", "10de:22a3", class_code="068000", driver=""),
            ),
        ),
        "fail",
        "holds no NVIDIA GPU",
    ),
    "a Jetson": (jetson(), "pass", "part of the chip"),
    "bus not read, the kernel refused one": (
        said(without(no_driver(), ["pci"]), ("legacy_gpu", f"NVRM: The GPU {THIRD} is supported", THIRD)),
        "pass",
        THIRD,
    ),
    "bus not read, driver silent": (
        without(no_driver(), ["pci"], "unreadable"),
        "unknown",
        "could not be read",
    ),
    "all handed to virtual machines": (devices(no_driver(), driver="vfio-pci"), "fail", "vfio-pci"),
    "under WSL2": (in_wsl2(), "pass", "lists 1"),
    "under WSL2, no adapter": (ASKED_IN_VAIN, "fail", "Windows hands no NVIDIA adapter"),
    "under WSL2, driver not asked": (
        without(in_wsl2(), ["driver.nvml", "driver.smi"], "timeout"),
        "unknown",
        "only the driver can tell",
    ),
    "in a container": (in_container(), "pass", "2 on the PCI bus"),
}


@pytest.mark.parametrize("name", NVIDIA_GPU)
def test_nvidia_gpu(name: str) -> None:
    host, status, found = NVIDIA_GPU[name]
    expect(host, "system.nvidia_gpu", status, "", found)


def test_a_bus_that_was_not_read_is_unknown_and_an_empty_one_is_not_ready() -> None:
    assert answer(NO_CARD).exit_code == 1
    assert answer(without(no_driver(), ["pci"], "unreadable")).exit_code == 3


def test_what_did_not_answer_is_named_with_where_it_waits() -> None:
    stuck = StuckItem(key="nvml", pid=4711, state="D", wchan="os_acquire_rwlock_write", waited_s=15.0)
    host = put(healthy(), "collection", Collection(stuck=(stuck, StuckItem(key="command:nvidia-smi-q-x"))))
    expect(
        host, "system.collection", "unknown", "nvml", "pid 4711, state D, waiting in os_acquire_rwlock_write"
    )
    expect(host, "system.collection", "unknown", "command:nvidia-smi-q-x", "no answer")
    expect(healthy(), "system.collection", "pass", "", "no item was stuck")


def test_a_report_that_does_not_say_how_it_was_taken_answered_in_no_time() -> None:
    expect(PASTED, "system.collection", "skip", "", "does not say")


def smi(**fields: object) -> Host:
    return put(healthy(), "driver.smi", msgspec.structs.replace(at(healthy(), "driver.smi").value, **fields))


WITNESSES: dict[str, tuple[Host, Status, str, str]] = {
    "agree": (healthy(), "pass", "", "driver 580.178.04 by 3 witnesses"),
    "two of them": (without(healthy(), ["driver.smi"]), "pass", "", "2 witnesses"),
    "one of them": (without(healthy(), ["driver.smi", "driver.nvml"]), "skip", "", "fewer than two"),
    "disagree": (smi(driver_version=OLD_DRIVER), "warn", "", "nvidia-smi says 580.95.05"),
    "count differently": (
        smi(gpus=at(healthy(), "driver.smi").value.gpus[:1]),
        "warn",
        "gpu count",
        "NVML lists 2",
    ),
    "one of them, and the others did not answer": (
        without(healthy(), ["driver.smi", "driver.nvml"], "timeout"),
        "unknown",
        "",
        "did not answer in time",
    ),
    "module not loaded": (without_module(healthy()), "skip", "", "not loaded"),
    "in a container": (in_container(), "pass", "", "3 witnesses"),
    "under WSL2": (put(in_wsl2(), "kernel.modules", NOT_THERE), "pass", "", "581.57"),
}


@pytest.mark.parametrize("name", WITNESSES)
def test_witnesses(name: str) -> None:
    host, status, subject, found = WITNESSES[name]
    expect(host, "system.witnesses", status, subject, found)


@pytest.mark.parametrize(
    "host",
    [
        smi(gpus=()),
        smi(gpus=(), device_errors=("Unable to determine the device handle for GPU1: GPU is lost",)),
        put(healthy(), "driver.smi", GpuReport(error="No devices were found", driver_version=DRIVER)),
    ],
    ids=["the plain table", "one is lost", "an error"],
)
def test_a_witness_that_lists_none_is_not_counted(host: Host) -> None:
    assert [f.subject for f in findings(host, "system.witnesses")] == [""]


def room(*places: tuple[str, int, int, str]) -> Host:
    systems = tuple(Filesystem(path=p, total_bytes=t, free_bytes=f, kind=k) for p, t, f, k in places)
    return put(
        healthy(),
        "system.resources",
        Resources(memory_bytes=1, memory_available_bytes=1, filesystems=systems),
    )


ROOT = ("/", 100 * GIB, 50 * GIB, "ext4")

ROOM: dict[str, tuple[Host, Status, str, str]] = {
    "enough": (healthy(), "pass", "", ""),
    "full": (room(("/", 100 * GIB, 200 * MIB, "ext4")), "warn", "/", "200 MiB free"),
    "a snap is full by design": (room(ROOT, ("/snap/ollama/1", 2 * GIB, 0, "squashfs")), "pass", "", ""),
    "a boot partition holds a few kernels": (
        room(ROOT, ("/boot", 2 * GIB, 700 * MIB, "ext4")),
        "pass",
        "",
        "",
    ),
    "too small to be meant": (room(ROOT, ("/run", 500 * MIB, 0, "tmpfs")), "pass", "", ""),
    "none measured": (room(), "skip", "", "no file system"),
    "known not to be there": (put(healthy(), "system.resources", NOT_THERE), "skip", "", "no file system"),
}


@pytest.mark.parametrize("name", ROOM)
def test_disk_space(name: str) -> None:
    host, status, subject, found = ROOM[name]
    expect(host, "system.disk_space", status, subject, found)


@pytest.mark.parametrize("reason", REASONS)
def test_room_not_measured(reason: str) -> None:
    expect(without(healthy(), ["system.resources"], reason), "system.disk_space", "unknown")  # type: ignore[arg-type]


def called_with(path: str, **facts: object) -> Host:
    host = put(healthy(), "system.environment", {"LD_LIBRARY_PATH": path})
    return having(host, {f"cuda.{name}": value for name, value in facts.items()})


OTHER = working_probe(library_path="/opt/nv/lib/libcuda.so.1")

#: A report that somebody pasted, which says nothing of who collected it and with which variables.
PASTED = put(without(healthy(), ["cuda.probe_caller"]), "collection", Collection())

CALLER: dict[str, tuple[Host, Status, str]] = {
    "nobody asked": (PASTED, "skip", "not asked"),
    "the caller has other variables": (
        put(PASTED, "system.environment", {"PATH": "/usr/bin"}),
        "pass",
        "is not set",
    ),
    "not set": (healthy(), "pass", "is not set"),
    "set, the same libcuda": (called_with("/opt/lib"), "pass", "changes nothing"),
    "set, another libcuda": (called_with("/opt/nv/lib", probe_caller=OTHER), "pass", "puts /opt/nv/lib"),
    "set, the only libcuda": (
        called_with("/opt/nv/lib", probe=NOT_THERE, probe_caller=OTHER),
        "pass",
        "through LD_LIBRARY_PATH only",
    ),
    "set, not asked": (without(called_with("/opt/lib"), ["cuda.probe_caller"]), "unknown", "not asked"),
    "set, no answer": (
        without(called_with("/opt/lib"), ["cuda.probe_caller"], "timeout"),
        "unknown",
        "not asked",
    ),
}


@pytest.mark.parametrize("name", CALLER)
def test_caller_paths(name: str) -> None:
    host, status, found = CALLER[name]
    expect(host, "system.caller_paths", status, "", found)


def test_witnesses_of_a_lost_gpu_agree_on_what_is_left() -> None:
    expect(lost_gpu(healthy()), "system.witnesses", "pass", "", "3 witnesses")


def test_on_jetson_cuinit_decides_and_nothing_of_a_desktop_driver_is_looked_for() -> None:
    report = answer(jetson())
    assert (report.verdict, report.causes, report.advice) == ("ready", (), ())
    status = {f.id: f.status for f in report.findings}
    desktop = ("driver.module_loaded", "driver.nvml", "driver.uvm", "driver.device_nodes", "kernel.headers")
    assert {check: status[check] for check in desktop} == dict.fromkeys(desktop, "skip")
    broken = answer(put(jetson(), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN")))
    assert (broken.verdict, [c.id for c in broken.causes]) == ("not_ready", ["unknown"])
    silent = answer(without(jetson(), ["cuda.probe"], "timeout"))
    assert silent.verdict == "unknown"
