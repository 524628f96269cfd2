"""Claims: each one on a host where it holds, where it does not, and where nobody can tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.core.claims import CLAIMS, evaluate
from doctor.core.claims.bus import has_window, is_asleep
from doctor.core.claims.claimed import is_told
from doctor.core.host import Absent, Collection, GpuReport, Host, KernelMessage, ModprobeLine
from doctor.core.versions import Dotted
from tests.core.claims_container import CASES as OF_CONTAINERS
from tests.core.claims_engine import CASES as OF_ENGINES
from tests.core.claims_machine import CASES as OF_MACHINE
from tests.core.claims_machine import MORE
from tests.core.hosts import (
    FIRST,
    H100,
    NARROW_BARS,
    NOT_THERE,
    OLD_DRIVER,
    OTHER_RELEASE,
    P40,
    REASONS,
    RELEASE,
    RTX_5090,
    SECOND,
    WIDE_BARS,
    answer,
    at,
    beside_a_driver_container,
    case_of,
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
    jetson,
    known_of,
    library,
    loaded_modules,
    lost_gpu,
    module_files,
    no_driver,
    nodes,
    package,
    packages_of,
    pci_device,
    placed,
    put,
    reports,
    said,
    unloadable_probe,
    without,
    without_module,
    without_module_file,
    working_probe,
)
from tests.core.pair import Three

HEALTHY = healthy()
UNLOADED = without_module(HEALTHY)
UNBUILT = without_module_file(UNLOADED)
SILENT = without(HEALTHY, ["driver.nvml", "driver.smi", "cuda.probe"])
CUT = said(HEALTHY, is_complete=False)
NO_BUS = without(HEALTHY, ["pci"])
NO_KERNELS = without(HEALTHY, ["kernel.installed"])
NO_DKMS = without(HEALTHY, ["kernel.dkms"])
NO_LOGS = without(HEALTHY, ["kernel.logs"])
NO_PROBE = without(HEALTHY, ["cuda.probe"])
NO_PACKAGES = without(HEALTHY, ["packages"])
DOWN = lost_gpu(HEALTHY, FIRST)
NO_DEVICE = failing_probe(100, "CUDA_ERROR_NO_DEVICE")
REFUSED = {"error": "Insufficient Permissions", "error_code": 4, "gpus": ()}
PLAIN_USER = Collection(root=False)
FIRMWARE = (
    "firmware_missing",
    f"nvidia {SECOND}: Direct firmware load for nvidia/580.178.04/gsp_ga10x.bin failed with error -2",
    SECOND,
)
UNLISTED = devices(DOWN, device_id="10de:ffff")
NO_MODULE = {"nvidia_modules": known_of(())}
UNMAPPED = (16 * 1024**2, 0, 0, 32 * 1024**2, 0, 0)
R595, R550 = Dotted("595.104.02"), Dotted("550.163.01")


def kernels(host: Host, *entries: tuple[str, dict[str, Any]]) -> Host:
    return put(
        host, "kernel.installed", tuple(installed_kernel(release, **fields) for release, fields in entries)
    )


def built_as(**fields: object) -> Host:
    return put(UNBUILT, "kernel.dkms", (dkms_build(**{"state": "failed", **fields}),))


def cuinit(code: int) -> Host:
    return put(HEALTHY, "cuda.probe", failing_probe(code, "CUDA_ERROR"))


def mapping(path: str, version: Dotted | None) -> Host:
    return put(HEALTHY, "cuda.probe", working_probe(library_path=path, library_version=version))


def updating(**fields: object) -> Host:
    return put(HEALTHY, "packages", driver_packages(**{"automatic_updates": known_of(value=True), **fields}))


OLD_FILE = {"nvidia_modules": known_of(module_files(RELEASE, version=OLD_DRIVER))}
UNSIGNED = kernels(UNLOADED, (RELEASE, {"nvidia_modules": known_of(module_files(RELEASE, signer=""))}))
BLACKLIST = (ModprobeLine(file="/etc/modprobe.d/x.conf", directive="blacklist", module="nvidia"),)
OTHERS = (ModprobeLine(file="/etc/modprobe.d/x.conf", directive="blacklist", module="nouveau"),)
DIFFERING = put(
    put(cuinit(803), "driver.kernel_version", OLD_DRIVER), "driver.nvml", GpuReport(error="x", error_code=18)
)
HALF = packages_of(package("nvidia-dkms-580-open", state="half-configured"))
LOST = lost_gpu(HEALTHY)
GONE = ("fallen_off_bus", f"NVRM: GPU {SECOND}: GPU has fallen off the bus.", SECOND)
SECURE = {"kernel.secure_boot": "enabled", "kernel.lockdown": "integrity"}
OPTION = "gcc: error: unrecognized command-line option '-fx'"
OTHER_GCC = "gcc (Ubuntu 11.4.0) 11.4.0"
UVM = loaded_modules("nvidia_uvm")[0]
STRAY = library("libcuda.so.1", path="/usr/local/lib/libcuda.so.1", package="")
BUS_ONLY = {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE}

CASES: dict[str, Three] = {
    **OF_CONTAINERS,
    **OF_MACHINE,
    # the bus
    "gpu_on_bus": Three(HEALTHY, put(HEALTHY, "pci", ()), without(SILENT, ["pci"])),
    "no_gpu_on_bus": Three(put(HEALTHY, "pci", ()), HEALTHY, NO_BUS),
    "nouveau_bound": Three(device(HEALTHY, driver="nouveau"), HEALTHY, device(HEALTHY, driver=None)),
    "vfio_bound_all": Three(devices(HEALTHY, driver="vfio-pci"), device(HEALTHY, driver="vfio-pci"), NO_BUS),
    "gpu_not_responding": Three(
        device(HEALTHY, is_responding=False),
        HEALTHY,
        device(HEALTHY, is_responding=False, power_state="D3cold"),
    ),
    "gpu_lost_said": Three(said(HEALTHY, GONE), HEALTHY, CUT),
    "gpu_fallen": Three(said(LOST, GONE), said(HEALTHY, GONE), said(SILENT, GONE)),
    "bar_unmapped": Three(device(LOST, 1, bar_bytes=UNMAPPED), LOST, device(LOST, 1, bar_bytes=())),
    "bar_said": Three(said(HEALTHY, ("bar", "NVRM: BAR1 is 0M @ 0x0")), HEALTHY, CUT),
    "nvswitch_present": Three(
        put(HEALTHY, "pci", (pci_device("0000:c1:00.0", "10de:22a3", class_code="068000"),)), HEALTHY, NO_BUS
    ),
    "gsp_failed": Three(said(HEALTHY, ("gsp", "NVRM: GSP")), HEALTHY, CUT),
    "gsp_blocks": Three(said(LOST, ("gsp", "NVRM: GSP")), said(HEALTHY, ("gsp", "NVRM: GSP")), NO_LOGS),
    # modules and packages
    "module_loaded": Three(HEALTHY, UNLOADED, without(HEALTHY, ["driver.kernel_version", "kernel.modules"])),
    "module_on_disk": Three(HEALTHY, UNBUILT, NO_KERNELS),
    "module_for_other_kernel": Three(
        kernels(HEALTHY, (RELEASE, NO_MODULE), (OTHER_RELEASE, {})),
        HEALTHY,
        without(HEALTHY, ["kernel.release"]),
    ),
    "module_nowhere": Three(
        UNBUILT, HEALTHY, kernels(HEALTHY, (RELEASE, {"nvidia_modules": Absent(reason="denied")}))
    ),
    "headers_missing": Three(
        kernels(HEALTHY, (RELEASE, {"has_headers": False})),
        HEALTHY,
        kernels(HEALTHY, (RELEASE, {"has_headers": None})),
    ),
    "dkms_registered": Three(
        HEALTHY, put(HEALTHY, "kernel.dkms", (dkms_build(module="nvidia-fs"),)), NO_DKMS
    ),
    "dkms_failed": Three(
        built_as(failure="error: x"), built_as(failure="error: x", kernel=OTHER_RELEASE), NO_DKMS
    ),
    "compiler_missing": Three(
        put(HEALTHY, "kernel.compiler_on_path", NOT_THERE),
        put(built_as(failure="nv.c:1:2: error: x"), "kernel.compiler_on_path", NOT_THERE),
        without(HEALTHY, ["kernel.compiler_on_path"]),
    ),
    "compiler_differs": Three(
        put(HEALTHY, "kernel.compiler_on_path", OTHER_GCC), HEALTHY, without(HEALTHY, ["kernel.compiler"])
    ),
    "compiler_blocks": Three(
        built_as(failure="/bin/sh: g++: command not found"),
        HEALTHY,
        without(HEALTHY, ["kernel.compiler_on_path"]),
    ),
    "compiler_unfit": Three(
        put(built_as(failure=OPTION), "kernel.compiler_on_path", OTHER_GCC),
        built_as(failure=OPTION),
        without(built_as(failure=OPTION), ["kernel.compiler_on_path"]),
    ),
    "dkms_blames_compiler": Three(built_as(failure=OPTION), built_as(failure="error: x"), NO_DKMS),
    "headers_block": Three(
        kernels(HEALTHY, (RELEASE, {"has_headers": False})),
        put(HEALTHY, "kernel.dkms", NOT_THERE),
        kernels(NO_DKMS, (RELEASE, {"has_headers": False})),
    ),
    "not_built_here": Three(
        kernels(put(UNLOADED, "kernel.dkms", NOT_THERE), (RELEASE, NO_MODULE), (OTHER_RELEASE, {})),
        HEALTHY,
        without(UNBUILT, ["kernel.dkms"]),
    ),
    "load_not_tried": Three(UNLOADED, HEALTHY, said(UNLOADED, is_complete=False)),
    "secure_boot_enabled": Three(
        having(HEALTHY, SECURE), HEALTHY, without(HEALTHY, ["kernel.secure_boot", "kernel.lockdown"])
    ),
    "signature_rejected": Three(UNSIGNED, UNLOADED, UNBUILT),
    "signature_blocks": Three(
        having(UNSIGNED, SECURE), UNSIGNED, without(UNSIGNED, ["kernel.secure_boot", "kernel.lockdown"])
    ),
    "symbol_missing": Three(
        said(HEALTHY, ("module_symbol", "nvidia: Unknown symbol drm_x")),
        said(HEALTHY, ("module_symbol", "nvidia_peermem: Unknown symbol ib_x")),
        CUT,
    ),
    "module_blacklisted": Three(
        put(HEALTHY, "kernel.module_options", BLACKLIST),
        put(HEALTHY, "kernel.module_options", OTHERS),
        without(HEALTHY, ["kernel.module_options"]),
    ),
    "driver_packages_installed": Three(HEALTHY, put(HEALTHY, "packages", packages_of()), NO_PACKAGES),
    "packages_half_installed": Three(put(HEALTHY, "packages", HALF), HEALTHY, NO_PACKAGES),
    # versions and flavours
    "userspace_differs": Three(
        DIFFERING, HEALTHY, without(DIFFERING, ["driver.kernel_version", "driver.nvml"])
    ),
    "disk_matches_userspace": Three(HEALTHY, kernels(HEALTHY, (RELEASE, OLD_FILE)), NO_KERNELS),
    "disk_matches_loaded": Three(HEALTHY, kernels(HEALTHY, (RELEASE, OLD_FILE)), NO_KERNELS),
    "half_upgraded": Three(
        put(HEALTHY, "packages", HALF), HEALTHY, without(put(HEALTHY, "packages", HALF), ["kernel.installed"])
    ),
    "libraries_unowned": Three(
        put(HEALTHY, "driver.libraries", (STRAY,)), HEALTHY, without(HEALTHY, ["driver.libraries"])
    ),
    "flavour_open": Three(
        HEALTHY, put(HEALTHY, "driver.flavour", "proprietary"), without(NO_KERNELS, ["driver.flavour"])
    ),
    "flavour_proprietary": Three(
        put(HEALTHY, "driver.flavour", "proprietary"), HEALTHY, without(NO_KERNELS, ["driver.flavour"])
    ),
    "gpu_needs_open": Three(device(DOWN, device_id=RTX_5090), HEALTHY, UNLISTED),
    "gpu_refuses_open": Three(device(DOWN, device_id=P40), HEALTHY, UNLISTED),
    "flavour_conflict": Three(device(DOWN, device_id=P40), HEALTHY, UNLISTED),
    "gpu_dropped": Three(put(device(DOWN, device_id=P40), "driver.kernel_version", R595), HEALTHY, UNLISTED),
    "gpu_too_new": Three(
        put(device(DOWN, device_id=RTX_5090), "driver.kernel_version", R550), HEALTHY, UNLISTED
    ),
    "legacy_said": Three(said(HEALTHY, ("legacy_gpu", "NVRM: Legacy drivers")), HEALTHY, CUT),
    "toolkit_needs_newer_driver": Three(
        put(HEALTHY, "driver.kernel_version", R550), HEALTHY, without(HEALTHY, ["cuda.toolkits"])
    ),
    "runtime_needs_newer_driver": Three(
        put(HEALTHY, "driver.kernel_version", R550), HEALTHY, without(HEALTHY, ["cuda.toolkits"])
    ),
    # what answers
    "nvml_answers": Three(HEALTHY, having(HEALTHY, BUS_ONLY), SILENT),
    "nvml_sees_no_gpu": Three(reports(HEALTHY, error="No devices were found", gpus=()), HEALTHY, SILENT),
    "cuinit_works": Three(HEALTHY, cuinit(999), NO_PROBE),
    "cuinit_not_initialized": Three(cuinit(3), HEALTHY, NO_PROBE),
    "cuinit_unknown_error": Three(cuinit(999), HEALTHY, NO_PROBE),
    "cuinit_mismatch": Three(cuinit(803), cuinit(804), NO_PROBE),
    "cuinit_compat_unsupported": Three(cuinit(804), cuinit(803), NO_PROBE),
    "cuinit_not_ready": Three(cuinit(802), HEALTHY, put(HEALTHY, "cuda.probe", unloadable_probe())),
    "uvm_loaded": Three(
        HEALTHY,
        put(HEALTHY, "kernel.modules", loaded_modules("nvidia")),
        without(HEALTHY, ["kernel.modules"]),
    ),
    "uvm_not_ready": Three(
        put(HEALTHY, "driver.device_nodes", nodes("/dev/nvidiactl")),
        HEALTHY,
        without(HEALTHY, ["driver.device_nodes"]),
    ),
    "hmm_enabled": Three(
        HEALTHY,
        put(HEALTHY, "kernel.modules", (type(UVM)(name="nvidia_uvm", parameters={"uvm_disable_hmm": "Y"}),)),
        put(HEALTHY, "kernel.modules", (type(UVM)(name="nvidia_uvm"),)),
    ),
    "device_nodes_missing": Three(
        put(HEALTHY, "driver.device_nodes", ()), HEALTHY, without(HEALTHY, ["driver.device_nodes"])
    ),
    "libcuda_is_compat": Three(
        mapping("/usr/local/cuda/compat/libcuda.so.1", R595), HEALTHY, without(NO_PROBE, ["driver.libraries"])
    ),
    "libcuda_older_than_driver": Three(
        mapping("/x/libcuda.so.1", R550), HEALTHY, mapping("/x/libcuda.so.1", None)
    ),
    "libcuda_missing": Three(
        put(HEALTHY, "cuda.probe", unloadable_probe()),
        put(HEALTHY, "cuda.probe", unloadable_probe("libcuda.so.1: file too short")),
        without(NO_PROBE, ["driver.libraries"]),
    ),
    "not_injected": Three(
        put(in_container(), "driver.device_nodes", ()),
        in_container(),
        without(in_container(), ["driver.device_nodes"]),
    ),
    "some_gpu_down": Three(LOST, HEALTHY, SILENT),
    # the state of GPUs
    "remap_pending": Three(gpu(HEALTHY, remap_pending=True), HEALTHY, gpu(HEALTHY, remap_pending=None)),
    "remap_failure": Three(gpu(HEALTHY, remap_failure=True), HEALTHY, SILENT),
    "retired_pages_pending": Three(
        gpu(HEALTHY, retired_pages_pending=True), HEALTHY, gpu(HEALTHY, retired_pages_pending=None)
    ),
    "hw_thermal_slowdown": Three(gpu(HEALTHY, clock_limits=("hw_thermal_slowdown",)), HEALTHY, SILENT),
    "hw_power_brake": Three(gpu(HEALTHY, clock_limits=("hw_power_brake_slowdown",)), HEALTHY, SILENT),
    "recovery_asked": Three(
        gpu(HEALTHY, recovery_action="reboot"), HEALTHY, gpu(HEALTHY, recovery_action=None)
    ),
    "firmware_missing": Three(said(LOST, FIRMWARE), said(HEALTHY, FIRMWARE), CUT),
    "mig_without_instance": Three(
        put(gpu(gpu(HEALTHY, mig_mode=True), 1, mig_mode=True), "cuda.probe", NO_DEVICE),
        put(gpu(HEALTHY, mig_mode=True), "cuda.probe", NO_DEVICE),
        gpu(gpu(NO_PROBE, mig_mode=True), 1, mig_mode=True),
    ),
    "fabric_not_up": Three(
        gpu(HEALTHY, fabric_state="in_progress"),
        gpu(gpu(HEALTHY, fabric_state="completed"), 1, fabric_state="completed"),
        HEALTHY,
    ),
    "nodes_closed": Three(put(reports(HEALTHY, **REFUSED), "collection", PLAIN_USER), HEALTHY, SILENT),
    "userspace_missing": Three(
        put(HEALTHY, "driver.smi", GpuReport(error="NVIDIA-SMI couldn't find libnvidia-ml.so library")),
        HEALTHY,
        without(NO_PROBE, ["driver.libraries"]),
    ),
    "driver_in_container": Three(
        beside_a_driver_container(), HEALTHY, without(HEALTHY, ["driver.container_root", "driver.smi"])
    ),
    # places and policies
    "jetson": Three(jetson(), HEALTHY, without(HEALTHY, ["system.platform"])),
    "in_container": Three(in_container(), HEALTHY, without(HEALTHY, ["system.virtualisation"])),
    "on_wsl": Three(in_wsl2(), HEALTHY, without(HEALTHY, ["system.virtualisation", "kernel.release"])),
    "updates_unfenced": Three(updating(), HEALTHY, updating(holds=Absent(reason="denied"))),
}


CASES |= {name: Three(true, false, Host()) for name, (true, false) in OF_ENGINES.items()}


def holds(name: str, host: Host) -> bool | None:
    return evaluate(name, case_of(host)).holds


#: About a goal or an overlay, not the host alone: tests/core/test_goal_judge.py has their hosts.
OF_A_WISH = {"goal_unmet", "goal_conflict", "site_rule_broken"}


def test_every_claim_is_here() -> None:
    assert set(CASES) | OF_A_WISH == set(CLAIMS)


@pytest.mark.parametrize("name", MORE)
def test_a_claim_beside_its_first_cases(name: str) -> None:
    claim, host, wanted = MORE[name]
    assert (evaluate(claim, case_of(host)).holds is True) is wanted


@pytest.mark.parametrize("name", CASES)
def test_a_claim_that_holds_says_why(name: str) -> None:
    claimed = evaluate(name, case_of(CASES[name].true))
    assert claimed.holds is True
    assert claimed.because


@pytest.mark.parametrize("name", CASES)
def test_a_claim_that_does_not_hold(name: str) -> None:
    assert holds(name, CASES[name].false) is False


@pytest.mark.parametrize("name", CASES)
def test_a_claim_that_nobody_can_tell_is_neither_true_nor_false(name: str) -> None:
    host = CASES[name].untold
    assert host is not None
    assert holds(name, host) is None
    assert holds(f"not {name}", host) is None


@pytest.mark.parametrize("name", CASES)
def test_negation_turns_what_is_told(name: str) -> None:
    assert holds(f"not {name}", CASES[name].true) is False
    assert holds(f"not {name}", CASES[name].false) is True


@pytest.mark.parametrize("name", CASES)
def test_of_a_host_that_nobody_looked_at_nothing_is_claimed(name: str) -> None:
    assert holds(name, Host()) is None


@pytest.mark.parametrize("name", ["no_such_claim", "not no_such_claim"])
def test_a_claim_that_is_not_defined_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        evaluate(name, case_of(HEALTHY))


# --- what the stack has taught --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bars", "mapped"),
    [
        (NARROW_BARS, True),
        (WIDE_BARS, True),
        (UNMAPPED, False),
        ((0, 1, 0), False),
        ((), None),
        ((1, 1), None),
    ],
)
def test_the_memory_window_is_bar_1_or_bar_2(bars: tuple[int, ...], mapped: bool | None) -> None:
    assert has_window(pci_device(FIRST, H100, bar_bytes=bars)) is mapped


@pytest.mark.parametrize(
    ("responds", "state", "asleep"), [(False, "D3cold", True), (False, "D0", False), (True, "D3cold", False)]
)
def test_only_a_card_without_power_is_asleep(responds: bool, state: str, asleep: bool) -> None:
    assert is_asleep(pci_device(FIRST, is_responding=responds, power_state=state)) is asleep


def test_a_fallen_card_and_another_one_without_driver_are_not_mixed_up() -> None:
    host = said(device(LOST, 1, driver="nouveau"), ("fallen_off_bus", "fallen off the bus", FIRST))
    assert holds("gpu_fallen", host) is False


def test_a_card_that_answers_on_the_bus_is_not_gone_whatever_the_log_has_lost() -> None:
    assert holds("gpu_fallen", CUT) is False


def test_xid_79_alone_is_a_loss() -> None:
    assert evaluate("gpu_lost_said", case_of(said(HEALTHY, xids=fallen(FIRST)))).because.startswith(
        "the kernel reported Xid 79"
    )


@pytest.mark.parametrize(
    ("lockdown", "state", "line", "enforced"),
    [
        ("none", "enabled", (), False),
        ("integrity", "enabled", (), True),
        ("confidentiality", "unsupported", (), True),
        ("none", "disabled", ("module.sig_enforce=1",), True),
        (NOT_THERE, "enabled", (), True),
        (NOT_THERE, "disabled", (), False),
        (Absent(reason="denied"), "unsupported", (), False),
        (Absent(reason="denied"), "enabled", (), None),
    ],
)
def test_what_makes_the_kernel_ask_for_signatures(
    lockdown: object, state: str, line: tuple[str, ...], enforced: bool | None
) -> None:
    host = having(
        HEALTHY, {"kernel.lockdown": lockdown, "kernel.secure_boot": state, "kernel.command_line": line}
    )
    assert holds("secure_boot_enabled", host) is enforced


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Loading of unsigned module is rejected", True),
        ("Loading of module with unavailable key is rejected", True),
        ("PKCS#7 signature not signed with a trusted key", False),
    ],
)
def test_only_a_refusal_proves_a_refusal(text: str, blocks: bool) -> None:
    assert holds("signature_blocks", said(UNLOADED, ("module_signature_rejected", text))) is blocks


@pytest.mark.parametrize("word", ["modprobe.blacklist=nouveau,nvidia", "module_blacklist=nvidia"])
def test_the_command_line_can_blacklist_too(word: str) -> None:
    assert holds("module_blacklisted", put(HEALTHY, "kernel.command_line", ("ro", word))) is True
    assert (
        holds("module_blacklisted", put(HEALTHY, "kernel.command_line", ("modprobe.blacklist=nouveau",)))
        is False
    )


@pytest.mark.parametrize(
    ("arguments", "void"), [("/bin/false", True), ("/usr/bin/true", True), ("/sbin/modprobe x", False)]
)
def test_an_install_line_that_does_nothing_is_a_blacklist(arguments: str, void: bool) -> None:
    line = ModprobeLine(
        file="/etc/modprobe.d/x.conf", directive="install", module="nvidia", arguments=arguments
    )
    assert holds("module_blacklisted", put(HEALTHY, "kernel.module_options", (line,))) is void


def test_nvml_itself_compares_the_versions() -> None:
    host = without(
        reports(cuinit(803), error="mismatch", error_code=18, gpus=()), ["driver.userspace_version"]
    )
    assert holds("userspace_differs", host) is True


def test_libraries_of_another_version_that_nobody_uses_are_no_mismatch() -> None:
    assert holds("userspace_differs", put(HEALTHY, "driver.userspace_version", OLD_DRIVER)) is False
    assert holds("userspace_differs", put(in_wsl2(), "cuda.probe", failing_probe(999, "X"))) is False


def test_the_module_of_the_next_kernel_counts_for_a_reboot() -> None:
    host = kernels(
        put(HEALTHY, "kernel.next_release", OTHER_RELEASE), (RELEASE, OLD_FILE), (OTHER_RELEASE, {})
    )
    assert holds("disk_matches_userspace", host) is True


def test_a_libcuda_that_only_the_caller_finds_is_not_missing() -> None:
    host = having(HEALTHY, {"cuda.probe": NOT_THERE, "cuda.probe_caller": working_probe()})
    assert holds("libcuda_missing", host) is False
    assert holds("libcuda_missing", put(HEALTHY, "cuda.probe", NOT_THERE)) is True


def test_a_number_of_a_newer_driver_asks_for_nothing() -> None:
    assert holds("recovery_asked", gpu(HEALTHY, recovery_action="unknown_9")) is False


def test_wsl_is_known_by_its_kernel() -> None:
    assert holds("on_wsl", without(in_wsl2(), ["system.virtualisation"])) is True
    assert holds("on_wsl", without(HEALTHY, ["system.virtualisation"])) is False


def test_a_machine_is_no_container() -> None:
    assert holds("in_container", placed(HEALTHY, "vm", "kvm")) is False


def test_the_driver_under_the_gpu_is_read_from_the_disk_where_none_is_loaded() -> None:
    host = kernels(
        device(no_driver(), device_id=P40),
        (RELEASE, {"nvidia_modules": known_of(module_files(RELEASE, version=R595))}),
    )
    assert holds("gpu_dropped", host) is True


@pytest.mark.parametrize("reason", REASONS)
def test_ignorance_is_not_told(reason: str) -> None:
    assert not is_told(at(without(HEALTHY, ["packages"], reason), "packages"))  # type: ignore[arg-type]
    assert is_told(NOT_THERE)
    assert is_told(known_of(1))


@pytest.mark.parametrize(
    ("name", "host", "expected"),
    [
        ("headers_block", NO_DKMS, False),
        ("headers_block", put(NO_KERNELS, "kernel.dkms", NOT_THERE), False),
        ("compiler_blocks", NO_DKMS, False),
        (
            "compiler_blocks",
            put(without(HEALTHY, ["kernel.compiler_on_path"]), "kernel.dkms", NOT_THERE),
            False,
        ),
        ("signature_blocks", put(NO_LOGS, "kernel.installed", ()), False),
        ("signature_blocks", having(put(NO_LOGS, "kernel.installed", ()), SECURE), None),
        ("half_upgraded", without(HEALTHY, ["kernel.installed"]), False),
        ("not_built_here", no_driver(), False),
        (
            "not_injected",
            put(without(in_container(), ["driver.device_nodes"]), "cuda.probe", unloadable_probe()),
            True,
        ),
        ("uvm_not_ready", without(put(HEALTHY, "kernel.modules", ()), ["driver.device_nodes"]), True),
    ],
)
def test_a_claim_of_two_parts_is_settled_by_the_one_that_decides(
    name: str, host: Host, expected: bool | None
) -> None:
    assert holds(name, host) is expected


def test_one_card_that_the_matrix_lacks_leaves_the_others_answers_open() -> None:
    mixed = device(reports(HEALTHY, gpus=()), 1, device_id="10de:ffff")
    assert [
        holds(n, mixed) for n in ("gpu_needs_open", "gpu_refuses_open", "gpu_dropped", "gpu_too_new")
    ] == [None] * 4
    assert holds("gpu_dropped", put(device(mixed, device_id=P40), "driver.kernel_version", R595)) is True


def test_one_kernel_that_was_not_read_may_hold_the_module() -> None:
    unread = {"nvidia_modules": Absent(reason="denied")}
    assert holds("module_nowhere", kernels(UNLOADED, (RELEASE, NO_MODULE), (OTHER_RELEASE, unread))) is None


def test_no_module_directory_at_all_proves_nothing() -> None:
    # NixOS keeps its modules elsewhere.
    bare = put(UNLOADED, "kernel.installed", ())
    assert [holds(n, bare) for n in ("module_nowhere", "module_on_disk")] == [None, None]
    gone = kernels(UNLOADED, (OTHER_RELEASE, NO_MODULE))
    assert [holds(n, gone) for n in ("module_nowhere", "module_on_disk")] == [True, False]
    spoke = said(gone, ("legacy_gpu", "NVRM: The 595.71.05 NVIDIA driver will ignore this GPU."))
    assert [holds(n, spoke) for n in ("module_nowhere", "module_on_disk")] == [None, None]


def test_the_driver_itself_may_say_that_a_gpu_is_lost() -> None:
    assert holds("gpu_lost_said", reports(LOST, device_errors=("index 1: GPU is lost",))) is True
    assert holds("gpu_lost_said", reports(LOST, error="GPU is lost", gpus=())) is True


def test_one_witness_that_is_not_installed_does_not_speak_for_the_other() -> None:
    host = put(without(HEALTHY, ["driver.nvml"], "timeout"), "driver.smi", NOT_THERE)
    assert holds("nvml_answers", host) is None


# --- what the kernel's words do and do not say ----------------------------------------------------

REFUSAL = ("module_signature_rejected", "Loading of module with unavailable key is rejected")
NAMED = (
    "module_signature_rejected",
    "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
)
NO_WORD = without_module(HEALTHY)
SPOKEN = said(NO_WORD, ("probe_failed", "NVRM: The NVIDIA probe routine was not called for 1 device(s)."))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (said(NO_WORD, REFUSAL), True),
        (said(SPOKEN, REFUSAL), False),
        (said(UNBUILT, REFUSAL), False),
        (said(without(NO_WORD, ["kernel.installed"]), REFUSAL), None),
        (said(without(NO_WORD, ["kernel.installed"]), NAMED), True),
        (said(HEALTHY, REFUSAL), False),
    ],
    ids=["on disk, silent", "it has spoken", "not on disk", "disk not read", "it is named", "loaded"],
)
def test_a_refusal_that_names_no_module_is_about_nvidia_only_where_nothing_speaks_against_it(
    host: Host, expected: bool | None
) -> None:
    assert holds("signature_rejected", host) is expected
    if expected is not None:
        assert holds("signature_blocks", host) is expected


def test_modprobe_that_could_not_insert_the_module_says_that_it_is_not_loaded() -> None:
    unread = without(NO_WORD, ["driver.kernel_version", "kernel.modules", "driver.nvml", "driver.smi"])
    assert holds("module_loaded", unread) is None
    assert holds("module_loaded", said(unread, NAMED)) is False


ENFORCED = having(UNLOADED, {"kernel.secure_boot": "enabled", "kernel.lockdown": "integrity"})
DKMS_KEY = "host Secure Boot Module Signature key"


def signed_by(signer: str, *enrolled: str, pending: tuple[str, ...] = ()) -> Host:
    files = known_of(module_files(RELEASE, signer=signer))
    keys = {"machine.enrolled_keys": enrolled, "machine.pending_keys": pending}
    return having(ENFORCED, {**keys, "kernel.installed": (installed_kernel(RELEASE, nvidia_modules=files),)})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (signed_by(DKMS_KEY, "CN=Canonical Ltd. Master CA"), True),
        (signed_by(DKMS_KEY, f"CN={DKMS_KEY}"), False),
        (signed_by("NVIDIA", "CN=Rocky Secure Boot Signing"), True),
        (signed_by("Canonical Ltd. 2025 Kernel Module Signing"), False),
        (without(signed_by(DKMS_KEY), ["machine.enrolled_keys"]), False),
    ],
    ids=["dkms's own, not enrolled", "enrolled", "NVIDIA's", "built into the kernel", "keys not read"],
)
def test_a_key_that_is_not_enrolled_is_why_a_module_is_not_loaded(host: Host, expected: bool) -> None:
    assert holds("signature_blocks", host) is expected
    named = [c.id for c in answer(host).causes]
    assert (named == ["driver.module_signature_rejected"]) is expected


def test_a_key_that_waits_for_the_console_is_said_to() -> None:
    claimed = evaluate("signature_blocks", case_of(signed_by(DKMS_KEY, pending=(f"CN={DKMS_KEY}",))))
    assert "waits for a person at the console" in claimed.because


MISSED = ("other", f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{RELEASE}")


def test_modprobe_that_found_no_module_says_that_there_is_none_for_the_running_kernel() -> None:
    unread = without(
        NO_WORD,
        ["driver.kernel_version", "kernel.modules", "driver.nvml", "driver.smi", "kernel.installed"],
    )
    assert (holds("module_on_disk", unread), holds("module_loaded", unread)) == (None, None)
    told = said(unread, MISSED)
    assert (holds("module_on_disk", told), holds("module_loaded", told)) == (False, False)
    other = said(put(unread, "kernel.release", OTHER_RELEASE), MISSED)
    assert (holds("module_on_disk", other), holds("module_loaded", other)) == (None, None)
    assert holds("module_on_disk", said(healthy(), MISSED)) is True


RELEASE_WORD = (
    "NVRM: The NVIDIA GPU 0000:41:00.0 (PCI ID: {id}) installed in this system is not supported by the "
    "NVIDIA {release} driver release. Please see 'Appendix A - Supported NVIDIA GPU Products'"
)


@pytest.mark.parametrize(
    ("device_id", "release", "dropped", "too_new"),
    [
        (P40, "595.58.03", True, None),
        (RTX_5090, "550.144.03", None, True),
        (H100, "580.178.04", None, None),
        ("10de:ffff", "580.178.04", None, None),
    ],
    ids=["dropped", "not yet known", "the matrix says otherwise", "not in the matrix"],
)
def test_a_release_that_does_not_support_a_gpu_drops_it_or_is_too_old_for_it(
    device_id: str, release: str, dropped: bool | None, too_new: bool | None
) -> None:
    facts = ["pci", "driver.kernel_version", "driver.nvml", "driver.smi", "cuda.probe", "kernel.installed"]
    unread = without(healthy(), [*facts, "driver.userspace_version"])
    log = at(unread, "kernel.logs").value[0]
    text = RELEASE_WORD.format(id=device_id, release=release)
    word = KernelMessage(kind="unsupported_gpu", text=text, gpu=FIRST, device_id=device_id)
    host = put(unread, "kernel.logs", (msgspec.structs.replace(log, messages=(word,)),))
    assert (holds("gpu_dropped", host), holds("gpu_too_new", host)) == (dropped, too_new)
    named = [c.id for c in answer(host).causes]
    wanted = {True: "driver.gpu_dropped_by_branch"}.get(dropped is True) or "driver.branch_too_old_for_gpu"
    assert named == ([wanted] if dropped or too_new else ["unknown"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvidia-gpu 0000:41:00.3: i2c timeout error e0000000", True),
        ("nvidiafb: Device ID: 10de26b9", True),
        ("nvidia: loading out-of-tree module taints kernel.", False),
        ("nvidia 0000:41:00.0: enabling device (0000 -> 0003)", False),
        ("nvidia-nvlink: Nvlink Core is being initialized, major device number 237", False),
        ("NVRM: a word", False),
    ],
)
def test_only_words_of_the_driver_s_own_modules_show_that_it_was_loaded(text: str, expected: bool) -> None:
    assert holds("load_not_tried", said(NO_WORD, ("other", text))) is expected


def test_a_mismatch_that_nvml_met_shows_a_loaded_module() -> None:
    unread = without(HEALTHY, ["driver.kernel_version", "kernel.modules"])
    met = reports(
        unread, error="Driver/library version mismatch", error_code=18, gpus=(), driver_version=None
    )
    assert (holds("module_loaded", met), holds("userspace_differs", met)) == (True, True)


OPEN_REFUSES = (
    "unsupported_gpu",
    f"NVRM: The NVIDIA GPU {FIRST} (PCI ID: 10de:1db5) is not supported by open nvidia.ko",
    FIRST,
)
LEGACY = ("legacy_gpu", "NVRM: The GeForce GTX 680 is supported through the NVIDIA 470.xx Legacy drivers.")


def test_the_kernel_s_own_words_name_card_and_flavour_where_no_file_was_read() -> None:
    bare = without(NO_WORD, ["pci", "driver.flavour", "kernel.installed", "driver.nvml", "driver.smi"])
    assert holds("flavour_open", said(bare, OPEN_REFUSES)) is True
    assert holds("flavour_proprietary", said(bare, OPEN_REFUSES)) is False
    assert holds("gpu_refuses_open", said(bare, OPEN_REFUSES)) is True
    assert holds("gpu_dropped", said(bare, LEGACY)) is True


def test_a_card_that_the_driver_lists_is_not_refused_whatever_was_said_or_the_matrix_says() -> None:
    assert holds("gpu_refuses_open", said(HEALTHY, OPEN_REFUSES)) is False
    assert holds("gpu_dropped", said(HEALTHY, LEGACY)) is False
    assert holds("gpu_needs_open", device(HEALTHY, device_id=RTX_5090)) is False


def test_a_container_sees_cards_on_the_bus_that_it_was_not_given() -> None:
    one = put(lost_gpu(in_container()), "cuda.probe", working_probe(device_count=1))
    assert holds("some_gpu_down", one) is False
