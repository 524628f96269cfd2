"""The checks of what joins GPUs: each on hosts where it passes, fails, cannot tell, and does not apply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.core.finding import Status
from doctor.core.host import Host
from doctor.core.host_fabric import NvlinkTotal
from doctor.core.versions import Dotted
from tests.core.hosts import (
    FIRST,
    H100,
    NOT_THERE,
    OLD_DRIVER,
    RELEASE,
    answer,
    at,
    device,
    expect,
    failing_probe,
    findings,
    gpu,
    having,
    healthy,
    in_container,
    installed_kernel,
    known_of,
    library,
    loaded_modules,
    module_files,
    no_driver,
    placed,
    put,
    reports,
    without,
    working_probe,
    wrong,
)
from tests.core.hosts_fabric import (
    B200,
    GB200,
    GPUS,
    NO_UNIT,
    NVSWITCH,
    SERVICE,
    SWITCHES,
    guest,
    hgx,
    hgx_b200,
    joined,
    managed,
    unit,
    waiting,
    with_switches,
)

H100_PCIE, H200_NVL, B200_COUNT = "10de:2331", "10de:233b", 8
DOWN = managed(waiting(hgx()), active="failed", sub="failed")
ABSENT = having(waiting(hgx()), {"system.units": (NO_UNIT,), "fabric.manager_version": NOT_THERE})
REFUSAL = (
    "nv-fabricmanager[2210]: fabric manager NVIDIA GPU driver interface version 580.126.09 "
    "don't match with driver version 580.178.04. Please update with matching NVIDIA driver package."
)
NOTHING_TO_DO = (
    "Detected Pre-NVL5 system",
    "request to query NVSwitch device information failed: Nothing to do [NV_WARN_NOTHING_TO_DO]",
)
NO_UNITS = without(hgx(), ["system.units", "fabric.manager_version"])
IN_CONTAINER = without(placed(waiting(hgx()), "container", "docker"), ["system.units"])


# --- Fabric Manager -------------------------------------------------------------------------------

MANAGER: dict[str, tuple[Host, Status, str]] = {
    "active": (hgx(), "pass", "is active"),
    "active, by NVLink 5": (hgx_b200(), "pass", "is active"),
    "failed, and CUDA waits": (DOWN, "fail", "is failed"),
    "not installed": (ABSENT, "fail", "not installed"),
    "not found by systemd, package untold": (
        put(waiting(hgx()), "system.units", (NO_UNIT,)),
        "fail",
        "not installed",
    ),
    "failed, and cuInit was not asked": (
        without(managed(hgx(), active="failed"), ["cuda.probe"]),
        "fail",
        "is failed",
    ),
    "stopped after CUDA was ready": (managed(hgx(), active="inactive", sub="dead"), "warn", "is inactive"),
    "starting": (managed(waiting(hgx()), active="activating"), "unknown", "is starting"),
    "neither unit nor package was read": (NO_UNITS, "unknown", "was not read"),
    "a driver container runs its own": (
        put(ABSENT, "driver.container_root", "/run/nvidia/driver"),
        "unknown",
        "driver container",
    ),
    "an H100 PCIe alone": (joined(H100_PCIE, 1, state=None), "skip", "no NVSwitch joins"),
    "H200 NVL": (joined(H200_NVL, 2, state=None), "skip", "no NVSwitch joins"),
    "four SXM cards without switches": (joined(H100, 4, state=None), "skip", "no NVSwitch joins"),
    "a rack": (joined(GB200, 4), "skip", "switch trays"),
    "a guest with one of the cards": (guest(), "skip", "provider"),
    "a container": (IN_CONTAINER, "skip", "the host's"),
    "the bus was not read": (without(hgx(), ["pci"]), "skip", "not read"),
}


@pytest.mark.parametrize("name", MANAGER)
def test_manager(name: str) -> None:
    host, status, words = MANAGER[name]
    expect(host, "fabric.manager", status, found=words)


def test_manager_quotes_its_log() -> None:
    host = put(DOWN, "fabric.manager_log", ("older line", NOTHING_TO_DO[1]))
    expect(host, "fabric.manager", "fail", why="NV_WARN_NOTHING_TO_DO")


VERSION: dict[str, tuple[Host, Status, str]] = {
    "equal": (hgx(), "pass", "580.178.04"),
    "another patch level, CUDA waits": (put(DOWN, "fabric.manager_version", OLD_DRIVER), "fail", "580.95.05"),
    "another patch level while CUDA works": (
        put(hgx(), "fabric.manager_version", OLD_DRIVER),
        "warn",
        "580.95.05",
    ),
    "its own log says so": (
        having(without(DOWN, ["fabric.manager_version"]), {"fabric.manager_log": (REFUSAL,)}),
        "fail",
        "by its own log",
    ),
    "its log is of the time before it was mended": (
        having(without(hgx(), ["fabric.manager_version"]), {"fabric.manager_log": (REFUSAL,)}),
        "unknown",
        "not read",
    ),
    "not installed": (ABSENT, "skip", "not installed"),
    "its version was not read": (without(hgx(), ["fabric.manager_version"], "denied"), "unknown", "not read"),
    "no switch": (healthy(), "skip", "no NVSwitch"),
}


@pytest.mark.parametrize("name", VERSION)
def test_manager_version(name: str) -> None:
    host, status, words = VERSION[name]
    expect(host, "fabric.manager_version", status, found=words)


# --- NVLink 5 -------------------------------------------------------------------------------------

BARE_B200 = managed(waiting(hgx_b200()), active="failed")
NVLINK5: dict[str, tuple[Host, Status, str]] = {
    "everything there": (hgx_b200(), "pass", ""),
    "modules missing": (
        put(BARE_B200, "kernel.modules", loaded_modules("nvidia", "nvidia_uvm")),
        "fail",
        "`ib_umad` is not loaded",
    ),
    "no InfiniBand device": (put(BARE_B200, "network.ports", ()), "fail", "no InfiniBand device"),
    "no NVLSM": (
        put(BARE_B200, "fabric.subnet_manager_version", NOT_THERE),
        "fail",
        "NVLSM is not installed",
    ),
    "NVLSM in a driver container": (
        having(
            hgx_b200(),
            {"fabric.subnet_manager_version": NOT_THERE, "driver.container_root": "/run/nvidia/driver"},
        ),
        "unknown",
        "not read",
    ),
    "a module gone after CUDA was ready": (
        put(hgx_b200(), "kernel.modules", loaded_modules("nvidia", "nvidia_uvm", "mlx5_ib")),
        "warn",
        "`ib_umad` is not loaded",
    ),
    "modules not read": (without(hgx_b200(), ["kernel.modules"], "denied"), "unknown", "not read"),
    "NVSwitches on the bus": (hgx(), "skip", "on its PCI bus"),
    "no fabric": (healthy(), "skip", "no NVSwitch"),
    "a guest with one B200": (placed(joined(B200, 1), "vm", "kvm"), "skip", "provider"),
    "a guest with a whole board": (placed(hgx_b200(), "vm", "kvm"), "pass", ""),
    "a guest with eight, of which nothing tells": (
        placed(joined(B200), "vm", "kvm"),
        "skip",
        "not read",
    ),
}


@pytest.mark.parametrize("name", NVLINK5)
def test_nvlink5(name: str) -> None:
    host, status, words = NVLINK5[name]
    expect(host, "fabric.nvlink5", status, found=words)


# --- the state of each GPU ------------------------------------------------------------------------

STATE: dict[str, tuple[Host, Status, str]] = {
    "completed": (hgx(), "pass", "`completed`"),
    "completed, and well": (gpu(hgx(), fabric_status="success"), "pass", "`completed`"),
    "completed with an error": (gpu(hgx(), fabric_status="error_15"), "warn", "`error_15`"),
    "completed with an error, and CUDA fails": (
        put(
            gpu(hgx(), fabric_status="error_15"),
            "cuda.probe",
            failing_probe(802, "CUDA_ERROR_SYSTEM_NOT_READY"),
        ),
        "fail",
        "`error_15`",
    ),
    "in progress, and CUDA waits": (DOWN, "fail", "`in_progress`"),
    "in progress, and cuInit was not asked": (without(DOWN, ["cuda.probe"]), "fail", "`in_progress`"),
    "not started while CUDA works": (hgx(state="not_started"), "warn", "`not_started`"),
    "not started with MIG on": (hgx(state="not_started", mig=True), "pass", "`not_started`"),
    "in progress, and CUDA fails for another reason": (
        put(hgx(state="in_progress"), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN")),
        "unknown",
        "`in_progress`",
    ),
    "a guest that the provider has not joined": (waiting(guest()), "fail", "`in_progress`"),
    "a guest with one card that works": (
        having(guest(), {"driver.nvml": at(joined(H100, 1, state="not_started"), "driver.nvml")}),
        "pass",
        "`not_started`",
    ),
    "inside a container": (IN_CONTAINER, "fail", "`in_progress`"),
}


@pytest.mark.parametrize("name", STATE)
def test_state(name: str) -> None:
    host, status, words = STATE[name]
    expect(host, "fabric.state", status, GPUS[0], words)


def test_state_of_gpus_without_a_fabric() -> None:
    expect(healthy(), "fabric.state", "skip")


# --- switches and links ---------------------------------------------------------------------------

SWITCH: dict[str, tuple[Host, Status, str]] = {
    "bound": (hgx(), "pass", "nvidia-nvswitch"),
    "gone": (device(hgx(), 8, is_responding=False), "fail", "all ones"),
    "no driver, and CUDA waits": (device(DOWN, 8, driver=""), "fail", "no driver"),
    "no driver while CUDA works": (device(hgx(), 8, driver=""), "warn", "no driver"),
    "binding not read": (device(hgx(), 8, driver=None), "unknown", "not read"),
}


@pytest.mark.parametrize("name", SWITCH)
def test_switches(name: str) -> None:
    host, status, words = SWITCH[name]
    expect(host, "fabric.switches", status, SWITCHES[0], words)


def test_switches_do_not_apply_without_any() -> None:
    expect(healthy(), "fabric.switches", "skip")


DARK = NvlinkTotal(gpu=GPUS[0], active=0, inactive=18)


def links(host: Host, **fields: int) -> Host:
    first, *rest = at(host, "fabric.nvlinks").value
    return put(host, "fabric.nvlinks", (msgspec.structs.replace(first, **fields), *rest))


LINKS: dict[str, tuple[Host, Status, str]] = {
    "all active": (hgx(), "pass", "18 active, 0 inactive"),
    "one lost": (links(hgx(), active=17, inactive=1), "warn", "17 active, 1 inactive"),
    "errors counted": (links(hgx(), errors=3), "pass", "3 error(s) counted"),
    "MIG": (links(hgx(mig=True), active=0, inactive=18), "pass", "0 active"),
    "a bridge that nobody plugged": (
        put(
            joined(H200_NVL, 2, state=None),
            "fabric.nvlinks",
            (DARK,),
        ),
        "pass",
        "0 active",
    ),
    "none active on a board": (
        put(hgx(), "fabric.nvlinks", (DARK,)),
        "warn",
        "0 active",
    ),
}


@pytest.mark.parametrize("name", LINKS)
def test_nvlinks(name: str) -> None:
    host, status, words = LINKS[name]
    expect(host, "fabric.nvlinks", status, GPUS[0], words)


@pytest.mark.parametrize(
    ("reason", "status"),
    [("denied", "unknown"), ("timeout", "unknown"), ("not_collected", "skip"), ("not_installed", "skip")],
)
def test_nvlinks_that_were_not_read(reason: str, status: Status) -> None:
    expect(without(hgx(), ["fabric.nvlinks"], reason), "fabric.nvlinks", status)  # type: ignore[arg-type]


# --- a service that nobody needs ------------------------------------------------------------------

HARMLESS = put(managed(healthy(), active="failed", sub="failed"), "fabric.manager_log", NOTHING_TO_DO)


def test_a_failed_manager_without_a_switch_is_a_note_and_no_warning() -> None:
    expect(HARMLESS, "fabric.not_needed", "pass", found="is failed", why="nothing to do")
    report = answer(HARMLESS)
    assert (report.verdict, report.causes, report.advice) == ("ready", (), ()), wrong(HARMLESS)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (hgx(), "skip"),
        (healthy(), "skip"),
        (managed(healthy()), "pass"),
        (put(guest(), "system.units", (unit(active="failed"),)), "pass"),
        (without(HARMLESS, ["pci"]), "unknown"),
    ],
)
def test_not_needed(host: Host, status: Status) -> None:
    expect(host, "fabric.not_needed", status)


# --- IMEX -----------------------------------------------------------------------------------------

RACK = having(
    joined(GB200, 4),
    {"fabric.imex_device_class": True, "fabric.imex_channels": ("channel0",), "fabric.imex_peers": ()},
)
IMEX: dict[str, tuple[Host, Status, str]] = {
    "a channel": (RACK, "pass", "1 channel"),
    "no channel": (put(RACK, "fabric.imex_channels", ()), "warn", "holds no channel"),
    "not read": (without(RACK, ["fabric.imex_channels"], "denied"), "unknown", "not read"),
    "several peers, no channel": (
        having(
            hgx(),
            {
                "fabric.imex_peers": ("10.0.0.1", "10.0.0.2"),
                "fabric.imex_device_class": True,
                "fabric.imex_channels": (),
            },
        ),
        "warn",
        "holds no channel",
    ),
    "an HGX without it": (
        having(hgx(), {"fabric.imex_device_class": True, "fabric.imex_channels": ()}),
        "skip",
        "between hosts",
    ),
}


@pytest.mark.parametrize("name", IMEX)
def test_imex(name: str) -> None:
    host, status, words = IMEX[name]
    expect(host, "fabric.imex", status, found=words)


def test_imex_service_failed() -> None:
    host = put(RACK, "system.units", (unit("nvidia-imex.service", active="failed"),))
    assert {(f.subject, f.status) for f in findings(host, "fabric.imex")} == {
        ("", "pass"),
        ("nvidia-imex.service", "warn"),
    }


# --- what error 802 comes from --------------------------------------------------------------------

BOTH_WRONG = put(put(BARE_B200, "network.ports", ()), "fabric.manager_version", OLD_DRIVER)
CAUSES: dict[str, tuple[Host, str]] = {
    "no Fabric Manager": (ABSENT, "fabric.fm_missing"),
    "failed for a reason of its own": (DOWN, "fabric.fm_missing"),
    "another version": (put(DOWN, "fabric.manager_version", OLD_DRIVER), "fabric.fm_version_mismatch"),
    "its log tells of another version": (
        having(without(DOWN, ["fabric.manager_version"]), {"fabric.manager_log": (REFUSAL,)}),
        "fabric.fm_version_mismatch",
    ),
    "modules of NVLink 5 missing, with the words of a host without switches": (
        having(BARE_B200, {"network.ports": (), "fabric.manager_log": NOTHING_TO_DO}),
        "fabric.nvlink5_prereq_missing",
    ),
    "a guest": (waiting(guest()), "fabric.provider_not_ready"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_error_802_is_named_by_facts(name: str) -> None:
    host, cause = CAUSES[name]
    report = answer(host)
    assert [(c.id, c.is_certain) for c in report.causes] == [(cause, True)], wrong(host)
    assert report.verdict == "not_ready"
    assert not [a for a in report.advice if a.id.startswith("fabric.")]


NEWER = Dotted("580.182.03")
FILES = module_files(RELEASE, version=NEWER)
MISMATCH: dict[str, Any] = {
    "error": "Driver/library version mismatch",
    "error_code": 18,
    "gpus": (),
    "driver_version": None,
}
REBOOT_DUE = having(
    managed(
        reports(hgx(), error="Driver/library version mismatch", error_code=18, gpus=(), driver_version=None),
        active="failed",
    ),
    {
        "driver.userspace_version": NEWER,
        "driver.libraries": (library("libcuda.so.1", NEWER), library("libnvidia-ml.so.1", NEWER)),
        "fabric.manager_version": NEWER,
        "cuda.probe": failing_probe(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        "kernel.installed": (
            installed_kernel(RELEASE, nvidia_modules=known_of(module_files(RELEASE, version=NEWER))),
        ),
    },
)


def test_an_update_that_waits_for_a_reboot_is_one_cause_on_a_board() -> None:
    """Fabric Manager was updated with the driver, and refuses the loaded one until the reboot."""
    report = answer(REBOOT_DUE)
    assert [c.id for c in report.causes] == ["driver.userspace_kernel_mismatch"], wrong(REBOOT_DUE)
    assert "fabric.manager" in report.causes[0].findings
    assert not [a for a in report.advice if a.id.startswith("fabric.")]


def test_a_board_without_a_driver_is_one_cause() -> None:
    host = managed(no_driver(), active="failed")
    host = with_switches(put(host, "pci", at(joined(H100), "pci").value), driver="")
    report = answer(host)
    assert [c.id for c in report.causes] == ["driver.not_installed"], wrong(host)


def test_error_802_of_a_guest_whose_fabric_is_up_is_unknown() -> None:
    """Confidential computing that was not declared ready gives 802 as well."""
    host = put(guest(), "cuda.probe", DOWN.cuda.probe)
    assert [c.id for c in answer(host).causes] == ["unknown"]


def test_two_faults_of_the_fabric_are_two_causes() -> None:
    named = [c.id for c in answer(BOTH_WRONG).causes]
    assert named == ["fabric.nvlink5_prereq_missing", "fabric.fm_version_mismatch"]


def test_error_802_while_everything_seems_in_order_is_unknown() -> None:
    report = answer(waiting(hgx()))
    assert [(c.id, c.is_certain) for c in report.causes] == [("unknown", False)]


@pytest.mark.parametrize("host", [IN_CONTAINER, without(DOWN, ["pci"])], ids=["inside", "no bus"])
def test_error_802_without_the_facts_names_what_may_be(host: Host) -> None:
    cause = answer(host).causes[0]
    assert cause.id == "unknown"
    assert {"fabric.fm_missing", "fabric.fm_version_mismatch", "fabric.provider_not_ready"} <= set(
        cause.tied_with
    )
    assert any("nvidia-fabricmanager" in fact for fact in cause.deciding_facts)


@pytest.mark.parametrize(
    "host",
    [
        hgx(),
        hgx_b200(),
        hgx(state="not_started", mig=True),
        joined(H100_PCIE, 1, state=None),
        joined(H200_NVL, 2, state=None),
        joined(H100, 4, state=None),
        joined(GB200, 4),
        guest(),
        placed(hgx(), "vm", "kvm"),
        HARMLESS,
        in_container(),
    ],
    ids=[
        "hgx",
        "b200",
        "mig",
        "pcie",
        "nvl",
        "four",
        "rack",
        "guest",
        "board",
        "harmless",
        "container",
    ],
)
def test_a_healthy_host_has_nothing_wrong_with_its_fabric(host: Host) -> None:
    mine = {key: words for key, words in wrong(host).items() if key.startswith("fabric.")}
    report = answer(host)
    assert mine == {}
    assert not {c.id for c in (*report.causes, *report.advice)} & {"fabric.fm_missing", "fabric.imex_missing"}


def test_a_manager_lost_sight_of_is_no_cause_for_a_host_that_works() -> None:
    assert answer(NO_UNITS).verdict == "ready"


def test_the_words_of_the_unit_do_not_depend_on_its_suffix() -> None:
    host = put(DOWN, "system.units", (unit("nvidia-fabricmanager", active="failed"),))
    expect(host, "fabric.manager", "fail", found="`nvidia-fabricmanager` is failed")
    assert SERVICE.startswith("nvidia-fabricmanager")


def test_a_switch_is_no_gpu() -> None:
    host = with_switches(gpu(healthy(), fabric_state=None))
    assert NVSWITCH not in {d.device_id for d in host.gpus_on_bus}
    assert FIRST in {d.address for d in host.gpus_on_bus}
    assert put(host, "cuda.probe", working_probe()).gpus_on_bus == host.gpus_on_bus
