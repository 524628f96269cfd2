"""What nvidia-smi's own words tell: codes, GPUs it cannot read, cut listings, threads, CUDA by its words."""

from __future__ import annotations

import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Absent, GpuReport, Known
from doctor.evidence.foreign import read_foreign
from doctor.facts.cuda import read_cuda
from doctor.facts.smi import read_smi
from tests.facts.evidence import evidence

HEAD = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: {cuda}     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
"""
ROW = """\
|   {i}  {name}        Off |   {bus} Off |                  N/A |
| {second} |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""
FINE = "30%   35C    P8             22W /  350W |       1MiB /  24576MiB"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.120\n"
BUS = ("00000000:01:00.0", "00000000:41:00.0")


def table(*seconds: str, name: str = "NVIDIA GeForce RTX 3090", cuda: str = "12.4") -> str:
    rows = [ROW.format(i=i, name=name, bus=BUS[i], second=s) for i, s in enumerate(seconds)]
    return HEAD.format(cuda=cuda) + "".join(rows)


def of_table(text: str) -> GpuReport:
    fact = read_smi(evidence(commands={("nvidia-smi",): (0, text)}))
    assert isinstance(fact, Known)
    return fact.value


def pasted(text: str) -> Known[GpuReport] | Absent:
    return read_smi(read_foreign(text.encode()))


def cut(argv: tuple[str, ...], text: str) -> Known[GpuReport] | Absent:
    item = Item(key="command:nvidia-smi", status="truncated", path="commands/nvidia-smi", argv=argv)
    return read_smi(Evidence(Meta(items=(item,)), {"commands/nvidia-smi": text.encode()}))


# --- codes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (MISMATCH, 18),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4),
        ("Failed to initialize NVML: Unknown Error\n", 999),
        ("Failed to initialize NVML: Driver Not Loaded\n", 9),
        ("No devices were found\n", 6),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", 12),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9),
    ],
)
def test_a_pasted_sentence_has_the_code_of_its_exit(text: str, code: int):
    fact = pasted(text)
    assert isinstance(fact, Known)
    assert (fact.value.error_code, fact.value.error) == (code, text.splitlines()[0])


# --- GPUs it cannot read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (
            "ERR!   ERR! ERR!           ERR! /  350W |      11MiB /  24576MiB",
            "errors stand in place of its values",
        ),
        (
            "30%   ERR!   P8             22W /  350W |       1MiB /  24576MiB",
            "errors stand in place of its values",
        ),
        (
            "30%   35C    ERR!           22W /  350W |       1MiB /  24576MiB",
            "errors stand in place of its values",
        ),
        (
            "30%   35C    P8             22W /  350W |       ERR! /  24576MiB",
            "errors stand in place of its values",
        ),
        ("ERR!  ERR! ERR!    ERR! / ERR! |GPU is lost           ", "GPU is lost"),
    ],
)
def test_a_row_of_errors_is_no_gpu_that_works(second: str, error: str):
    report = of_table(table(FINE, second))
    assert [gpu.pci_address for gpu in report.gpus] == ["0000:01:00.0"]
    assert report.device_errors == (f"0000:41:00.0: {error}",)
    assert report.is_complete


@pytest.mark.parametrize(
    "second",
    [
        "ERR!   35C    P8             22W /  350W |       1MiB /  24576MiB",
        "30%   35C    P8            ERR! /  350W |       1MiB /  24576MiB",
        "N/A   N/A  N/A               N/A /  N/A | Not Supported         ",
    ],
)
def test_a_fan_or_a_power_sensor_alone_is_no_lost_gpu(second: str):
    report = of_table(table(FINE, second))
    assert (len(report.gpus), report.device_errors) == (2, ())


def test_a_lost_gpu_without_a_name():
    report = of_table(table(FINE) + ROW.format(i=1, name="ERR!", bus=BUS[1], second=FINE))
    assert [gpu.index for gpu in report.gpus] == [0]
    assert report.device_errors == ("0000:41:00.0: errors stand in place of its values",)


def test_a_gpu_of_a_chip_has_no_address():
    text = table(FINE).replace("00000000:01:00.0 Off", "N/A              N/A").replace("RTX 3090", "(nvgpu)")
    (gpu,) = of_table(text).gpus
    assert (gpu.pci_address, gpu.name) == ("", "NVIDIA GeForce (nvgpu)")


# --- listings that are no whole -----------------------------------------------------------------------


LOG = "==============NVSMI LOG==============\n\nDriver Version : 550.54.15\nAttached GPUs : {}\n"
LOG_GPU = "GPU 00000000:{}:00.0\n    Product Name : NVIDIA A100\n"


@pytest.mark.parametrize(
    ("attached", "rows", "after", "is_complete"),
    [
        (2, ("01", "41"), "", True),
        (2, ("01",), "", False),
        (2, ("01",), "Unable to determine the device handle for GPU 0000:41:00.0: Unknown Error\n", True),
        (3, ("01",), "Unable to determine the device handle for GPU 0000:41:00.0: Unknown Error\n", False),
    ],
)
def test_fewer_rows_than_attached_is_a_part(
    attached: int, rows: tuple[str, ...], after: str, is_complete: bool
):
    text = LOG.format(attached) + "".join(map(LOG_GPU.format, rows)) + after
    report = read_smi(evidence(commands={("nvidia-smi", "-q"): (0, text)})).value
    assert (report.is_complete, len(report.gpus)) == (is_complete, len(rows))


def test_a_cut_listing_says_so():
    listed = cut(("nvidia-smi",), table(FINE))
    assert isinstance(listed, Known)
    assert (listed.value.is_complete, len(listed.value.gpus)) == (False, 1)
    before = cut(("nvidia-smi",), HEAD.format(cuda="12.4"))
    assert isinstance(before, Absent)
    assert before.detail == "it ends before the first GPU"
    assert isinstance(cut(("nvidia-smi",), "Fri Nov 27\n"), Absent)


@pytest.mark.parametrize(
    ("typed", "is_complete"),
    [
        ("nvidia-smi", True),
        ("sudo nvidia-smi", True),
        ("nvidia-smi -i 0", False),
        ("nvidia-smi --id=0", False),
        ("nvidia-smi | head -20", False),
    ],
)
def test_a_typed_option_says_that_it_is_a_part(typed: str, is_complete: bool):
    fact = pasted(f"me@box:~$ {typed}\n{table(FINE)}")
    assert isinstance(fact, Known)
    assert fact.value.is_complete is is_complete


# --- threads ----------------------------------------------------------------------------------------


XML = (
    "<?xml version='1.0' ?>\n<nvidia_smi_log>\n\t<driver_version>550.54.15</driver_version>\n"
    "\t<gpu id='00000000:01:00.0'>\n\t</gpu>\n</nvidia_smi_log>\n"
)


@pytest.mark.parametrize("before", [table(FINE), XML], ids=["table", "xml"])
def test_the_later_failure_counts(before: str):
    fact = pasted(f"Fine at first:\n\n```\n{before}```\nand next morning\n```\n{MISMATCH}```\n")
    assert isinstance(fact, Known)
    assert (fact.value.error_code, str(fact.value.library_version), fact.value.gpus) == (18, "550.120", ())


def test_the_later_loss_counts():
    lost = table(FINE, "ERR!  ERR! ERR!    ERR! / ERR! |GPU is lost           ")
    fact = pasted(f"```\n{table(FINE, FINE)}```\nafter an hour\n```\n{lost}```\n")
    assert isinstance(fact, Known)
    assert fact.value.device_errors == ("0000:41:00.0: GPU is lost",)
    assert [gpu.index for gpu in fact.value.gpus] == [0]


@pytest.mark.parametrize(
    "trouble",
    [MISMATCH, table(FINE, "ERR!  ERR! ERR!    ERR! / ERR! |GPU is lost           ")],
    ids=["mismatch", "lost"],
)
def test_trouble_and_then_none_stays_open(trouble: str):
    fact = pasted(f"```\n{trouble}```\nas root\n```\n{table(FINE, FINE)}```\n")
    assert isinstance(fact, Absent)
    assert fact.reason == "unreadable"
    assert "which of them is now is not told" in fact.detail


def test_two_runs_that_agree_are_one():
    fact = pasted(f"```\n{table(FINE)}```\nand\n```\n{table(FINE, FINE)}```\n")
    assert isinstance(fact, Known)
    assert len(fact.value.gpus) == 2


def test_questions_of_one_report_are_no_thread():
    lost = "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost. Reboot the system\n"
    runs = {("nvidia-smi", "--query"): (0, lost), ("nvidia-smi", "-q", "-d", "x"): (0, table(FINE))}
    report = read_smi(evidence(commands=runs)).value
    assert [gpu.index for gpu in report.gpus] == [0]
    assert report.device_errors == (f"0000:41:00.0: {lost.strip()}",)


# --- CUDA by its words ------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["N/A", "ERR!"])
def test_a_cuda_version_that_is_none_leaves_cuda_open(word: str):
    probe = read_cuda(read_foreign(table(FINE, cuda=word).encode())).probe
    assert isinstance(probe, Absent)
    assert (probe.reason, probe.origin) == ("failed", "command:nvidia-smi")
    assert f"`CUDA Version: {word}`" in probe.detail


def test_cuda_versions_and_a_probe_that_answered_leave_nothing_open():
    assert read_cuda(read_foreign(table(FINE).encode())).probe.reason == "not_collected"
    built = evidence(commands={("nvidia-smi",): (0, table(FINE, cuda="N/A"))}, cuinit={"result": 0})
    assert isinstance(read_cuda(built).probe, Known)


ENV = "PyTorch version: 2.6.0\nCUDA used to build PyTorch: {built}\nIs CUDA available: {available}\n{rest}"
TOO_OLD = (
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"
)


@pytest.mark.parametrize(
    ("built", "available", "rest", "reason"),
    [
        ("12.6", "False", "", "failed"),
        ("12.6", "False", TOO_OLD, "failed"),
        ("Could not collect", "False", TOO_OLD, "failed"),
        ("12.6", "True", "", "not_collected"),
        ("Could not collect", "False", "", "not_collected"),
        ("N/A", "False", "", "not_collected"),
    ],
)
def test_a_torch_without_cuda_leaves_cuda_open_if_it_was_built_for_it(
    built: str, available: str, rest: str, reason: str
):
    text = ENV.format(built=built, available=available, rest=rest)
    probe = read_cuda(read_foreign(text.encode())).probe
    assert isinstance(probe, Absent)
    assert probe.reason == reason
    assert ("too old" in probe.detail) == bool(rest and reason == "failed")


# --- nvidia-smi -L ----------------------------------------------------------------------------------

LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5d1b7a6c-1111-2222-3333-444455556666)
  MIG 1g.10gb     Device  0: (UUID: MIG-0f3c)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-5d1b7a6c-1111-2222-3333-444455556667)
"""


def test_the_list_names_gpus_and_says_nothing_of_where_they_sit():
    report = of_table(LIST)
    assert [(g.index, g.pci_address, g.name, g.mig_mode) for g in report.gpus] == [
        (0, "", "NVIDIA H100 80GB HBM3", True),
        (1, "", "NVIDIA H100 80GB HBM3", None),
    ]
    assert report.gpus[1].uuid == "GPU-5d1b7a6c-1111-2222-3333-444455556667"
    assert (report.error, report.is_complete, report.driver_version) == ("", False, None)


def test_beside_the_list_any_other_listing_tells_more():
    found = pasted(f"$ nvidia-smi -L\n{LIST}\n$ nvidia-smi\n{table(FINE)}")
    assert isinstance(found, Known)
    assert [g.pci_address for g in found.value.gpus] == ["0000:01:00.0"]
