"""The checks of the driver: bound, loaded, fitting its libraries and its GPUs, answering."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.finding import Status
from doctor.core.host import Host
from doctor.core.versions import Dotted
from tests.core.hosts import (
    DRIVER,
    FIRST,
    H100,
    NOT_THERE,
    OLD_DRIVER,
    P40,
    REASONS,
    RTX_5090,
    SECOND,
    answer,
    at,
    compat_library,
    device,
    devices,
    driver_packages,
    expect,
    failing_probe,
    findings,
    having,
    healthy,
    in_container,
    in_wsl2,
    installed_kernel,
    known_of,
    library,
    lost_gpu,
    module_files,
    no_driver,
    nodes,
    nvml_gpu,
    package,
    packages_of,
    pci_device,
    placed,
    put,
    reports,
    statuses,
    unloadable_probe,
    without,
    without_module,
)

UNLISTED = "10de:ffff"
UNLOADED = without_module(healthy())
NO_DEVICE = failing_probe(100, "CUDA_ERROR_NO_DEVICE")

# --- binding --------------------------------------------------------------------------------------

BINDING: dict[str, tuple[Host, Status, str]] = {
    "nvidia": (healthy(), "pass", ""),
    "nouveau": (device(healthy(), driver="nouveau"), "fail", "`nouveau`"),
    "no driver": (device(healthy(), driver=""), "fail", "no driver"),
    "handed to a virtual machine": (device(healthy(), driver="vfio-pci"), "skip", "vfio-pci"),
    "handed to one by Grace Hopper's own variant": (
        device(healthy(), driver="nvgrace-gpu-vfio-pci"),
        "skip",
        "nvgrace",
    ),
    "not read": (device(healthy(), driver=None), "unknown", "not read"),
    "an old display card that the matrix lacks, beside GPUs that work": (
        device(lost_gpu(healthy(), FIRST), device_id=UNLISTED, driver=""),
        "warn",
        "no driver",
    ),
    "a card that the matrix lacks, and no other works": (
        devices(UNLOADED, device_id=UNLISTED, driver=""),
        "fail",
        "no driver",
    ),
}


@pytest.mark.parametrize("name", BINDING)
def test_binding(name: str) -> None:
    host, status, found = BINDING[name]
    expect(host, "driver.binding", status, FIRST, found)


def test_of_several_cards_of_an_unlisted_id_one_that_works_shows_that_the_driver_drives_them() -> None:
    host = device(devices(lost_gpu(healthy(), FIRST), device_id=UNLISTED), driver="")
    expect(host, "driver.binding", "fail", FIRST, "no driver")
    expect(host, "driver.gpu_count", "fail", FIRST)


def test_display_cards_of_other_vendors_and_other_functions_are_no_gpus() -> None:
    audio = pci_device("0000:41:00.1", "10de:22ba", class_code="040300", driver="snd_hda_intel")
    switch = pci_device("0000:c1:00.0", "10de:22a3", class_code="068000", driver="nvidia-nvswitch")
    host = put(healthy(), "pci", (*at(healthy(), "pci").value, audio, switch))
    assert {f.subject for f in findings(host, "driver.binding")} == {FIRST, SECOND}
    assert answer(host).verdict == "ready"


# --- module loaded --------------------------------------------------------------------------------

LOADED: dict[str, tuple[Host, Status, str]] = {
    "by its version": (healthy(), "pass", "580.178.04"),
    "by the module list alone": (without(healthy(), ["driver.kernel_version"]), "pass", "`nvidia` is loaded"),
    "without nvidia_drm and nvidia_modeset": (healthy(), "pass", "loaded"),
    "not loaded": (UNLOADED, "fail", "not loaded"),
    "not loaded, and the module list was not read": (
        without(UNLOADED, ["kernel.modules"]),
        "unknown",
        "not collected",
    ),
    "neither was read": (
        without(UNLOADED, ["driver.kernel_version", "kernel.modules"], "denied"),
        "unknown",
        "needs root",
    ),
    "under WSL2": (in_wsl2(), "skip", "Windows"),
    "in a container": (in_container(), "pass", "loaded"),
}


@pytest.mark.parametrize("name", LOADED)
def test_module_loaded(name: str) -> None:
    host, status, found = LOADED[name]
    expect(host, "driver.module_loaded", status, "", found)


# --- user space -----------------------------------------------------------------------------------

REFUSED = reports(
    put(healthy(), "cuda.probe", failing_probe(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
    error="Driver/library version mismatch",
    error_code=18,
    gpus=(),
)

USERSPACE: dict[str, tuple[Host, Status, str]] = {
    "equal": (healthy(), "pass", "both are 580.178.04"),
    "equal as far as NVML tells": (
        put(healthy(), "driver.userspace_version", Dotted("580.178")),
        "pass",
        "580.178.04",
    ),
    "different": (
        put(REFUSED, "driver.kernel_version", OLD_DRIVER),
        "fail",
        "module 580.95.05, libraries 580.178.04",
    ),
    "different on disk, and both witnesses work: other libraries are in use": (
        put(healthy(), "driver.userspace_version", OLD_DRIVER),
        "warn",
        "libraries found 580.95.05",
    ),
    "no library": (put(healthy(), "driver.userspace_version", NOT_THERE), "fail", "no driver library"),
    "library not read": (without(healthy(), ["driver.userspace_version"], "timeout"), "unknown", "in time"),
    "module not loaded": (UNLOADED, "skip", "not loaded"),
    "under WSL2, where the two never match": (in_wsl2(), "skip", "Windows"),
    "in a container": (in_container(), "pass", "both are"),
}


@pytest.mark.parametrize("name", USERSPACE)
def test_userspace_match(name: str) -> None:
    host, status, found = USERSPACE[name]
    expect(host, "driver.userspace_match", status, "", found)


# --- flavour and branch ---------------------------------------------------------------------------

FLAVOUR: dict[str, tuple[Host, Status, str]] = {
    "open on Ada": (healthy(), "pass", "open"),
    "proprietary on Ada": (put(healthy(), "driver.flavour", "proprietary"), "pass", "proprietary"),
    "proprietary on Blackwell": (
        put(device(lost_gpu(healthy(), FIRST), device_id=RTX_5090), "driver.flavour", "proprietary"),
        "fail",
        "proprietary",
    ),
    "open on Pascal": (device(lost_gpu(healthy(), FIRST), device_id=P40), "fail", "open"),
    "open on Pascal, and the driver lists it: then it is the matrix that is wrong": (
        device(healthy(), device_id=P40),
        "warn",
        "open",
    ),
    "proprietary on Pascal": (
        put(device(healthy(), device_id=P40), "driver.flavour", "proprietary"),
        "pass",
        "proprietary",
    ),
    "a card that the matrix lacks": (device(healthy(), device_id=UNLISTED), "unknown", UNLISTED),
}


@pytest.mark.parametrize("name", FLAVOUR)
def test_flavour(name: str) -> None:
    host, status, found = FLAVOUR[name]
    expect(host, "driver.flavour", status, FIRST, found)


def test_the_flavour_on_disk_counts_where_nothing_is_loaded() -> None:
    files = known_of(module_files("k", flavour="proprietary", license="NVIDIA"))
    host = having(
        device(UNLOADED, device_id=RTX_5090),
        {"kernel.release": "k", "kernel.installed": (installed_kernel("k", nvidia_modules=files),)},
    )
    expect(host, "driver.flavour", "fail", FIRST, wanted="the open modules for NVIDIA GeForce RTX 5090")


def test_no_flavour_is_no_verdict() -> None:
    expect(no_driver(), "driver.flavour", "skip", "", "no module")
    expect(in_container(), "driver.flavour", "skip", "", "container")


def branch(device_id: str, version: str) -> Host:
    """The first card is of that id, and the driver of that version does not list it."""
    host = device(lost_gpu(healthy(), FIRST), device_id=device_id)
    return put(host, "driver.kernel_version", Dotted(version))


BRANCH: dict[str, tuple[Host, Status, str]] = {
    "Ada on 580": (healthy(), "pass", "R580"),
    "Pascal on its last branch": (branch(P40, "580.178.04"), "pass", "R580"),
    "Pascal on a later one": (branch(P40, "595.104.02"), "fail", "R595"),
    "Pascal on a later one, and the driver lists it": (
        put(device(healthy(), device_id=P40), "driver.kernel_version", Dotted("595.104.02")),
        "warn",
        "R595",
    ),
    "Blackwell on an older one": (branch(RTX_5090, "550.163.01"), "fail", "R550"),
    "a card that the matrix lacks": (branch(UNLISTED, "580.178.04"), "unknown", UNLISTED),
}


@pytest.mark.parametrize("name", BRANCH)
def test_branch(name: str) -> None:
    host, status, found = BRANCH[name]
    expect(host, "driver.branch", status, FIRST, found)


def test_branch_names_the_one_that_is_wanted() -> None:
    expect(branch(P40, "595.104.02"), "driver.branch", "fail", FIRST, wanted="R580 or older for Tesla P40")
    expect(branch(RTX_5090, "550.163.01"), "driver.branch", "fail", FIRST, wanted="R570 or newer")


def test_branch_without_a_driver_or_on_a_foreign_kernel() -> None:
    expect(no_driver(), "driver.branch", "skip", "", "there is no driver")
    expect(in_container(), "driver.branch", "skip", "", "container")


# --- NVML -----------------------------------------------------------------------------------------

LATE = "index 1: no answer before the deadline"
TABLE = msgspec.structs.replace(at(healthy(), "driver.smi").value, gpus=())

NVML: dict[str, tuple[Host, Status, str]] = {
    "NVML": (healthy(), "pass", "2 GPU(s), driver 580.178.04"),
    "nvidia-smi alone": (without(healthy(), ["driver.nvml"]), "pass", "2 GPU(s)"),
    "nvidia-smi works, NVML's witness finds no library": (
        put(
            healthy(),
            "driver.nvml",
            msgspec.structs.replace(TABLE, error="NVML Shared Library Not Found", error_code=12),
        ),
        "pass",
        "2 GPU(s)",
    ),
    "the table of plain nvidia-smi": (
        put(without(healthy(), ["driver.nvml"]), "driver.smi", TABLE),
        "pass",
        "nvidia-smi answers, driver 580.178.04",
    ),
    "an error": (REFUSED, "fail", "version mismatch"),
    "no GPU": (put(healthy(), "driver.nvml", TABLE), "fail", "no GPU"),
    "stopped by the deadline": (
        put(lost_gpu(healthy()), "driver.nvml", msgspec.structs.replace(TABLE, device_errors=(LATE,))),
        "unknown",
        "in time",
    ),
    "neither is installed": (
        having(healthy(), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE}),
        "fail",
        "neither",
    ),
    "one not installed, the other timed out": (
        without(put(healthy(), "driver.smi", NOT_THERE), ["driver.nvml"], "timeout"),
        "unknown",
        "",
    ),
    "under WSL2": (in_wsl2(), "pass", "driver 581.57"),
    "in a container": (in_container(), "pass", "2 GPU(s)"),
}


@pytest.mark.parametrize("name", NVML)
def test_nvml(name: str) -> None:
    host, status, found = NVML[name]
    expect(host, "driver.nvml", status, "", found)


@pytest.mark.parametrize("reason", REASONS)
def test_silent_witnesses_leave_the_verdict_open(reason: str) -> None:
    host = without(healthy(), ["driver.nvml", "driver.smi"], reason)  # type: ignore[arg-type]
    expect(host, "driver.nvml", "unknown")
    assert answer(host).verdict == "unknown"


# --- count ----------------------------------------------------------------------------------------

LOST = lost_gpu(healthy())

COUNT: dict[str, tuple[Host, Status, str, str]] = {
    "all": (healthy(), "pass", "", "2 of 2"),
    "one is missing": (LOST, "fail", SECOND, "does not list it"),
    "one was left out on purpose": (
        put(LOST, "driver.parameters", {"ExcludedGpus": "GPU-1"}),
        "skip",
        SECOND,
        "ExcludedGpus=GPU-1",
    ),
    "one left out, two missing": (
        put(lost_gpu(LOST, FIRST), "driver.parameters", {"ExcludedGpus": "GPU-1"}),
        "fail",
        SECOND,
        "does not list it",
    ),
    "one did not answer in time": (
        put(
            LOST, "driver.nvml", msgspec.structs.replace(at(LOST, "driver.nvml").value, device_errors=(LATE,))
        ),
        "unknown",
        SECOND,
        "does not list it",
    ),
    "one is handed to a virtual machine": (device(LOST, 1, driver="vfio-pci"), "pass", "", "1 of 1"),
    "addresses were not told": (
        put(healthy(), "driver.nvml", msgspec.structs.replace(TABLE, gpus=(nvml_gpu(0, ""),))),
        "unknown",
        "",
        "addresses were not told",
    ),
    "an old display card that the matrix lacks": (
        device(LOST, 1, device_id=UNLISTED),
        "warn",
        SECOND,
        "not list",
    ),
    "NVML does not answer": (REFUSED, "skip", "", "NVML"),
    "bus not read": (without(healthy(), ["pci"], "unreadable"), "unknown", "", "PCI bus was not read"),
    "in a container": (in_container(), "skip", "", "container"),
    "module not loaded": (UNLOADED, "skip", "", "not loaded"),
}


@pytest.mark.parametrize("name", COUNT)
def test_gpu_count(name: str) -> None:
    host, status, subject, found = COUNT[name]
    expect(host, "driver.gpu_count", status, subject, found)


def test_mig_and_persistence_do_not_change_what_is_listed() -> None:
    gpus = tuple(nvml_gpu(i, a, mig_mode=True, mig_mode_pending=True) for i, a in enumerate((FIRST, SECOND)))
    host = reports(put(healthy(), "cuda.probe", failing_probe(0, "CUDA_SUCCESS", device_count=1)), gpus=gpus)
    assert answer(host).verdict == "ready"


# --- nodes and nvidia_uvm -------------------------------------------------------------------------

NO_NODES = put(healthy(), "driver.device_nodes", ())
SILENT = without(NO_NODES, ["driver.nvml", "driver.smi", "cuda.probe"])

NODES: dict[str, tuple[Host, Status, str]] = {
    "there": (healthy(), "pass", "5 nodes"),
    "not yet made, and everything works": (NO_NODES, "pass", "first use"),
    "not there, and nothing works": (put(REFUSED, "driver.device_nodes", ()), "fail", "/dev/nvidiactl"),
    "not there, and nothing was asked": (SILENT, "unknown", "first use"),
    "not read": (without(healthy(), ["driver.device_nodes"], "denied"), "unknown", "root"),
    "module not loaded": (UNLOADED, "skip", "not loaded"),
    "under WSL2": (put(in_wsl2(), "kernel.modules", NOT_THERE), "skip", "/dev/dxg"),
}


@pytest.mark.parametrize("name", NODES)
def test_device_nodes(name: str) -> None:
    host, status, found = NODES[name]
    expect(host, "driver.device_nodes", status, "", found)


def test_nodes_for_a_group_only_are_noted() -> None:
    closed = put(healthy(), "driver.device_nodes", nodes("/dev/nvidiactl", "/dev/nvidia0", mode="0660"))
    expect(closed, "driver.device_nodes", "pass", why="/dev/nvidia0 open to root and its group only")


def test_nodes_of_capabilities_and_of_other_drivers_are_closed_by_design() -> None:
    more = nodes("/dev/nvidia-caps/nvidia-cap1", "/dev/dri/renderD128", mode="0400")
    host = put(healthy(), "driver.device_nodes", (*at(healthy(), "driver.device_nodes").value, *more))
    assert [f.why for f in findings(host, "driver.device_nodes")] == [()]


NO_UVM = put(
    healthy(), "kernel.modules", tuple(m for m in at(healthy(), "kernel.modules").value if m.name == "nvidia")
)

UVM: dict[str, tuple[Host, Status, str]] = {
    "works": (healthy(), "pass", "cuInit works"),
    "works before the list shows it": (NO_UVM, "pass", "cuInit works"),
    "not loaded, cuInit fails": (put(NO_UVM, "cuda.probe", NO_DEVICE), "fail", "`nvidia_uvm` is not loaded"),
    "node missing, cuInit fails": (
        put(put(healthy(), "driver.device_nodes", nodes("/dev/nvidiactl")), "cuda.probe", NO_DEVICE),
        "fail",
        "/dev/nvidia-uvm",
    ),
    "not loaded, cuInit not asked": (without(NO_UVM, ["cuda.probe"]), "pass", "first CUDA call"),
    "loaded, cuInit fails for another reason": (put(healthy(), "cuda.probe", NO_DEVICE), "pass", "loaded"),
    "half of it not read": (
        without(put(healthy(), "cuda.probe", NO_DEVICE), ["driver.device_nodes"]),
        "unknown",
        "not read",
    ),
    "nothing of it read": (
        without(healthy(), ["driver.device_nodes", "kernel.modules"], "denied"),
        "unknown",
        "root",
    ),
    "module not loaded": (UNLOADED, "skip", "not loaded"),
    "under WSL2": (in_wsl2(), "skip", "WSL2"),
}


@pytest.mark.parametrize("name", UVM)
def test_uvm(name: str) -> None:
    host, status, found = UVM[name]
    expect(host, "driver.uvm", status, "", found)


# --- packages -------------------------------------------------------------------------------------

HALF = packages_of(package("nvidia-dkms-580-open", state="half-configured"))


def test_packages() -> None:
    expect(healthy(), "driver.packages", "pass", "", "whole")
    host = put(healthy(), "packages", HALF)
    expect(host, "driver.packages", "warn", "nvidia-dkms-580-open", "half-configured")
    expect(put(healthy(), "packages", NOT_THERE), "driver.packages", "skip", "", "no package manager")
    expect(in_container(), "driver.packages", "skip", "", "container")


@pytest.mark.parametrize("reason", REASONS)
def test_packages_not_read(reason: str) -> None:
    host = without(healthy(), ["packages"], reason)  # type: ignore[arg-type]
    expect(host, "driver.packages", "unknown")
    expect(host, "driver.install_source", "unknown")


def libraries(*more: object) -> Host:
    return put(healthy(), "driver.libraries", (*at(healthy(), "driver.libraries").value, *more))


STRAY = library(
    "libcuda.so.1", OLD_DRIVER, path="/usr/local/lib/libcuda.so.580.95.05", package="", is_default=False
)
STUB = library(
    "libcuda.so.1", path="/opt/conda/lib/stubs/libcuda.so", version=None, package="", is_default=False
)
HELPER = packages_of(package("nvidia-driver-assistant"), package("nvidia-driver-pinning-580"))

SOURCE: dict[str, tuple[Host, Status, str]] = {
    "packages": (healthy(), "pass", "packages such as"),
    "packages, and a file of nobody": (libraries(STRAY), "warn", "/usr/local/lib/libcuda.so.580.95.05"),
    "files of nobody only": (
        having(healthy(), {"packages": packages_of(), "driver.libraries": (STRAY,)}),
        "pass",
        "without a package",
    ),
    "a runfile, and NVIDIA's helper packages that bring no driver": (
        having(healthy(), {"packages": HELPER, "driver.libraries": (STRAY,)}),
        "pass",
        "without a package",
    ),
    "a stub of conda's toolkit": (libraries(STUB), "pass", "packages such as"),
    "a compat library": (libraries(compat_library(DRIVER, package="")), "pass", "packages such as"),
    "owners not asked": (
        put(healthy(), "driver.libraries", (library("libcuda.so.1", package=None),)),
        "skip",
        "was not asked",
    ),
    "libraries not read": (
        without(healthy(), ["driver.libraries"], "failed"),
        "unknown",
        "could not be asked",
    ),
    "in a container": (in_container(), "skip", "container"),
}


@pytest.mark.parametrize("name", SOURCE)
def test_install_source(name: str) -> None:
    host, status, found = SOURCE[name]
    expect(host, "driver.install_source", status, "", found)


# --- where it runs --------------------------------------------------------------------------------


def test_a_passthrough_guest_is_judged_like_a_machine() -> None:
    host = placed(device(healthy(), numa_node=None, device_id=H100), "vm", "kvm")
    found = {status for (check, _), status in statuses(host).items() if check.startswith("driver.")}
    # What its witnesses do not tell is left out.
    assert found - {"skip"} == {"pass"}


def test_a_container_without_the_gpu_fails_on_its_own_side_only() -> None:
    host = having(
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
    failed = {check for (check, _), status in statuses(host).items() if status == "fail"}
    assert failed == {
        "driver.userspace_match",
        "driver.nvml",
        "driver.device_nodes",
        "driver.uvm",
        "cuda.init",
    }


def test_driver_packages_are_those_that_bring_a_driver() -> None:
    names = {p.name for p in driver_packages().installed}
    assert names == {"nvidia-driver-580-open", "nvidia-dkms-580-open", "libnvidia-compute-580"}
