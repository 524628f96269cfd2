"""What modules are built from and for: headers, compiler, kernels that the driver knows, nouveau."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import Host, ModprobeLine
from tests.core.hosts import (
    NOT_THERE,
    OTHER_RELEASE,
    RELEASE,
    dkms_build,
    driver_packages,
    expect,
    having,
    healthy,
    in_container,
    installed_kernel,
    known_of,
    loaded_modules,
    put,
    without,
    without_module,
    without_module_file,
)
from tests.core.pairs_machine import devel

OTHER_GCC = "gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0"
UNBUILT = without_module_file(without_module(healthy()))
OPTION = "gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"
BLAMED = having(
    UNBUILT,
    {"kernel.dkms": (dkms_build(state="failed", failure=OPTION),), "kernel.compiler_on_path": OTHER_GCC},
)
BLACKLIST = ModprobeLine(file="/etc/modprobe.d/nvidia.conf", directive="blacklist", module="nouveau")
NOUVEAU = put(healthy(), "kernel.modules", loaded_modules("nvidia_uvm", "nvidia", "nouveau"))


def built(version: str, release: str, host: Host) -> Host:
    """The host whose dkms has this driver, and whose running kernel is this one."""
    kernel = installed_kernel(release, nvidia_modules=known_of(()))
    return having(
        host,
        {
            "kernel.dkms": (dkms_build(version=version, state="added", kernel=""),),
            "kernel.release": release,
            "kernel.next_release": release,
            "kernel.installed": (kernel,),
        },
    )


NEW_KERNEL = "6.17.0-8-generic"

CASES: dict[str, tuple[str, Host, Status, str]] = {
    "headers there": ("kernel.headers_version", healthy(), "pass", "no headers of a wrong kernel"),
    "headers of a newer kernel": ("kernel.headers_version", devel(OTHER_RELEASE), "fail", OTHER_RELEASE),
    "headers of an older kernel": ("kernel.headers_version", devel("6.8.0-31-generic"), "pass", ""),
    "headers of a newer kernel, module there": (
        "kernel.headers_version",
        having(
            healthy(),
            {
                "kernel.installed": (
                    installed_kernel(RELEASE, has_headers=False),
                    installed_kernel(OTHER_RELEASE),
                ),
            },
        ),
        "warn",
        OTHER_RELEASE,
    ),
    "packages not read": (
        "kernel.headers_version",
        without(devel(OTHER_RELEASE), ["packages"]),
        "unknown",
        "not read",
    ),
    "the kernel's compiler": ("kernel.compiler", healthy(), "pass", "same major"),
    "another compiler": (
        "kernel.compiler",
        put(healthy(), "kernel.compiler_on_path", OTHER_GCC),
        "pass",
        "gcc 13",
    ),
    "another compiler, and it failed": ("kernel.compiler", BLAMED, "fail", "unrecognized"),
    "compiler not read": ("kernel.compiler", without(healthy(), ["kernel.compiler"]), "unknown", "not read"),
    "nouveau kept away": ("kernel.nouveau_blacklist", healthy(), "pass", "not loaded"),
    "nouveau, nothing against it": ("kernel.nouveau_blacklist", NOUVEAU, "pass", "nothing blacklists"),
    "nouveau in spite of a blacklist": (
        "kernel.nouveau_blacklist",
        put(NOUVEAU, "kernel.module_options", (BLACKLIST,)),
        "warn",
        "nvidia.conf",
    ),
    "nouveau, options not read": (
        "kernel.nouveau_blacklist",
        without(NOUVEAU, ["kernel.module_options"]),
        "unknown",
        "not read",
    ),
    "modules not read": (
        "kernel.nouveau_blacklist",
        without(healthy(), ["kernel.modules"]),
        "unknown",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    check_id, host, status, words = CASES[name]
    expect(host, check_id, status, "", words)


BUILDS: dict[str, tuple[Host, Status, str, str]] = {
    "there": (healthy(), "pass", RELEASE, "a module for"),
    "too old for the running kernel": (
        built("535.129.03", NEW_KERNEL, UNBUILT),
        "fail",
        NEW_KERNEL,
        "does not build on kernel 6.17",
    ),
    "a branch that the row does not name": (
        built("565.77", NEW_KERNEL, UNBUILT),
        "skip",
        NEW_KERNEL,
        "does not say",
    ),
    "a kernel without a row": (
        built("580.178.04", "4.4.0-1-generic", UNBUILT),
        "skip",
        "4.4.0-1-generic",
        "does not say",
    ),
    "new enough": (built("580.178.04", NEW_KERNEL, UNBUILT), "pass", NEW_KERNEL, "builds on it from"),
    "first releases of the branch": (
        built("580.65.06", NEW_KERNEL, UNBUILT),
        "fail",
        NEW_KERNEL,
        "does not build on kernel 6.17",
    ),
    "too old, and whether a module is there was not read": (
        without(built("580.65.06", NEW_KERNEL, UNBUILT), ["kernel.installed"]),
        "unknown",
        NEW_KERNEL,
        "was not read",
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_driver_builds(name: str) -> None:
    host, status, subject, words = BUILDS[name]
    expect(host, "kernel.driver_builds", status, subject, words)


def test_a_driver_too_old_for_the_next_kernel_warns() -> None:
    next_kernel = installed_kernel(NEW_KERNEL, nvidia_modules=known_of(()))
    host = having(
        healthy(),
        {
            "kernel.dkms": (dkms_build(version="580.65.06"),),
            "kernel.next_release": NEW_KERNEL,
            "kernel.installed": (installed_kernel(RELEASE), next_kernel),
        },
    )
    expect(host, "kernel.driver_builds", "warn", NEW_KERNEL, "580.65.06")
    expect(host, "kernel.driver_builds", "pass", RELEASE)


BUILT_HERE = ("kernel.headers_version", "kernel.compiler", "kernel.driver_builds")


@pytest.mark.parametrize("check_id", BUILT_HERE)
def test_it_does_not_apply_where_nothing_is_built(check_id: str) -> None:
    expect(having(healthy(), {"kernel.dkms": NOT_THERE, "packages": driver_packages()}), check_id, "skip", "")
    expect(in_container(), check_id, "skip", "")


def test_dkms_not_read_is_not_judged() -> None:
    expect(without(healthy(), ["kernel.dkms"]), "kernel.compiler", "skip", "")
