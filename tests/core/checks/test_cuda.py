"""The checks of CUDA: does it start, which libcuda, does the driver speak what the toolkits need."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import Absent, AbsentReason, CudaProbe, Host, Toolkit
from doctor.core.versions import Dotted
from tests.core.hosts import (
    DRIVER,
    H100,
    L40S,
    LIBRARY_DIR,
    NOT_THERE,
    P40,
    REASONS,
    RTX_5090,
    answer,
    beside_a_driver_container,
    compat_library,
    device,
    devices,
    expect,
    failing_probe,
    having,
    healthy,
    in_container,
    in_wsl2,
    known_of,
    library,
    no_driver,
    put,
    unloadable_probe,
    without,
    working_probe,
)

NEWER, OLDER = Dotted("595.104.02"), Dotted("570.124.06")

INIT: dict[str, tuple[Host, Status, str]] = {
    "starts": (healthy(), "pass", f"2 device(s), libcuda from `{LIBRARY_DIR}/libcuda.so.580.178.04`"),
    "starts, devices not counted": (
        put(healthy(), "cuda.probe", working_probe(device_count=None)),
        "pass",
        "starts",
    ),
    "fails": (
        put(healthy(), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN")),
        "fail",
        "999 CUDA_ERROR_UNKNOWN",
    ),
    "fails for want of the fabric manager": (
        put(healthy(), "cuda.probe", failing_probe(802, "CUDA_ERROR_SYSTEM_NOT_READY")),
        "fail",
        "802",
    ),
    "cannot be loaded": (
        put(healthy(), "cuda.probe", unloadable_probe()),
        "fail",
        "cannot open shared object",
    ),
    "cannot be loaded but for the caller's variable": (
        having(
            healthy(),
            {
                "cuda.probe": unloadable_probe(),
                "cuda.probe_caller": working_probe(library_path="/opt/nv/libcuda.so.1"),
            },
        ),
        "warn",
        "/opt/nv/libcuda.so.1",
    ),
    "not on the host": (put(healthy(), "cuda.probe", NOT_THERE), "fail", "not on the host"),
    "did not return": (put(healthy(), "cuda.probe", CudaProbe()), "unknown", "did not return"),
    "not asked, as in a foreign report": (without(healthy(), ["cuda.probe"]), "skip", "not asked"),
    "in a container": (in_container(), "pass", "2 device(s)"),
    "under WSL2": (in_wsl2(), "pass", "/usr/lib/wsl/lib"),
    "no GPU here": (put(no_driver(), "pci", ()), "skip", "no NVIDIA GPU"),
}


@pytest.mark.parametrize("name", INIT)
def test_init(name: str) -> None:
    host, status, found = INIT[name]
    expect(host, "cuda.init", status, "", found)


@pytest.mark.parametrize("reason", [r for r in REASONS if r != "not_collected"])
def test_init_without_an_answer_leaves_the_verdict_open(reason: AbsentReason) -> None:
    host = put(healthy(), "cuda.probe", Absent(reason=reason, detail="a reason"))
    expect(host, "cuda.init", "unknown", "", "no answer", why="a reason")
    assert answer(host).verdict == "unknown"


def mapped(path: str, version: Dotted | None, code: int = 0) -> Host:
    probe = working_probe if code == 0 else lambda **kw: failing_probe(code, "CUDA_ERROR", **kw)
    return put(healthy(), "cuda.probe", probe(library_path=path, library_version=version))


def compat(version: Dotted, code: int = 0) -> Host:
    return mapped(f"/usr/local/cuda-13.0/compat/libcuda.so.{version}", version, code)


def only_on_disk(*libraries: object) -> Host:
    return having(without(healthy(), ["cuda.probe"]), {"driver.libraries": libraries})


LIBCUDA: dict[str, tuple[Host, Status, str]] = {
    "of the driver": (healthy(), "pass", "580.178.04 from"),
    "a newer compat library that works": (compat(NEWER), "pass", "595.104.02"),
    "a newer compat library that does not": (compat(NEWER, 804), "fail", "compat library 595.104.02"),
    "an older compat library": (compat(OLDER, 803), "fail", "compat library 570.124.06"),
    "another version outside compat": (mapped("/opt/libcuda.so.1", OLDER, 803), "skip", "userspace_match"),
    "another version that works": (mapped("/opt/libcuda.so.1", OLDER), "pass", "works with driver"),
    "no version in the name": (mapped("/opt/libcuda.so.1", None), "skip", "no version"),
    "no driver": (no_driver(), "skip", "not loaded"),
    "a lone compat library that nothing loads": (
        having(healthy(), {"cuda.probe": unloadable_probe(), "driver.libraries": (compat_library(OLDER),)}),
        "skip",
        "no version",
    ),
    "on disk only, the driver's": (only_on_disk(library("libcuda.so.1")), "pass", "580.178.04"),
    "on disk only, compat first": (only_on_disk(compat_library(NEWER)), "unknown", "was not asked"),
    "on disk only, compat behind the driver's": (
        only_on_disk(compat_library(NEWER, is_default=False), library("libcuda.so.1")),
        "pass",
        "580.178.04",
    ),
    "on disk only, and the loader takes none of them": (
        only_on_disk(compat_library(NEWER, is_default=False)),
        "skip",
        "no version",
    ),
    "in a container": (in_container(), "pass", "580.178.04"),
    "under WSL2": (in_wsl2(), "skip", "Windows"),
}


@pytest.mark.parametrize("name", LIBCUDA)
def test_libcuda(name: str) -> None:
    host, status, found = LIBCUDA[name]
    expect(host, "cuda.libcuda", status, "", found)


def test_forward_compatibility_in_use_is_said() -> None:
    expect(compat(NEWER), "cuda.libcuda", "pass", why="forward compatibility")
    assert answer(compat(NEWER)).verdict == "ready"


# --- toolkits -------------------------------------------------------------------------------------


def toolkit(version: str | None, **fields: object) -> Toolkit:
    values = {
        "path": f"/usr/local/cuda-{version}",
        "version": Dotted(version) if version else None,
        "is_default": True,
        **fields,
    }
    return Toolkit(**values)  # type: ignore[arg-type]


def equipped(*toolkits: Toolkit, driver: Dotted = DRIVER, **more: object) -> Host:
    return having(healthy(), {"cuda.toolkits": toolkits, "driver.kernel_version": driver, **more})


R550 = Dotted("550.163.01")
WITH_COMPAT = {"driver.libraries": known_of((compat_library(DRIVER, is_default=False),))}

FLOOR: dict[str, tuple[Host, Status, str, str]] = {
    "new enough": (healthy(), "pass", "/usr/local/cuda-13.0", "driver 580.178.04"),
    "within the major, PTX needs more": (
        equipped(toolkit("12.9"), driver=R550),
        "pass",
        "/usr/local/cuda-12.9",
        "driver 550.163.01",
    ),
    "too old for the default one": (
        equipped(toolkit("13.0"), driver=R550),
        "fail",
        "/usr/local/cuda-13.0",
        "driver 550.163.01",
    ),
    "too old for one beside": (
        equipped(toolkit("13.0", is_default=False), driver=R550),
        "warn",
        "/usr/local/cuda-13.0",
        "driver 550.163.01",
    ),
    "too old, with a compat library on a data-centre GPU": (
        devices(equipped(toolkit("13.0"), driver=R550, **WITH_COMPAT), device_id=H100),
        "pass",
        "/usr/local/cuda-13.0",
        "driver 550.163.01",
    ),
    "too old, with a compat library that this GPU does not take": (
        devices(equipped(toolkit("13.0"), driver=R550, **WITH_COMPAT), device_id="10de:2684"),
        "fail",
        "/usr/local/cuda-13.0",
        "driver 550.163.01",
    ),
    "newer than the matrix": (
        equipped(toolkit("99.1")),
        "unknown",
        "/usr/local/cuda-99.1",
        "CUDA 99.1 is not in",
    ),
    "of no version": (
        equipped(toolkit(None, path="/usr/local/cuda")),
        "unknown",
        "/usr/local/cuda",
        "not in matrix",
    ),
    "none": (equipped(), "skip", "", "no CUDA toolkit"),
    "not read": (without(healthy(), ["cuda.toolkits"], "denied"), "unknown", "", "root"),
    "driver not read": (without(healthy(), ["driver.kernel_version"], "timeout"), "unknown", "", "in time"),
    "no driver": (put(healthy(), "driver.kernel_version", NOT_THERE), "skip", "", "no driver version"),
    "in a container": (in_container(), "pass", "/usr/local/cuda-13.0", ""),
    "no toolkit under WSL2": (in_wsl2(), "skip", "", "no CUDA toolkit"),
}


@pytest.mark.parametrize("name", FLOOR)
def test_driver_floor(name: str) -> None:
    host, status, subject, found = FLOOR[name]
    expect(host, "cuda.driver_floor", status, subject, found)


def test_the_floor_and_its_reasons_are_said() -> None:
    host = equipped(toolkit("13.0"), driver=R550)
    expect(host, "cuda.driver_floor", "fail", "/usr/local/cuda-13.0", wanted="driver 580.65.06 or newer")
    host = equipped(toolkit("12.9"), driver=R550)
    expect(host, "cuda.driver_floor", "pass", "/usr/local/cuda-12.9", why="575.51.03")


TARGETS: dict[str, tuple[Host, Status, str, str]] = {
    "known": (healthy(), "pass", L40S, "CUDA 13.0 knows 8.9"),
    "too new for the toolkit": (
        device(equipped(toolkit("12.6")), device_id=RTX_5090),
        "warn",
        RTX_5090,
        "12.0",
    ),
    "too old for the toolkit": (devices(healthy(), device_id=P40), "warn", P40, "6.1"),
    "not in the matrix": (
        devices(healthy(), device_id="10de:ffff"),
        "unknown",
        "10de:ffff",
        "not in the matrix",
    ),
    "no default toolkit": (equipped(toolkit("13.0", is_default=False)), "skip", "", "no default"),
    "toolkit not in the matrix": (equipped(toolkit("99.1")), "skip", "", "no default toolkit whose"),
    "no toolkit": (equipped(), "skip", "", "no default"),
    "not read": (without(healthy(), ["cuda.toolkits"], "failed"), "unknown", "", "could not be asked"),
    "bus not read": (without(healthy(), ["pci"], "denied"), "unknown", "", "root"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_toolkit_targets(name: str) -> None:
    host, status, subject, found = TARGETS[name]
    expect(host, "cuda.toolkit_targets", status, subject, found)


def test_each_kind_of_gpu_has_its_own_answer() -> None:
    host = device(equipped(toolkit("12.6")), device_id=RTX_5090)
    expect(host, "cuda.toolkit_targets", "warn", RTX_5090, wanted="sm_120")
    expect(host, "cuda.toolkit_targets", "pass", L40S)


LINK: dict[str, tuple[Host, Status, str, str]] = {
    "one version": (healthy(), "pass", "/usr/local/cuda-13.0", "13.0.2"),
    "nvcc of another": (
        equipped(toolkit("13.0", nvcc_release=Dotted("12.4"))),
        "warn",
        "/usr/local/cuda-13.0",
        "nvcc says 12.4",
    ),
    "no nvcc": (equipped(toolkit("13.0")), "pass", "/usr/local/cuda-13.0", "13.0"),
    "none": (equipped(), "skip", "", "no CUDA toolkit"),
    "known not to be there": (put(healthy(), "cuda.toolkits", NOT_THERE), "skip", "", "no CUDA toolkit"),
    "not read": (without(healthy(), ["cuda.toolkits"], "unreadable"), "unknown", "", "could not be read"),
}


@pytest.mark.parametrize("name", LINK)
def test_toolkit_link(name: str) -> None:
    host, status, subject, found = LINK[name]
    expect(host, "cuda.toolkit_link", status, subject, found)


def test_libraries_in_a_driver_container_are_not_missing() -> None:
    host = beside_a_driver_container()
    expect(host, "cuda.init", "unknown", "", "driver container", why="/run/nvidia/driver")
    expect(host, "driver.nvml", "unknown", "", "driver container")
    expect(host, "driver.userspace_match", "skip", "", "driver container")
    assert "fail" not in {f.status for f in answer(host).findings}


def test_libraries_of_nixos_are_not_missing() -> None:
    path = "/run/opengl-driver/lib/libcuda.so.580.178.04"
    there = (library("libcuda.so.1", path=path, is_default=None),)
    host = having(healthy(), {"cuda.probe": unloadable_probe(), "driver.libraries": there})
    expect(host, "cuda.init", "unknown", "", "loader finds no libcuda", why=path)
    assert answer(host).verdict == "unknown"
    assert "driver.userspace_missing" not in {c.id for c in answer(host).causes}
