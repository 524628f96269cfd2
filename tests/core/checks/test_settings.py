"""How the driver is set up: known faults of the release, GSP firmware, options, origin of packages."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import Host, ModprobeLine
from doctor.core.versions import Dotted
from tests.core.hosts import (
    FIRST,
    answer,
    expect,
    findings,
    gpu,
    having,
    healthy,
    in_container,
    in_wsl2,
    packages_of,
    put,
    reports,
    without,
    without_module,
)
from tests.core.pairs_machine import (
    GSP_TIMEOUT,
    LOADING,
    NVIDIA,
    R525,
    R525_MENDED,
    UBUNTU,
    driven_by,
    driver_from,
    events,
)

GSP_525 = "gsp-rpc-timeout-525"


def options(*arguments: str, module: str = "nvidia", **loaded: str) -> Host:
    lines = tuple(
        ModprobeLine(file="/etc/modprobe.d/x.conf", directive="options", module=module, arguments=a)
        for a in arguments
    )
    return having(healthy(), {"kernel.module_options": lines, "driver.parameters": loaded})


CASES: dict[str, tuple[str, Host, Status, str, str]] = {
    "no fault known": ("driver.known_bug", healthy(), "pass", "", "none of 580"),
    "a fault that does not show": (
        "driver.known_bug",
        driven_by(healthy(), R525),
        "pass",
        GSP_525,
        "525.105.17",
    ),
    "a fault that shows": (
        "driver.known_bug",
        events(driven_by(healthy(), R525), GSP_TIMEOUT),
        "warn",
        GSP_525,
        "time out",
    ),
    "a fault that showed before the driver was loaded": (
        "driver.known_bug",
        events(driven_by(healthy(), R525), GSP_TIMEOUT, LOADING),
        "pass",
        GSP_525,
        "525.105.17",
    ),
    "the release that mends it": (
        "driver.known_bug",
        driven_by(healthy(), R525_MENDED),
        "pass",
        "",
        "none of",
    ),
    "another branch": (
        "driver.known_bug",
        driven_by(healthy(), Dotted("570.86.15")),
        "pass",
        "accounting-null-pointer-570",
        "570.133.20",
    ),
    "firmware not told": ("driver.gsp_firmware", healthy(), "skip", FIRST, "not told"),
    "without firmware": (
        "driver.gsp_firmware",
        gpu(healthy(), gsp_firmware="N/A"),
        "skip",
        FIRST,
        "without GSP",
    ),
    "firmware of the driver": (
        "driver.gsp_firmware",
        gpu(healthy(), gsp_firmware="580.178.04"),
        "pass",
        FIRST,
        "580",
    ),
    "firmware of another one": (
        "driver.gsp_firmware",
        gpu(healthy(), gsp_firmware="580.95.05"),
        "warn",
        FIRST,
        "580.95.05",
    ),
    "firmware, and no driver version to compare": (
        "driver.gsp_firmware",
        without(
            gpu(reports(healthy(), driver_version=None), gsp_firmware="580.95.05"),
            ["driver.kernel_version"],
            "denied",
        ),
        "unknown",
        FIRST,
        "needs root",
    ),
    "no options told": (
        "driver.module_parameters",
        put(healthy(), "driver.parameters", {}),
        "skip",
        "",
        "none",
    ),
    "none told that could wait": (
        "driver.options_in_force",
        options("NVreg_EnableMSI=0"),
        "skip",
        "",
        "none",
    ),
    "default options": ("driver.module_parameters", healthy(), "pass", "", "defaults"),
    "MSI off": (
        "driver.module_parameters",
        put(healthy(), "driver.parameters", {"EnableMSI": "0", "EnableGpuFirmware": "18"}),
        "pass",
        "EnableMSI",
        "EnableMSI=0",
    ),
    "GPUs left out": (
        "driver.module_parameters",
        put(healthy(), "driver.parameters", {"ExcludedGpus": "0000:41:00.0"}),
        "pass",
        "ExcludedGpus",
        "0000:41:00.0",
    ),
    "nothing waits": ("driver.options_in_force", healthy(), "pass", "", "none differs"),
    "in force": (
        "driver.options_in_force",
        options("NVreg_EnableMSI=0x1", EnableMSI="1"),
        "pass",
        "",
        "none differs",
    ),
    "a mode in octal": (
        "driver.options_in_force",
        options("NVreg_DeviceFileMode=0666", DeviceFileMode="438"),
        "pass",
        "",
        "none differs",
    ),
    "waits": (
        "driver.options_in_force",
        options("NVreg_EnableGpuFirmware=0 NVreg_X=1", EnableGpuFirmware="18"),
        "pass",
        "EnableGpuFirmware",
        "EnableGpuFirmware is 18",
    ),
    "of another module": (
        "driver.options_in_force",
        options("NVreg_EnableMSI=0", module="nvidia_drm", EnableMSI="1"),
        "pass",
        "",
        "none differs",
    ),
    "one vendor": ("driver.package_origins", driver_from(UBUNTU, UBUNTU, UBUNTU), "pass", "", "ubuntu.com"),
    "two vendors": ("driver.package_origins", driver_from(UBUNTU, NVIDIA, UBUNTU), "warn", "", "nvidia.com"),
    "no packages": (
        "driver.package_origins",
        put(healthy(), "packages", packages_of()),
        "skip",
        "",
        "packages",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    check_id, host, status, subject, words = CASES[name]
    expect(host, check_id, status, subject, words)


@pytest.mark.parametrize(
    ("check_id", "fact"),
    [
        ("driver.known_bug", "driver.kernel_version"),
        ("driver.module_parameters", "driver.parameters"),
        ("driver.options_in_force", "kernel.module_options"),
        ("driver.package_origins", "packages"),
    ],
)
def test_without_its_fact_it_is_not_known(check_id: str, fact: str) -> None:
    expect(without(healthy(), [fact], "denied"), check_id, "unknown", "")


def test_without_a_witness_the_firmware_is_not_known() -> None:
    expect(without(healthy(), ["driver.nvml", "driver.smi"]), "driver.gsp_firmware", "unknown", "")


@pytest.mark.parametrize(
    "check_id",
    ["driver.known_bug", "driver.module_parameters", "driver.options_in_force", "driver.package_origins"],
)
def test_it_does_not_apply_inside_a_container(check_id: str) -> None:
    expect(in_container(), check_id, "skip", "")


def test_it_does_not_apply_without_a_module_or_under_wsl2() -> None:
    expect(without_module(healthy()), "driver.known_bug", "skip", "")
    expect(in_wsl2(), "driver.gsp_firmware", "skip", "")


def test_a_known_fault_that_does_not_show_is_no_advice() -> None:
    report = answer(driven_by(healthy(), R525))
    assert not [a for a in report.advice if "known" in a.id]
    assert [f.status for f in findings(driven_by(healthy(), R525), "driver.known_bug")] == ["pass"]
