"""Checks of what modules are built from and for: headers, compiler, kernels that the driver knows."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import asked, on_gpu_host, on_own_kernel
from doctor.core.claims.modules import (
    compiler_differs,
    compiler_unfit,
    dkms_registered,
    module_loaded,
)
from doctor.core.claims.modules import module_on_disk as on_disk
from doctor.core.claims.setup import headers_for_other
from doctor.core.host import known
from doctor.core.versions import Dotted
from doctor.core.views import driver_builds, loaded, nvidia_file

__all__ = ["CHECKS", "built_here"]


def built_here(case: Case) -> str:
    """Skip where dkms builds no NVIDIA module: nothing is built on this host. What it did not say is open."""
    return "no NVIDIA module is built by dkms here" if dkms_registered(case).holds is False else ""


_HERE = (on_gpu_host, on_own_kernel)
_DKMS = ("kernel.dkms",)
_BUILT_HERE = (*_HERE, asked("kernel.dkms", "dkms"), built_here)


@check("kernel.headers_version", "headers of the right kernel", needs=_DKMS, applies=_BUILT_HERE)
def headers_version(case: Case) -> Iterator[Outcome]:
    """Headers of a newer kernel than the running one look like headers, and build nothing for it."""
    release, other = known(case.host.kernel.release), headers_for_other(case)
    wanted = f"headers for {release or 'the running kernel'}"
    if other.holds is None:
        yield unknown("headers or installed packages were not read", wanted=wanted)
    elif not other.holds:
        yield passed("no headers of a wrong kernel stand in for missing ones", wanted=wanted)
    elif on_disk(case).holds is False and module_loaded(case).holds is False:
        yield failed(other.because, wanted=wanted)
    else:
        why = ("the module of this kernel is there; the next driver update cannot be built for it",)
        yield warned(other.because, wanted=wanted, why=why)


@check("kernel.compiler", "compiler of the kernel at hand", needs=_DKMS, applies=_BUILT_HERE)
def compiler(case: Case) -> Iterator[Outcome]:
    """A kernel takes options that its own compiler knows. Another one often does; a failed build shows."""
    unfit, differs = compiler_unfit(case), compiler_differs(case)
    wanted = "the gcc that built the kernel"
    if unfit.holds and on_disk(case).holds is False and module_loaded(case).holds is False:
        yield failed(unfit.because, wanted=wanted)
    elif differs.holds is None:
        yield unknown("the kernel's compiler or gcc was not read", wanted=wanted)
    elif differs.holds:
        why = (
            "dkms takes the kernel's own compiler where it is installed; drivers before 550.135 take `gcc`",
        )
        yield passed(differs.because, wanted=wanted, why=why)
    else:
        yield passed("the same major version", wanted=wanted)


@check("kernel.driver_builds", "driver knows the kernel", needs=_DKMS, applies=_BUILT_HERE)
def driver_builds_on(case: Case) -> Iterator[Outcome]:
    """Each branch builds on a kernel from some release on; an older one fails in dkms."""
    running, following = known(case.host.kernel.release), known(case.host.kernel.next_release)
    versions = {b.version for b in driver_builds(case) if b.version[:1].isdigit()}
    driver = max(map(Dotted, versions), default=None)
    if driver is None:
        yield skipped("dkms tells no version of the driver")
        return
    for release in dict.fromkeys(r for r in (running, following) if r):
        yield _build_outcome(case, driver, release, is_running=release == running)


def _build_outcome(case: Case, driver: Dotted, release: str, *, is_running: bool) -> Outcome:
    kernel = next((k for k in known(case.host.kernel.installed) or () if k.release == release), None)
    if nvidia_file(kernel) is not None or (is_running and module_loaded(case).holds):
        return passed(f"a module for {release} is there", subject=release)
    row = case.matrix.kernel(Dotted(release)) if release[:1].isdigit() else None
    build = next((b for b in row.builds if b.branch == driver.major), None) if row else None
    if row is None or build is None:
        return skipped(f"the matrix does not say from where on R{driver.major} builds on it", subject=release)
    if driver >= build.since:
        return passed(f"R{driver.major} builds on it from {build.since} on", subject=release)
    wanted = f"driver {build.since} or newer of R{driver.major}"
    why = tuple(filter(None, (row.change, *row.source[:1])))
    text = f"driver {driver} does not build on kernel {row.kernel}"
    if is_running and (on_disk(case).holds is None or module_loaded(case).holds is None):
        return unknown(
            f"{text}; whether a module is there was not read", subject=release, wanted=wanted, why=why
        )
    say = failed if is_running else warned
    return say(text, subject=release, wanted=wanted, why=why)


@check(
    "kernel.nouveau_blacklist",
    "nouveau kept away where it is blacklisted",
    needs=("kernel.modules",),
    applies=_HERE,
)
def nouveau_blacklist(case: Case) -> Iterator[Outcome]:
    """Nouveau that is loaded in spite of a blacklist came with an initramfs that is older than it."""
    lines = known(case.host.kernel.module_options)
    is_loaded = loaded(case, "nouveau") is not None
    if not is_loaded:
        yield passed("nouveau is not loaded")
    elif lines is None:
        yield unknown("nouveau is loaded; modprobe.d was not read", wanted="nouveau not loaded")
    elif line := next((x for x in lines if x.module == "nouveau" and x.directive == "blacklist"), None):
        why = ("the initramfs is older than that file: rebuild it, then reboot",)
        text = f"nouveau is loaded although `{line.file}` blacklists it"
        yield warned(text, wanted="nouveau not loaded", why=why)
    else:
        yield passed("nouveau is loaded, and nothing blacklists it")


CHECKS = (headers_version, compiler, driver_builds_on, nouveau_blacklist)
