"""The checks of the kernel side: on disk, headers, DKMS, signatures, the next boot, the log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.core.finding import Status
from doctor.core.host import Absent, BootLog, Host, KernelMessage
from tests.core.hosts import (
    FIRST,
    NOT_THERE,
    OTHER_RELEASE,
    REASONS,
    RELEASE,
    SECOND,
    answer,
    at,
    device,
    devices,
    dkms_build,
    expect,
    failing_probe,
    findings,
    having,
    healthy,
    in_container,
    in_wsl2,
    installed_kernel,
    known_of,
    lost_gpu,
    module_files,
    no_driver,
    put,
    said,
    without,
    without_module,
    without_module_file,
)

ERROR = "nv.c:1: error: too few arguments to function"
FAILED_BUILD = (dkms_build(state="failed", failure=ERROR, log="/var/lib/dkms/nvidia/make.log"),)
UNLOADED = without_module(healthy())
UNBUILT = without_module_file(UNLOADED)
SECURE = {"kernel.secure_boot": "enabled", "kernel.lockdown": "integrity"}
REFUSAL = ("module_signature_rejected", "Loading of module with unavailable key is rejected")


def kernels(*entries: tuple[str, dict[str, Any]]) -> tuple[object, ...]:
    return tuple(installed_kernel(release, **fields) for release, fields in entries)


NO_MODULE = {"nvidia_modules": known_of(())}
IGNORED = ("legacy_gpu", "NVRM: The 595.71.05 NVIDIA driver will ignore this GPU.")
PLACE = "nvidia_vma_access+0x8b/0x2a0 [nvidia]"
OOPS = ("oops", f"BUG: kernel NULL pointer dereference, address: 0000000000000030, stopped at {PLACE}")

MODULE_ON_DISK: dict[str, tuple[Host, Status, str]] = {
    "a file": (healthy(), "pass", f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko.zst` 580.178.04"),
    "loaded without a file, as images and driver containers do": (
        without_module_file(healthy()),
        "pass",
        "the module is loaded",
    ),
    "loaded without any kernel directory": (put(healthy(), "kernel.installed", ()), "pass", "loaded"),
    "not loaded, no file": (UNBUILT, "fail", "none"),
    "not loaded, no directory for this kernel": (
        put(UNLOADED, "kernel.installed", kernels((OTHER_RELEASE, {}))),
        "fail",
        "none",
    ),
    "not loaded, no directory for this kernel, and the driver spoke": (
        put(said(UNLOADED, IGNORED), "kernel.installed", kernels((OTHER_RELEASE, {}))),
        "unknown",
        "no file was found",
    ),
    "not loaded, nothing below `/lib/modules`": (
        put(UNLOADED, "kernel.installed", ()),
        "unknown",
        "no file was found",
    ),
    "not loaded, module directories not read": (
        without(UNLOADED, ["kernel.installed"], "denied"),
        "unknown",
        "/lib/modules",
    ),
    "not loaded, this kernel's directory not read": (
        put(UNLOADED, "kernel.installed", kernels((RELEASE, {"nvidia_modules": Absent(reason="denied")}))),
        "unknown",
        "not read",
    ),
    "no file, and whether it is loaded was not read": (
        without(UNBUILT, ["driver.kernel_version", "kernel.modules"], "denied"),
        "unknown",
        "whether the module is loaded",
    ),
    "not loaded, running release not known": (
        without(UNBUILT, ["kernel.release"]),
        "unknown",
        "release of the running kernel",
    ),
    "in a container": (in_container(), "skip", "container"),
    "under WSL2": (in_wsl2(), "skip", "Windows"),
}


@pytest.mark.parametrize("name", MODULE_ON_DISK)
def test_module_on_disk(name: str) -> None:
    host, status, found = MODULE_ON_DISK[name]
    expect(host, "kernel.module_on_disk", status, "", found)


def test_a_module_for_another_kernel_is_named() -> None:
    host = put(UNLOADED, "kernel.installed", kernels((RELEASE, NO_MODULE), (OTHER_RELEASE, {})))
    expect(host, "kernel.module_on_disk", "fail", "", "none", why=OTHER_RELEASE)


HEADERS: dict[str, tuple[Host, Status, str]] = {
    "there": (healthy(), "pass", f"/lib/modules/{RELEASE}/build` is there"),
    "missing while the module is there": (
        put(healthy(), "kernel.installed", kernels((RELEASE, {"has_headers": False}))),
        "warn",
        "leads nowhere",
    ),
    "missing, and no module": (
        put(UNLOADED, "kernel.installed", kernels((RELEASE, {"has_headers": False, **NO_MODULE}))),
        "fail",
        "leads nowhere",
    ),
    "not read": (
        put(healthy(), "kernel.installed", kernels((RELEASE, {"has_headers": None}))),
        "unknown",
        "not read",
    ),
    "no directory of the kernel was read": (without(healthy(), ["kernel.installed"]), "unknown", "not read"),
    "nothing is built by dkms": (put(healthy(), "kernel.dkms", NOT_THERE), "skip", "dkms"),
    "dkms builds GPUDirect Storage only, the driver comes prebuilt": (
        put(healthy(), "kernel.dkms", (dkms_build(module="nvidia-fs", version="2.25.6"),)),
        "skip",
        "dkms",
    ),
    "in a container": (in_container(), "skip", "container"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(name: str) -> None:
    host, status, found = HEADERS[name]
    expect(host, "kernel.headers", status, "", found)


DKMS: dict[str, tuple[Host, Status, str]] = {
    "installed": (healthy(), "pass", f"580.178.04 {RELEASE} installed"),
    "an old failure, and the module is there": (put(healthy(), "kernel.dkms", FAILED_BUILD), "pass", "580"),
    "failed, no module": (put(UNBUILT, "kernel.dkms", FAILED_BUILD), "fail", ERROR),
    "failed without naming a kernel": (
        put(UNBUILT, "kernel.dkms", (dkms_build(kernel="", state="failed", failure=ERROR),)),
        "fail",
        f"was not built for {RELEASE}",
    ),
    "failed for another kernel only": (
        put(UNBUILT, "kernel.dkms", (dkms_build(kernel=OTHER_RELEASE, state="failed", failure=ERROR),)),
        "pass",
        OTHER_RELEASE,
    ),
    "failed, and whether a module is there was not read": (
        without(put(UNLOADED, "kernel.dkms", FAILED_BUILD), ["kernel.installed"]),
        "unknown",
        ERROR,
    ),
    "no dkms": (put(healthy(), "kernel.dkms", NOT_THERE), "skip", "dkms"),
    "dkms knows other modules": (
        put(UNBUILT, "kernel.dkms", (dkms_build(module="nvidia-fs", state="failed", failure=ERROR),)),
        "skip",
        "dkms",
    ),
    "in a container": (in_container(), "skip", "container"),
}


@pytest.mark.parametrize("name", DKMS)
def test_dkms(name: str) -> None:
    host, status, found = DKMS[name]
    expect(host, "kernel.dkms", status, "", found)


def test_the_log_of_a_failed_build_is_named() -> None:
    host = put(UNBUILT, "kernel.dkms", FAILED_BUILD)
    expect(host, "kernel.dkms", "fail", why="/var/lib/dkms/nvidia/make.log", wanted="built")


UNSIGNED = put(
    UNLOADED,
    "kernel.installed",
    kernels((RELEASE, {"nvidia_modules": known_of(module_files(RELEASE, signer=""))})),
)
UNDESCRIBED = put(
    UNLOADED,
    "kernel.installed",
    kernels(
        (
            RELEASE,
            {
                "nvidia_modules": known_of(
                    module_files(RELEASE, signer="", version=None, license="", vermagic="", flavour=None)
                )
            },
        )
    ),
)

MISSED = ("other", f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{RELEASE}")


def test_modprobe_that_found_none_says_that_there_is_none() -> None:
    unread = without(UNLOADED, ["kernel.installed"])
    expect(unread, "kernel.module_on_disk", "unknown")
    expect(said(unread, MISSED), "kernel.module_on_disk", "fail", found="not found in directory")


SIGNATURE: dict[str, tuple[Host, Status, str]] = {
    "loaded": (having(healthy(), SECURE), "pass", "loaded"),
    "not loaded, nothing enforces": (UNLOADED, "pass", "neither Secure Boot nor lockdown"),
    "refused by the kernel's word": (said(having(UNLOADED, SECURE), REFUSAL), "fail", "rejected"),
    "refused by a kernel that enforces without Secure Boot": (said(UNLOADED, REFUSAL), "fail", "rejected"),
    "refused by lockdown's word": (
        said(
            having(UNLOADED, SECURE),
            ("lockdown", "Lockdown: modprobe: unsigned module loading is restricted"),
        ),
        "fail",
        "restricted",
    ),
    "enforced, no signature": (having(UNSIGNED, SECURE), "fail", "carries no signature"),
    "enforced by the command line, no signature": (
        put(UNSIGNED, "kernel.command_line", ("ro", "module.sig_enforce=1")),
        "fail",
        "module.sig_enforce=1",
    ),
    "no signature, Secure Boot on and lockdown off: nothing enforces it": (
        having(UNSIGNED, {"kernel.secure_boot": "enabled"}),
        "pass",
        "neither",
    ),
    "no signature on a kernel before lockdown, Secure Boot on": (
        having(UNSIGNED, {"kernel.secure_boot": "enabled", "kernel.lockdown": NOT_THERE}),
        "fail",
        "Secure Boot is enabled",
    ),
    "enforced, modinfo did not run": (having(UNDESCRIBED, SECURE), "unknown", "signer was not read"),
    "enforced, signed, key enrolled": (
        having(UNLOADED, {**SECURE, "machine.enrolled_keys": ("CN=host Secure Boot Module Signature key",)}),
        "pass",
        "whose key is enrolled",
    ),
    "enforced, signed, key not enrolled": (
        having(UNLOADED, {**SECURE, "machine.enrolled_keys": ("CN=Canonical Ltd. Master CA",)}),
        "fail",
        "not enrolled",
    ),
    "modprobe found none": (
        said(without(having(UNLOADED, SECURE), ["kernel.installed"]), MISSED),
        "skip",
        "no module",
    ),
    "enforced, signed, key not known": (having(UNLOADED, SECURE), "unknown", "Module Signature key"),
    "a key message where nothing enforces": (
        said(UNLOADED, ("module_signature_rejected", "PKCS#7 signature not signed with a trusted key")),
        "pass",
        "neither",
    ),
    "enforced, no module on disk": (having(UNBUILT, SECURE), "skip", "no module"),
    "neither state read": (
        without(UNLOADED, ["kernel.secure_boot", "kernel.lockdown"], "denied"),
        "unknown",
        "Secure Boot",
    ),
    "not known whether it is loaded": (
        without(UNSIGNED, ["driver.kernel_version", "kernel.modules"]),
        "unknown",
        "loaded",
    ),
    "in a container": (in_container(), "skip", "container"),
}


@pytest.mark.parametrize("name", SIGNATURE)
def test_module_signature(name: str) -> None:
    host, status, found = SIGNATURE[name]
    expect(host, "kernel.module_signature", status, "", found)


def next_kernel(**fields: object) -> Host:
    return having(
        healthy(),
        {
            "kernel.next_release": OTHER_RELEASE,
            "kernel.installed": kernels((RELEASE, {}), (OTHER_RELEASE, fields)),
        },
    )


NEXT_BOOT: dict[str, tuple[Host, Status, str]] = {
    "the running kernel": (healthy(), "skip", "running kernel"),
    "another one with a module": (next_kernel(), "pass", OTHER_RELEASE),
    "another one without": (next_kernel(**NO_MODULE), "warn", f"{OTHER_RELEASE} has no `nvidia` module"),
    "another one whose modules were not read": (
        next_kernel(nvidia_modules=Absent(reason="denied")),
        "unknown",
        OTHER_RELEASE,
    ),
    "another one, and the running module comes from elsewhere": (
        put(
            next_kernel(**NO_MODULE),
            "kernel.installed",
            kernels((RELEASE, NO_MODULE), (OTHER_RELEASE, NO_MODULE)),
        ),
        "skip",
        "does not lie",
    ),
    "not known": (without(healthy(), ["kernel.next_release"]), "skip", "not known"),
    "in a container": (in_container(), "skip", "container"),
}


@pytest.mark.parametrize("name", NEXT_BOOT)
def test_next_boot(name: str) -> None:
    host, status, found = NEXT_BOOT[name]
    expect(host, "kernel.next_boot", status, "", found)


GSP = ("gsp", "NVRM: GPU1 kgspWaitForGfwBootOk: failed to wait for GFW boot complete")
INIT = ("init_failed", f"NVRM: GPU {SECOND}: RmInitAdapter failed!", SECOND)
BRIDGE = ("bar", "pcieport 0000:40:01.0: BAR 13: failed to assign [io size 0x1000]", "0000:40:01.0")
DOWN = put(healthy(), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN"))


def test_a_quiet_log_passes() -> None:
    expect(healthy(), "kernel.messages", "pass", "", "nothing wrong was logged")


def test_a_cut_log_says_so() -> None:
    expect(said(healthy(), is_complete=False), "kernel.messages", "pass", "", "part that was read")


def test_a_message_beside_a_failure_warns() -> None:
    expect(said(DOWN, GSP), "kernel.messages", "warn", "gsp", "GFW boot")


def test_a_message_of_a_host_that_works_is_history() -> None:
    expect(said(healthy(), GSP), "kernel.messages", "pass", "gsp", why="work all the same")


def test_a_message_about_the_gpu_that_is_down_warns_beside_one_that_works() -> None:
    host = said(
        lost_gpu(healthy()), INIT, ("init_failed", f"NVRM: GPU {FIRST}: RmInitAdapter failed!", FIRST)
    )
    expect(host, "kernel.messages", "warn", f"{SECOND} init_failed")
    expect(host, "kernel.messages", "pass", f"{FIRST} init_failed", why=f"{FIRST} works")


def test_a_bridge_without_io_ports_is_no_message_about_the_gpu() -> None:
    expect(said(DOWN, BRIDGE), "kernel.messages", "pass", "", "nothing wrong")


def test_an_earlier_boot_is_history() -> None:
    old = BootLog(index=-1, messages=(KernelMessage(kind="gsp", text=GSP[1]),))
    host = put(DOWN, "kernel.logs", (*at(DOWN, "kernel.logs").value, old))
    expect(host, "kernel.messages", "pass", "", "nothing wrong")


def test_the_log_of_an_earlier_boot_alone_says_nothing_of_this_one() -> None:
    old = msgspec.structs.replace(at(healthy(), "kernel.logs").value[0], index=-1)
    expect(put(healthy(), "kernel.logs", (old,)), "kernel.messages", "unknown", "", "no log of this boot")


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("check", ["kernel.dkms", "kernel.messages"])
def test_a_missing_fact_is_unknown(check: str, reason: str) -> None:
    host = without(healthy(), [check.replace("messages", "logs")], reason)  # type: ignore[arg-type]
    expect(host, check, "unknown")


@pytest.mark.parametrize(
    "check", ["module_on_disk", "headers", "dkms", "module_signature", "next_boot", "messages"]
)
def test_without_a_gpu_nothing_is_judged(check: str) -> None:
    host = put(no_driver(), "pci", ())
    expect(host, f"kernel.{check}", "skip", "", "no NVIDIA GPU")


def test_gpus_of_virtual_machines_are_left_alone() -> None:
    host = devices(no_driver(), driver="vfio-pci")
    assert {f.status for f in findings(host, "kernel.module_on_disk")} == {"skip"}


# --- what shows that nothing follows --------------------------------------------------------------


def test_a_doubted_signature_of_a_module_that_is_loaded_is_no_warning() -> None:
    word = ("module_signature_rejected", "PKCS#7 signature not signed with a trusted key")
    expect(said(DOWN, word), "kernel.messages", "pass", "module_signature_rejected", why="is loaded")


def test_only_a_card_that_works_is_said_to_work() -> None:
    word = ("unsupported_gpu", "NVRM: The NVIDIA GPU is not supported by open nvidia.ko", SECOND)
    expect(
        said(healthy(), word), "kernel.messages", "pass", f"{SECOND} unsupported_gpu", why=f"{SECOND} works"
    )
    lost = said(lost_gpu(healthy()), word)
    expect(lost, "kernel.messages", "fail", f"{SECOND} unsupported_gpu")
    handed = said(device(lost_gpu(healthy()), 1, driver="vfio-pci"), word)
    expect(handed, "kernel.messages", "pass", f"{SECOND} unsupported_gpu", why="virtual machine")


def test_a_refusal_without_an_address_counts_where_no_card_works() -> None:
    word = ("legacy_gpu", "NVRM: The GPU is supported through the NVIDIA 470.xx Legacy drivers.")
    silent = without(healthy(), ["pci", "driver.nvml", "driver.smi", "cuda.probe"])
    expect(said(silent, word), "kernel.messages", "fail", "legacy_gpu")
    expect(said(healthy(), word), "kernel.messages", "pass", "legacy_gpu")


def test_a_fault_of_the_kernel_in_the_drivers_module_is_told_though_all_works() -> None:
    expect(said(healthy(), OOPS), "kernel.messages", "warn", "oops", "nvidia_vma_access")
    assert answer(said(healthy(), OOPS)).verdict == "ready"
