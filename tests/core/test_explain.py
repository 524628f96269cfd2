"""Ranking: specific before general, facts before text, what is ruled out said, harmless lines no faults."""

from __future__ import annotations

import pytest

from doctor.core.causes import is_of_environments
from doctor.core.check import Case
from doctor.core.explain import ExplainReport, explain
from doctor.core.logline import log_lines
from doctor.core.signatures import find_hits
from doctor.core.versions import Dotted
from doctor.edition.load import load_matrix

from .environments import scoped
from .hosts import gpu, healthy

MATRIX = load_matrix()
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


def said(text: str, **fields) -> ExplainReport:
    lines = log_lines(text)
    return explain(MATRIX, find_hits(MATRIX.edition.signatures, lines), lines=len(lines), **fields)


def ids(text: str, **fields) -> list[str]:
    return [named.id for named in said(text, **fields).causes]


def on(host) -> tuple[Case, ...]:
    return (Case(host=host, matrix=MATRIX),)


SPECIFIC = {
    "no devices": "No devices were found\n{}",
    "engine core": "RuntimeError: Engine core initialization failed. See root cause above.\n{}",
    "unknown error": "CUDA unknown error - this may be due to an incorrectly set up environment\n{}",
    "NCCL timeout": "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)\n{}",
    "hook": "OCI runtime create failed: error running hook #0: nvidia\n{}",
}


@pytest.mark.parametrize("name", SPECIFIC)
@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)", "firmware.bar_or_above4g"),
        (
            "GPU does not have the necessary power cables connected.",
            "gpu.power_delivery",
        ),
        (
            "ImportError: libcudart.so.13: cannot open shared object file",
            "cuda.runtime_lib_missing",
        ),
    ],
)
def test_a_text_that_follows_from_many_causes_never_beats_one_that_speaks_of_one(name, line, cause):
    assert ids(SPECIFIC[name].format(line))[0] == cause
    assert ids(SPECIFIC[name].format(line).replace("{}", "")).count(cause) == 1


def test_many_general_texts_do_not_add_up():
    general = "\n".join(text.format("") for text in SPECIFIC.values())
    assert all(named.confidence == "possible" for named in said(general).causes)


def test_a_general_text_that_one_of_its_causes_explains_speaks_for_no_other():
    general = (
        "[TRT] [E] 4: [runtime.cpp::deserializeCudaEngine::65] Error Code 4: Internal Error "
        "(Engine deserialization failed.)"
    )
    tag = "Version tag does not match. Note: Current Version: 236, Serialized Engine Version: 237"
    assert {"trt.engine_sm_mismatch", "trt.not_an_engine"} <= set(ids(general))
    assert set(ids(f"{tag}\n{general}")) == {"trt.version_conflict", "trt.engine_version_mismatch"}


def test_the_same_message_many_times_is_one_sign():
    once, often = said(MISMATCH).causes[0], said("\n".join([MISMATCH] * 50)).causes[0]
    assert often.score == once.score
    assert often.matched[0].count == 50


def test_a_second_message_makes_a_cause_likelier():
    alone = said("No CUDA kernel\nError 804: forward compatibility was attempted on non supported HW").causes[
        0
    ]
    both = said(f"{MISMATCH}\nNVRM: API mismatch: the client has the version 550.107.02, but").causes[0]
    assert alone.score < both.score <= 1


def test_a_cause_that_is_false_on_the_host_is_ruled_out_and_said_so():
    report = said(MISMATCH, cases=on(healthy()), host="there")
    assert "driver.userspace_kernel_mismatch" not in [n.id for n in report.causes]
    out = {one.id: one.because for one in report.ruled_out}
    assert any("userspace differs" in text for text in out["driver.userspace_kernel_mismatch"])
    assert report.decided_by == "host"
    assert report.exit_code == 3


def test_a_cause_that_holds_on_the_host_comes_first_with_its_facts():
    text = "CUDA error: uncorrectable ECC error encountered"
    assert ids(text)[0] != "gpu.row_remap_failure"
    sick = gpu(healthy(), 0, remap_failure=True)
    report = said("Xid (PCI:0000:41:00): 48, pid=1, DBE", cases=on(sick))
    assert report.causes[0].id == "gpu.row_remap_failure"
    assert report.causes[0].confidence == "strong"
    assert report.causes[0].because
    assert report.causes[0].deciding_facts == ()


def test_a_host_does_not_rule_out_what_no_fact_decides():
    text = "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3)."
    assert ids(text, cases=on(healthy()))[0] == "vllm.tp_indivisible"


def test_what_is_open_says_what_would_decide():
    named = said("Error 802: system not yet initialized").causes[0]
    assert named.confidence != "strong"
    assert named.deciding_facts


HARMLESS = {
    "an idle link": ("LnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)", "pcie.idle_downshift_normal"),
    "Fabric Manager without switches": (
        "Detected Pre-NVL5 system\nfailed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
        "fabric.not_applicable",
    ),
    "a program that was killed": (
        "NVRM: Xid (PCI:0000:21:00): 43, pid=4411, name=python3, Ch 00000008",
        "healthy",
    ),
    "persistence mode": ("Persistence Mode                  : Disabled", "healthy"),
    "a tainted kernel": ("nvidia: loading out-of-tree module taints kernel.", "healthy"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_lines_are_no_faults(name):
    text, cause = HARMLESS[name]
    report = said(text)
    assert report.causes[0].id == cause
    assert report.causes[0].is_harmless
    assert not [named for named in report.causes if not named.is_harmless and named.confidence != "possible"]


def test_a_fault_beside_harmless_lines_is_the_cause():
    text = "nvidia: loading out-of-tree module taints kernel.\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)"
    assert ids(text)[0] == "firmware.bar_or_above4g"


def test_the_same_words_mean_a_fault_where_a_second_fact_says_so():
    text = "failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    assert ids(text)[0] == "fabric.not_applicable"
    assert ids(f"Error 802: system not yet initialized\n{text}")[0] == "fabric.nvlink5_prereq_missing"


def test_nothing_known_is_exit_3_and_no_cause():
    report = said("the quick brown fox")
    assert (report.causes, report.exit_code) == ((), 3)


def test_facts_of_the_text_are_told():
    report = said("The NVIDIA driver on your system is too old (found version 12080).")
    assert ("cuda", "12080") in [(fact.name, fact.value) for fact in report.facts]


def test_no_remedy_switches_a_protection_off():
    for row in MATRIX.edition.causes:
        words = " ".join(" ".join(argv) for argv in (row.remedy.commands if row.remedy else ()))
        assert "setenforce 0" not in words
        assert "--no-gpg-check" not in words
        assert "disable-validation" not in words


# --- environments ---------------------------------------------------------------------------------

NO_KERNEL_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def beside(*environments) -> tuple[Case, ...]:
    """The healthy machine and environments on it, each judged on that machine."""
    hosts = (healthy(), *environments)
    return tuple(
        Case(host=host, matrix=MATRIX, others=tuple(h for h in hosts if h is not host)) for host in hosts
    )


def test_a_torch_that_has_the_code_is_not_said_to_lack_it():
    """The host itself has no torch to speak of: its environments say what is in them."""
    report = said(NO_KERNEL_IMAGE, cases=beside(scoped()))
    (out,) = [named for named in report.causes if named.id == "torch.arch_not_in_build"]
    # Another environment, in an image that nobody looked into, may lack it all the same.
    assert out.confidence == "possible"
    assert out.deciding_facts[0] == "in which environment it was said"
    assert out.deciding_facts[1].startswith(
        "venv:/opt/vllm: not so: torch without kernels: torch 2.13.0+cu130 has code"
    )


def test_what_a_program_says_by_itself_outranks_what_its_files_tell():
    text = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
    assert ids(text, cases=beside(scoped()))[0] == "vllm.jit_nvcc_missing"


def test_one_environment_that_lacks_it_is_enough():
    old = scoped("venv:/opt/old", torch="2.6.0+cu124", torch_cuda=Dotted("12.4"), packages={"torch": "2.6.0"})
    cards = Case(
        host=gpu(gpu(healthy(), compute_capability="12.0"), 1, compute_capability="12.0"), matrix=MATRIX
    )
    hosts = (cards.host, scoped(), old)
    cases = tuple(Case(host=h, matrix=MATRIX, others=tuple(o for o in hosts if o is not h)) for h in hosts)
    named = {one.id: one for one in said(NO_KERNEL_IMAGE, cases=cases).causes}
    assert named["torch.arch_not_in_build"].confidence == "strong"


def test_without_an_environment_nobody_can_say():
    named = {one.id: one for one in said(NO_KERNEL_IMAGE, cases=on(healthy())).causes}
    assert named["torch.arch_not_in_build"].confidence == "likely"


def test_what_a_host_can_have_as_well_is_not_left_to_environments():
    """A toolkit that is newer than the driver is a fault of the host, whatever environments hold."""
    rows = {row.id: row for row in MATRIX.edition.causes}
    assert is_of_environments(rows["torch.arch_not_in_build"])
    assert not is_of_environments(rows["cuda.driver_too_old_for_runtime"])
    assert not is_of_environments(rows["driver.userspace_kernel_mismatch"])
