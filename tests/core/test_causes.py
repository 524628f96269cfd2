"""Root causes: for each row of the table a host on which it is the one, and one where it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.core.causes import LAYERS
from doctor.core.check import Case
from doctor.core.checks import CHECKS
from doctor.core.claims import evaluate
from doctor.core.finding import Cause
from doctor.core.host import Collection, Host, ModprobeLine
from doctor.core.judge import judge
from doctor.core.matrix import CauseRow, Matrix
from doctor.core.versions import Dotted
from tests.core.hosts import (
    DRIVER,
    FACTS,
    FIRST,
    GTX_1050_TI,
    NOT_THERE,
    OLD_DRIVER,
    OTHER_RELEASE,
    P40,
    RELEASE,
    RTX_5090,
    SECOND,
    answer,
    at,
    beside_a_driver_container,
    case_of,
    compat_library,
    device,
    devices,
    dkms_build,
    driver_packages,
    failing_probe,
    fallen,
    gpu,
    having,
    healthy,
    in_container,
    in_wsl2,
    installed_kernel,
    known_of,
    loaded_modules,
    lost_gpu,
    matrix,
    module_files,
    no_driver,
    nodes,
    package,
    packages_of,
    pci_device,
    put,
    reports,
    said,
    statuses,
    unloadable_probe,
    without,
    without_module,
    without_module_file,
    working_probe,
    wrong,
)
from tests.core.pair import Pair
from tests.core.pairs_container import PAIRS as OF_CONTAINERS
from tests.core.pairs_engine import PAIRS as OF_ENGINES
from tests.core.pairs_fabric import PAIRS as OF_FABRIC
from tests.core.pairs_machine import INTEGRATED, SLEPT, WRONG_FLAVOUR
from tests.core.pairs_machine import PAIRS as OF_MACHINE

NO_DEVICE = failing_probe(100, "CUDA_ERROR_NO_DEVICE")
UNKNOWN_ERROR = failing_probe(999, "CUDA_ERROR_UNKNOWN")
NO_DEVICES = {"error": "No devices were found", "error_code": 6, "gpus": ()}
UNLOADED = without_module(healthy())
UNBUILT = without_module_file(UNLOADED)
NO_MODULE = {"nvidia_modules": known_of(())}


def kernels(host: Host, *entries: tuple[str, dict[str, Any]]) -> Host:
    return put(
        host, "kernel.installed", tuple(installed_kernel(release, **fields) for release, fields in entries)
    )


def dead(host: Host) -> Host:
    """The module is loaded, and neither NVML nor CUDA finds a GPU."""
    return reports(put(host, "cuda.probe", NO_DEVICE), **NO_DEVICES)


def failed_build(text: str, host: Host = UNBUILT) -> Host:
    return put(host, "kernel.dkms", (dkms_build(state="failed", failure=text, log="/var/lib/dkms/make.log"),))


IGNORED = (
    f"NVRM: The NVIDIA GeForce GTX 1050 Ti GPU ({FIRST}) installed in this system is supported through the "
    "NVIDIA 580.xx Legacy drivers. The 595.71.05 NVIDIA driver will ignore this GPU."
)

# --- platform, hardware, firmware -----------------------------------------------------------------

NO_GPU = put(no_driver(), "pci", ())
GONE = ("fallen_off_bus", f"NVRM: GPU {SECOND}: GPU has fallen off the bus.", SECOND)
FALLEN = said(device(lost_gpu(healthy()), 1, is_responding=False), GONE, xids=fallen(SECOND))
UNMAPPED = (16 * 1024**2, 0, 0, 32 * 1024**2, 0, 0)
BAR_WORD = ("bar", f"NVRM: This PCI I/O region is invalid: BAR1 is 0M @ 0x0 (PCI:{FIRST})", FIRST)
BRIDGE_WORD = ("bar", "pcieport 0000:40:01.0: BAR 13: failed to assign [io size 0x1000]", "0000:40:01.0")
BOTH_UNMAPPED = devices(dead(healthy()), bar_bytes=UNMAPPED)
FIRMWARE_WORD = (
    "firmware_missing",
    f"nvidia {SECOND}: Direct firmware load for nvidia/580.178.04/gsp_ga10x.bin failed with error -2",
    SECOND,
)
NOT_READY = failing_probe(802, "CUDA_ERROR_SYSTEM_NOT_READY")
CLOSED_NODES = reports(
    having(
        healthy(),
        {
            "cuda.probe": NO_DEVICE,
            "driver.device_nodes": nodes("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", mode="0660"),
        },
    ),
    error="Insufficient Permissions",
    error_code=4,
    gpus=(),
)
GSP_WORD = ("gsp", "NVRM: GPU1 kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete")

# --- building and loading -------------------------------------------------------------------------

NO_HEADERS = kernels(UNLOADED, (RELEASE, {"has_headers": False, **NO_MODULE}))
OPTION = "gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"
API = "nv-drm.c:1: error: too few arguments to function 'drm_mode_config'"
OTHER_GCC = "gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0"
REFUSAL = ("module_signature_rejected", "Loading of module with unavailable key is rejected")
SECURE = {"kernel.secure_boot": "enabled", "kernel.lockdown": "integrity"}
SYMBOL = ("module_symbol", "nvidia: disagrees about version of symbol module_layout")
PEER_SYMBOL = ("module_symbol", "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)")
NOUVEAU = devices(put(UNLOADED, "kernel.modules", loaded_modules("nouveau")), driver="nouveau")
BLACKLIST = (
    ModprobeLine(file="/etc/modprobe.d/blacklist-nvidia.conf", directive="blacklist", module="nvidia"),
)

# --- the stack ------------------------------------------------------------------------------------

OPEN_ONLY = (
    "open_modules_required",
    f"NVRM: The NVIDIA GPU {FIRST} requires use of the NVIDIA open kernel modules.",
    FIRST,
)
CLOSED = put(healthy(), "driver.flavour", "proprietary")
MISMATCH = {
    "driver.kernel_version": OLD_DRIVER,
    "kernel.modules": loaded_modules("nvidia_uvm", "nvidia"),
    "cuda.probe": failing_probe(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
}
REFUSED = {"error": "Driver/library version mismatch", "error_code": 18, "gpus": (), "driver_version": None}
DIFFERING = reports(having(healthy(), MISMATCH), **REFUSED)
OLD_FILE = {"nvidia_modules": known_of(module_files(RELEASE, version=OLD_DRIVER))}
HALF = {"packages": packages_of(package("nvidia-dkms-580-open", state="half-configured"))}

R550, R595 = Dotted("550.163.01"), Dotted("595.104.02")
R595_FILE = {"nvidia_modules": known_of(module_files(RELEASE, version=R595))}
NO_UVM = put(put(healthy(), "kernel.modules", loaded_modules("nvidia")), "cuda.probe", UNKNOWN_ERROR)
WITHOUT_UVM_NODE = having(
    in_container(),
    {"driver.device_nodes": nodes("/dev/nvidiactl", "/dev/nvidia0"), "cuda.probe": UNKNOWN_ERROR},
)
HMM = put(healthy(), "cuda.probe", failing_probe(3, "CUDA_ERROR_NOT_INITIALIZED"))
COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so"


def shadowed(version: str, code: int) -> Host:
    probe = failing_probe(
        code, "CUDA_ERROR", library_path=f"{COMPAT}.{version}", library_version=Dotted(version)
    )
    return put(put(healthy(), "cuda.probe", probe), "kernel.modules", loaded_modules("nvidia"))


BARE = having(
    in_container(),
    {
        "driver.device_nodes": (),
        "driver.libraries": (),
        "driver.userspace_version": NOT_THERE,
        "driver.nvml": NOT_THERE,
        "driver.smi": NOT_THERE,
        "cuda.probe": unloadable_probe(),
    },
)
UPDATING = put(healthy(), "packages", driver_packages(automatic_updates=known_of(value=True)))

PAIRS: dict[str, Pair] = {
    **OF_ENGINES,
    **OF_CONTAINERS,
    **OF_FABRIC,
    **OF_MACHINE,
    "system.no_nvidia_gpu": Pair(NO_GPU, said(NO_GPU, GONE), "gpu.fallen_off_bus"),
    "container.wsl_no_nvidia_adapter": Pair(
        having(
            in_wsl2(), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE, "cuda.probe": unloadable_probe()}
        ),
        put(in_wsl2(), "cuda.probe", UNKNOWN_ERROR),
        "unknown",
    ),
    "driver.vfio_bound": Pair(
        devices(no_driver(), driver="vfio-pci"), device(healthy(), 1, driver="vfio-pci")
    ),
    "gpu.fallen_off_bus": Pair(FALLEN, said(healthy(), GONE, xids=fallen(SECOND))),
    "firmware.bar_or_above4g": Pair(
        said(BOTH_UNMAPPED, BAR_WORD), said(dead(healthy()), GSP_WORD, BRIDGE_WORD), "driver.gsp_boot_failure"
    ),
    "gpu.row_remap_failure": Pair(
        gpu(
            healthy(),
            remap_failure=True,
            remap_pending=True,
            ecc_uncorrected_volatile=1,
            recovery_action="reset",
        ),
        gpu(healthy(), remapped_rows_uncorrectable=2),
    ),
    "gpu.row_remap_pending": Pair(
        gpu(healthy(), remap_pending=True, ecc_uncorrected_volatile=1, recovery_action="drain_and_reset"),
        gpu(healthy(), remap_pending=True, remap_failure=True),
        "gpu.row_remap_failure",
    ),
    "gpu.retired_pages_pending": Pair(
        gpu(healthy(), retired_pages_pending=True, recovery_action="reset"),
        gpu(healthy(), retired_pages_pending=None),
    ),
    "gpu.thermal": Pair(
        gpu(healthy(), clock_limits=("hw_thermal_slowdown",)),
        gpu(healthy(), clock_limits=("sw_thermal_slowdown",)),
    ),
    "gpu.power_delivery": Pair(
        gpu(healthy(), clock_limits=("hw_power_brake_slowdown",)),
        gpu(healthy(), clock_limits=("sw_power_cap",)),
    ),
    "gpu.reset_required": Pair(
        gpu(healthy(), recovery_action="reset"),
        gpu(healthy(), recovery_action="reset", remap_pending=True),
        "gpu.row_remap_pending",
    ),
    "driver.not_installed": Pair(
        no_driver(),
        put(no_driver(), "kernel.dkms", (dkms_build(state="added", kernel=""),)),
        "driver.module_not_built_for_running_kernel",
    ),
    "driver.headers_missing": Pair(
        failed_build("Unable to find the kernel source tree", NO_HEADERS),
        kernels(healthy(), (RELEASE, {"has_headers": False})),
    ),
    "driver.compiler_missing": Pair(
        put(failed_build("/bin/sh: 1: gcc: not found"), "kernel.compiler_on_path", NOT_THERE),
        put(failed_build(API), "kernel.compiler_on_path", NOT_THERE),
        "driver.dkms_build_failed",
    ),
    "driver.compiler_mismatch": Pair(
        put(failed_build(OPTION), "kernel.compiler_on_path", OTHER_GCC),
        failed_build(OPTION),
        "driver.dkms_build_failed",
    ),
    "driver.dkms_build_failed": Pair(failed_build(API), failed_build(API, healthy())),
    "driver.module_not_built_for_running_kernel": Pair(
        kernels(put(UNLOADED, "kernel.dkms", NOT_THERE), (RELEASE, NO_MODULE), (OTHER_RELEASE, {})),
        kernels(UNLOADED, (RELEASE, {**NO_MODULE, "has_headers": False}), (OTHER_RELEASE, {})),
        "driver.headers_wrong_version",
    ),
    "driver.module_signature_rejected": Pair(
        said(having(UNLOADED, SECURE), REFUSAL),
        having(
            kernels(UNLOADED, (RELEASE, {"nvidia_modules": known_of(module_files(RELEASE, signer=""))})),
            {"kernel.secure_boot": "enabled", "kernel.module_options": BLACKLIST},
        ),
        "driver.module_blacklisted",
    ),
    "driver.symbol_mismatch": Pair(
        said(UNLOADED, SYMBOL), said(UNLOADED, PEER_SYMBOL), "driver.module_not_loaded"
    ),
    "driver.nouveau_bound": Pair(
        NOUVEAU, without_module_file(put(NOUVEAU, "kernel.dkms", NOT_THERE)), "driver.not_installed"
    ),
    "driver.module_blacklisted": Pair(
        put(UNLOADED, "kernel.module_options", BLACKLIST), put(healthy(), "kernel.module_options", BLACKLIST)
    ),
    "driver.module_not_loaded": Pair(
        UNLOADED, said(UNLOADED, ("other", "NVRM: a word that nobody knows")), "unknown"
    ),
    "driver.proprietary_on_open_only_gpu": Pair(
        said(devices(dead(CLOSED), device_id=RTX_5090), OPEN_ONLY), dead(CLOSED), "unknown"
    ),
    "driver.open_on_pre_gsp_gpu": Pair(
        devices(dead(healthy()), device_id=P40), devices(dead(CLOSED), device_id=P40), "unknown"
    ),
    "driver.gpu_dropped_by_branch": Pair(
        having(
            kernels(devices(dead(healthy()), device_id=P40), (RELEASE, R595_FILE)),
            {"driver.kernel_version": R595, "driver.userspace_version": R595},
        ),
        devices(CLOSED, device_id=P40),
    ),
    "driver.branch_too_old_for_gpu": Pair(
        having(
            devices(dead(healthy()), device_id=RTX_5090),
            {"driver.kernel_version": R550, "driver.userspace_version": R550, "cuda.toolkits": ()},
        ),
        devices(healthy(), device_id=RTX_5090),
    ),
    "driver.mixed_install_sources": Pair(
        having(kernels(DIFFERING, (RELEASE, OLD_FILE)), HALF),
        having(DIFFERING, HALF),
        "driver.userspace_kernel_mismatch",
    ),
    "driver.userspace_kernel_mismatch": Pair(
        kernels(DIFFERING, (RELEASE, OLD_FILE)), put(healthy(), "driver.userspace_version", OLD_DRIVER)
    ),
    "driver.gsp_boot_failure": Pair(
        said(dead(healthy()), GSP_WORD),
        said(healthy(), GSP_WORD),
    ),
    "driver.firmware_missing": Pair(
        said(dead(healthy()), FIRMWARE_WORD, GSP_WORD), said(healthy(), FIRMWARE_WORD, GSP_WORD)
    ),
    "driver.device_nodes_closed": Pair(
        put(CLOSED_NODES, "collection", Collection(root=False)), CLOSED_NODES, "unknown"
    ),
    "mig.no_instance": Pair(
        put(gpu(gpu(healthy(), mig_mode=True), 1, mig_mode=True), "cuda.probe", NO_DEVICE),
        gpu(gpu(healthy(), mig_mode=True), 1, mig_mode=True),
    ),
    "driver.userspace_missing": Pair(
        having(
            healthy(),
            {
                "driver.libraries": (),
                "driver.userspace_version": NOT_THERE,
                "driver.nvml": NOT_THERE,
                "driver.smi": NOT_THERE,
                "cuda.probe": unloadable_probe(),
            },
        ),
        put(healthy(), "cuda.probe", unloadable_probe("libcuda.so.1: file too short")),
        "unknown",
    ),
    "driver.uvm_not_ready": Pair(
        NO_UVM,
        shadowed("570.124.06", 803),
        "cuda.compat_lib_shadow",
    ),
    "driver.uvm_hmm_init_failure": Pair(
        HMM,
        put(
            HMM,
            "kernel.modules",
            (
                *loaded_modules("nvidia"),
                *[
                    msgspec.structs.replace(
                        loaded_modules("nvidia_uvm")[0], parameters={"uvm_disable_hmm": "Y"}
                    )
                ],
            ),
        ),
        "unknown",
    ),
    "cuda.compat_lib_shadow": Pair(
        shadowed("570.124.06", 803), shadowed("595.104.02", 804), "cuda.forward_compat_unsupported_gpu"
    ),
    "cuda.forward_compat_unsupported_gpu": Pair(
        shadowed("595.104.02", 804),
        put(
            healthy(),
            "cuda.probe",
            working_probe(library_path=f"{COMPAT}.595.104.02", library_version=Dotted("595.104.02")),
        ),
    ),
    "cuda.driver_too_old_for_runtime": Pair(
        having(
            healthy(),
            {"driver.kernel_version": R550, "driver.userspace_version": R550},
        ),
        having(
            devices(healthy(), device_id="10de:2330"),
            {
                "driver.kernel_version": R550,
                "driver.userspace_version": R550,
                "driver.libraries": (compat_library(DRIVER, is_default=False),),
            },
        ),
    ),
    "policy.driver_auto_upgrade_unfenced": Pair(UPDATING, healthy(), is_advice=True),
}
#: Named only for a goal with `policy=harden`: tests/core/checks/test_container.py has it.
UNDER_A_POLICY = {"container.toolkit_outdated"}
#: Named inside another cause, as its closer form.
REFINING = {
    "driver.reboot_pending": (DIFFERING, kernels(DIFFERING, (RELEASE, OLD_FILE))),
    "driver.uvm_lost_in_sleep": (SLEPT, NO_UVM),
    "container.uvm_nodes_missing": (WITHOUT_UVM_NODE, NO_UVM),
}
CERTAIN = [name for name, pair in PAIRS.items() if not pair.is_advice]
ADVICE = [name for name, pair in PAIRS.items() if pair.is_advice]


def named(host: Host) -> list[str]:
    return [c.id for c in answer(host).causes]


def one(host: Host) -> Cause:
    causes = answer(host).causes
    assert len(causes) == 1, [(c.id, c.findings) for c in causes]
    return causes[0]


#: Made by a goal or an overlay, not by the host alone: tests/core/test_goal_judge.py has their hosts.
OF_A_WISH = {"engine.goal_unmet", "engine.goal_conflict", "policy.site_rule_broken"}


def test_every_row_has_its_pair() -> None:
    # A row that explains no finding is there for `explain`: check never names it.
    rows = {row.id for row in matrix().edition.causes if row.explains}
    assert rows - OF_A_WISH == set(PAIRS) | set(REFINING) | UNDER_A_POLICY


@pytest.mark.parametrize("name", CERTAIN)
def test_a_cause_is_named_alone_with_its_consequences(name: str) -> None:
    host = PAIRS[name].sick
    cause = one(host)
    assert (cause.id, cause.is_certain, cause.tied_with, cause.deciding_facts) == (name, True, (), ())
    assert cause.because and cause.remedy is not None  # noqa: PT018 - what makes it worth reading
    failed = {f"{c}@{s}" if s else c for (c, s), status in statuses(host).items() if status == "fail"}
    assert failed
    assert failed <= set(cause.findings)
    linked = {f.cause for f in answer(host).findings if f.status == "fail"}
    assert linked == {name}
    assert answer(host).verdict == "not_ready"


@pytest.mark.parametrize("name", ADVICE)
def test_what_does_not_stop_the_host_is_advice_with_a_remedy(name: str) -> None:
    report = answer(PAIRS[name].sick)
    assert (report.verdict, report.causes) == ("ready", ()), wrong(PAIRS[name].sick)
    mine = [a for a in report.advice if a.id == name]
    assert mine, [a.id for a in report.advice]
    assert all(a.because and a.remedy is not None for a in mine)
    assert name not in [a.id for a in answer(PAIRS[name].near_miss).advice]


@pytest.mark.parametrize("name", PAIRS)
def test_a_cause_is_not_named_on_a_host_that_is_merely_alike(name: str) -> None:
    pair = PAIRS[name]
    assert name not in named(pair.near_miss), wrong(pair.near_miss)
    assert named(pair.near_miss)[:1] == ([pair.first] if pair.first else []), wrong(pair.near_miss)


@pytest.mark.parametrize("name", CERTAIN)
def test_a_warning_that_a_cause_explains_is_no_advice(name: str) -> None:
    report = answer(PAIRS[name].sick)
    explained = set(report.causes[0].findings)
    assert not {key for advice in report.advice for key in advice.findings} & explained


def test_a_closer_cause_stands_inside_the_general_one() -> None:
    for name, (sick, near_miss) in REFINING.items():
        cause = one(sick)
        row = matrix().cause(name)
        assert row is not None
        assert (cause.id, cause.refined_by) == (row.refines, (name,))
        assert row.remedy is not None
        assert cause.remedy is not None
        assert cause.remedy.summary == row.remedy.summary
        assert one(near_miss).refined_by == ()


# --- several faults -------------------------------------------------------------------------------

HOT = {"clock_limits": ("hw_thermal_slowdown",)}


def test_two_faults_give_two_causes() -> None:
    host = gpu(gpu(healthy(), 0, **HOT), 1, remap_pending=True)
    assert sorted(named(host)) == ["gpu.row_remap_pending", "gpu.thermal"]


def test_the_fault_that_explains_more_comes_first() -> None:
    host = gpu(reports(put(NO_UVM, "driver.device_nodes", nodes("/dev/nvidiactl"))), 0, **HOT)
    assert named(host) == ["driver.uvm_not_ready", "gpu.thermal"]


def test_a_mismatch_beside_missing_headers_of_the_next_kernel_is_the_mismatch() -> None:
    host = put(
        kernels(DIFFERING, (RELEASE, {}), (OTHER_RELEASE, NO_MODULE)), "kernel.next_release", OTHER_RELEASE
    )
    report = answer(host)
    assert [c.id for c in report.causes] == ["driver.userspace_kernel_mismatch"]
    assert [c.id for c in report.advice] == ["kernel.next_boot"]


def test_one_of_two_gpus_fails_by_its_firmware_while_cuda_works_on_the_other() -> None:
    assert named(said(lost_gpu(healthy()), GSP_WORD)) == ["driver.gsp_boot_failure"]


def test_one_of_two_gpus_has_no_memory_window_while_cuda_works_on_the_other() -> None:
    host = device(lost_gpu(healthy()), 1, bar_bytes=UNMAPPED)
    assert named(host) == ["firmware.bar_or_above4g"]


def test_a_fallen_gpu_is_named_with_what_shows_it() -> None:
    because = " ".join(one(FALLEN).because)
    assert f"config space of {SECOND} reads all ones" in because
    assert "Xid 79" in because


def test_an_unassigned_bridge_window_on_hopper_is_no_cause() -> None:
    hopper = {"device_id": "10de:2330", "bar_bytes": (16 * 1024**2, 0, 128 * 1024**3, 0, 32 * 1024**2, 0)}
    assert named(said(devices(no_driver(), **hopper), BRIDGE_WORD)) == ["driver.not_installed"]


# --- when the facts do not decide -----------------------------------------------------------------


def test_what_no_cause_explains_is_unknown() -> None:
    cause = one(put(healthy(), "cuda.probe", UNKNOWN_ERROR))
    assert (cause.id, cause.is_certain, cause.findings, cause.tied_with) == (
        "unknown",
        False,
        ("cuda.init",),
        (),
    )


def test_an_untold_claim_never_names_a_cause() -> None:
    cause = one(without(failed_build("make[1]: *** [nv.o] Error 2"), ["kernel.compiler_on_path"]))
    assert cause.id == "unknown"
    assert "driver.dkms_build_failed" in cause.tied_with
    assert "the first error line of dkms's make.log" in cause.deciding_facts


def test_a_claim_that_would_rule_a_cause_out_must_be_told_as_well() -> None:
    """No module anywhere: without a word of dkms it may be missing, or its build may have failed."""
    cause = one(without(no_driver(), ["kernel.dkms"], "timeout"))
    assert cause.id == "unknown"
    assert "driver.not_installed" in cause.tied_with


def test_an_open_verdict_says_what_is_missing() -> None:
    report = answer(without(healthy(), ["driver.nvml", "driver.smi"], "timeout"))
    assert (report.verdict, [c.id for c in report.causes]) == ("unknown", ["unknown"])
    assert any("did not answer in time" in fact for fact in report.causes[0].deciding_facts)


def test_candidates_are_few_and_their_claims_hold_in_part() -> None:
    host = without(UNLOADED, ["kernel.logs", "kernel.installed", "kernel.module_options"])
    host = put(host, "kernel.dkms", (dkms_build(state="failed", failure=API),))
    cause = one(host)
    assert cause.id == "unknown"
    assert 1 <= len(cause.tied_with) <= 4
    for name in cause.tied_with:
        row = matrix().cause(name)
        assert row is not None
        held = [evaluate(claim, case_of(host)).holds for claim in row.when]
        assert True in held
        assert False not in held


# --- less evidence --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CERTAIN)
def test_with_one_fact_less_no_other_cause_becomes_certain(name: str) -> None:
    host, slips = PAIRS[name].sick, []
    for fact in FACTS:
        report = answer(without(host, [fact]))
        certain = {c.id for c in report.causes if c.is_certain} - {name}
        if certain or any(f.id == "internal.check_crashed" for f in report.findings):
            slips.append((fact, sorted(certain), [f.found for f in report.findings if f.area == "internal"]))
    assert slips == []


# --- the table and its readers, on rows of their own ----------------------------------------------


def row(name: str, **fields: object) -> CauseRow:
    values: dict[str, object] = {
        "id": name,
        "layer": "driver",
        "title": f"it is {name}",
        "source": ("test",),
        "as_of": "2026-11-30",
        "confidence": "vendor",
        "review_by": "2027-05-31",
    }
    return msgspec.convert({**values, **fields}, CauseRow)


def causes_by(host: Host, *rows: CauseRow) -> tuple[Cause, ...]:
    edition = msgspec.structs.replace(matrix().edition, causes=rows)
    return judge(host, Matrix(edition)).causes


SLOW = gpu(gpu(healthy(), 0, **HOT), 1, clock_limits=("hw_power_brake_slowdown",))


def test_rows_that_explain_equally_much_on_one_layer_are_tied() -> None:
    rows = [
        row(
            f"a.{n}",
            when=("hw_thermal_slowdown",),
            explains=("gpu.temperature",),
            deciding_facts=(f"fact {n}",),
        )
        for n in (1, 2)
    ]
    cause = causes_by(gpu(healthy(), **HOT), *rows)[0]
    assert (cause.id, cause.is_certain, cause.tied_with) == ("a.1", False, ("a.2",))
    assert cause.deciding_facts == ("fact 1", "fact 2")


def test_the_deeper_layer_wins_among_rows_that_explain_equally_much() -> None:
    upper = row("a.upper", when=("hw_thermal_slowdown",), explains=("gpu.temperature",), layer="cuda")
    lower = row("a.lower", when=("hw_thermal_slowdown",), explains=("gpu.temperature",), layer="hardware")
    cause = causes_by(gpu(healthy(), **HOT), upper, lower)[0]
    assert (cause.id, cause.is_certain) == ("a.lower", True)


def test_few_rows_that_explain_much_are_preferred() -> None:
    heat = row("a.heat", when=("hw_thermal_slowdown",), explains=("gpu.temperature",), layer="platform")
    both = row("a.both", when=("hw_power_brake",), explains=("gpu.temperature", "gpu.power"))
    assert [c.id for c in causes_by(SLOW, heat, both)] == ["a.both"]


def test_a_row_that_refines_never_stands_alone() -> None:
    closer = row(
        "a.closer", when=("hw_thermal_slowdown",), explains=("gpu.temperature",), refines="a.general"
    )
    assert [c.id for c in causes_by(gpu(healthy(), **HOT), closer)] == ["unknown"]


def test_a_negated_claim_counts() -> None:
    cool = row("a.cool", when=("not hw_thermal_slowdown",), explains=("gpu.power", "gpu.temperature"))
    assert [c.id for c in causes_by(SLOW, cool)] == ["unknown"]
    braked = gpu(healthy(), clock_limits=("hw_power_brake_slowdown",))
    assert [c.id for c in causes_by(braked, cool)] == ["a.cool"]


def test_the_place_is_taken_for_the_usual_one_where_nothing_speaks_of_it() -> None:
    heat = row(
        "a.heat", when=("hw_thermal_slowdown",), explains=("gpu.temperature",), ruled_out_by=("in_container",)
    )
    host = gpu(without(healthy(), ["system.virtualisation"]), **HOT)
    assert causes_by(host, heat)[0].id == "a.heat"


def test_rows_speak_of_claims_findings_layers_and_causes_that_exist() -> None:
    checks = {one_check.id for one_check in CHECKS}
    case = Case(host=Host(), matrix=matrix())
    for one_row in matrix().edition.causes:
        for claim in (*one_row.when, *one_row.ruled_out_by):
            evaluate(claim, case)
        assert set(one_row.explains) <= checks, one_row.id
        assert one_row.layer in LAYERS
        assert not one_row.refines or matrix().cause(one_row.refines)


def test_no_remedy_switches_a_security_feature_off() -> None:
    for one_row in matrix().edition.causes:
        remedy = one_row.remedy
        assert remedy is not None, one_row.id
        words = " ".join((remedy.summary, *(" ".join(argv) for argv in remedy.commands))).lower()
        assert not any(
            bad in words for bad in ("--disable-validation", "setenforce", "nokaslr", "iommu=off", "sb off")
        )


def test_a_host_of_which_nothing_is_known_has_no_cause() -> None:
    report = answer(Host())
    assert report.verdict == "unknown"
    assert [c.id for c in report.causes] == ["unknown"]
    assert report.causes[0].tied_with == ()


def test_a_driver_container_is_named_instead_of_missing_libraries() -> None:
    report = answer(beside_a_driver_container())
    assert report.verdict == "unknown"
    assert "driver.userspace_missing" not in {i for c in report.causes for i in (c.id, *c.tied_with)}
    assert "/run/nvidia/driver" in " ".join(report.causes[0].deciding_facts)


def test_missing_libraries_are_in_doubt_where_nobody_looked_for_a_driver_container() -> None:
    cause = one(without(PAIRS["driver.userspace_missing"].sick, ["driver.container_root"]))
    assert (cause.id, cause.is_certain) == ("driver.userspace_missing", False)


def test_a_module_that_is_not_loaded_is_no_sign_of_one_cause_and_worth_asking_further() -> None:
    host = without(UNLOADED, ["kernel.logs", "kernel.installed", "kernel.dkms", "kernel.module_options"])
    assert (one(host).id, one(host).tied_with) == ("unknown", ())
    assert any("find /lib/modules" in fact for fact in one(host).deciding_facts)


def test_a_state_that_many_hosts_share_is_no_sign_of_a_cause() -> None:
    host = without(put(dead(healthy()), "kernel.logs", ()), ["pci"])
    cause = one(host)
    assert cause.id == "unknown"
    assert "firmware.bar_or_above4g" not in cause.tied_with


def test_a_display_card_that_nouveau_has_beside_working_gpus_is_advice_without_a_remedy() -> None:
    card = pci_device("0000:01:00.0", GTX_1050_TI, class_code="030000", driver="nouveau")
    host = put(healthy(), "pci", (*at(healthy(), "pci").value, card))
    report = answer(host)
    assert (report.verdict, report.causes) == ("ready", ())
    assert [(a.id, a.remedy) for a in report.advice] == [("driver.binding", None)]


def test_a_refused_module_of_somebody_else_hides_no_cause() -> None:
    for name in ("driver.not_installed", "driver.headers_missing", "driver.dkms_build_failed"):
        host = said(put(PAIRS[name].sick, "kernel.secure_boot", "enabled"), REFUSAL)
        assert (one(host).id, one(host).is_certain) == (name, True)


def test_warnings_of_one_cause_are_one_piece_of_advice() -> None:
    both = row("a.both", when=("flavour_open",), explains=("gpu.temperature", "gpu.power"))
    host = gpu(healthy(), clock_limits=("sw_thermal_slowdown",))
    host = gpu(host, 1, clock_limits=("sw_thermal_slowdown",))
    edition = msgspec.structs.replace(matrix().edition, causes=(both,))
    report = judge(host, Matrix(edition))
    assert [(a.id, a.findings) for a in report.advice] == [
        ("a.both", (f"gpu.temperature@{FIRST}", f"gpu.temperature@{SECOND}"))
    ]


def test_what_follows_from_the_wrong_flavour_is_no_cause() -> None:
    cause = one(WRONG_FLAVOUR)
    assert cause.id == "driver.proprietary_on_open_only_gpu"
    assert f"gpu.xid@{FIRST}" in cause.findings


def test_a_gpu_that_a_tool_took_off_the_bus_of_a_laptop_is_not_missing() -> None:
    assert (one(INTEGRATED).id, one(INTEGRATED).is_certain) == ("laptop.hybrid_power", True)
    assert named(put(INTEGRATED, "kernel.module_options", ())) == ["system.no_nvidia_gpu"]
    # Whether this is a laptop nobody asked.
    doubted = one(without(INTEGRATED, ["machine.chassis"]))
    assert (doubted.id, doubted.is_certain) == ("system.no_nvidia_gpu", False)


def test_a_driver_module_that_lies_elsewhere_is_not_missing() -> None:
    bare = put(UNLOADED, "kernel.installed", ())
    assert named(bare) == ["unknown"]
    dropped = said(device(bare, 0, device_id=GTX_1050_TI), ("legacy_gpu", IGNORED, FIRST))
    assert named(dropped)[0] == "driver.gpu_dropped_by_branch"
