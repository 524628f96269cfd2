"""Who uses a GPU now and how much, by both witnesses."""

from __future__ import annotations

import pytest

from doctor.core.host import Gpu, GpuProcess, Known
from doctor.facts.nvml import read_nvml
from doctor.facts.smi import read_smi
from tests.facts.evidence import evidence

SMI = ("nvidia-smi", "-q", "-x")
_MIB = 1024 * 1024


def by_nvml(**fields: object) -> Gpu:
    fact = read_nvml(evidence(nvml={"count": 1, "gpus": [{"index": 0, "errors": {}, **fields}]}))
    assert isinstance(fact, Known)
    return fact.value.gpus[0]


def by_smi(inner: str) -> Gpu:
    text = f'<nvidia_smi_log><gpu id="00000000:41:00.0">{inner}</gpu></nvidia_smi_log>'
    fact = read_smi(evidence(commands={SMI: (0, text)}))
    assert isinstance(fact, Known)
    return fact.value.gpus[0]


def test_processes_by_nvml():
    """As an H200 answered (580.159.04) while a process held a context."""
    gpu = by_nvml(
        compute_running_processes=[{"pid": 676, "process_name": "python3", "used_gpu_memory": 543162368}],
        graphics_running_processes=[{"pid": 12, "used_gpu_memory": None}, {"pid": 676, "used_gpu_memory": 5}],
        utilization_rates={"gpu": 37, "memory": 2},
    )
    assert gpu.processes == (
        GpuProcess(pid=676, name="python3", memory_bytes=543162368),
        GpuProcess(pid=12),
    )
    assert (gpu.process_count, gpu.utilisation_percent) == (1, 37)


def test_nobody_and_not_told():
    assert by_nvml(compute_running_processes=[]).processes == ()
    assert by_nvml().processes is None
    assert by_nvml().utilisation_percent is None
    assert by_nvml(utilization_rates={"gpu": 4000}).utilisation_percent is None


@pytest.mark.parametrize("pid", [-1, "7", None, 2**70, True])
def test_what_is_no_process(pid):
    assert by_nvml(compute_running_processes=[{"pid": pid}, 5]).processes == ()


def test_memory_that_nvml_cannot_count():
    """`NVML_VALUE_NOT_AVAILABLE` is all ones."""
    (user,) = by_nvml(compute_running_processes=[{"pid": 7, "used_gpu_memory": 2**64 - 1}]).processes
    assert user.memory_bytes is None


def test_processes_by_smi():
    gpu = by_smi(
        "<utilization><gpu_util>41 %</gpu_util></utilization><processes>"
        "<process_info><pid>676</pid><type>C</type>"
        "<process_name>python3</process_name><used_memory>518 MiB</used_memory></process_info>"
        "<process_info><pid>12</pid><type>G</type><process_name>/usr/lib/xorg/Xorg</process_name>"
        "<used_memory>N/A</used_memory></process_info></processes>"
    )
    assert gpu.processes == (
        GpuProcess(pid=676, name="python3", memory_bytes=518 * _MIB),
        GpuProcess(pid=12, name="/usr/lib/xorg/Xorg"),
    )
    assert gpu.utilisation_percent == 41


def test_smi_that_may_not_tell():
    assert by_smi("<processes>N/A</processes>").processes is None
    assert by_smi("<utilization><gpu_util>N/A</gpu_util></utilization>").utilisation_percent is None
    assert by_smi("<processes></processes>").processes == ()
    assert by_smi("").processes is None
