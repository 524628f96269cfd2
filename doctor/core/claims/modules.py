"""Claims about kernel modules: on disk, built, signed, loaded; and the packages behind them."""

from __future__ import annotations

import re

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, is_told, no, yes
from doctor.core.host import Known, is_not_there, known
from doctor.core.views import DRIVER_PACKAGE, loaded, log_is_whole, messages, nvidia_file, running_kernel


def module_loaded(case: Case) -> Claimed:
    version = case.host.driver.kernel_version
    if isinstance(version, Known):
        return yes(f"module `nvidia` {version.value} is loaded")
    if loaded(case, "nvidia"):
        return yes("module `nvidia` is loaded")
    if is_not_there(version) or isinstance(case.host.kernel.modules, Known):
        return no("module `nvidia` is not loaded")
    return UNTOLD


def module_on_disk(case: Case) -> Claimed:
    """An `nvidia` module file for the running kernel."""
    kernel = running_kernel(case)
    if kernel is None:
        return no() if isinstance(case.host.kernel.installed, Known) else UNTOLD
    if not isinstance(kernel.nvidia_modules, Known):
        return UNTOLD
    found = nvidia_file(kernel)
    version = f" {found.version}" if found and found.version else ""
    return either(found is not None, f"`nvidia`{version} is on disk for {kernel.release}")


def module_for_other_kernel(case: Case) -> Claimed:
    kernels = known(case.host.kernel.installed)
    if kernels is None:
        return UNTOLD
    running = known(case.host.kernel.release)
    others = [k.release for k in kernels if k.release != running and nvidia_file(k)]
    return either(bool(others), f"`nvidia` was built for {', '.join(others)} only")


def module_nowhere(case: Case) -> Claimed:
    kernels = known(case.host.kernel.installed)
    if kernels is None or any(not isinstance(k.nvidia_modules, Known) for k in kernels):
        return UNTOLD
    return either(not any(nvidia_file(k) for k in kernels), "no kernel has an `nvidia` module on disk")


def headers_missing(case: Case) -> Claimed:
    kernel = running_kernel(case)
    if kernel is None or kernel.has_headers is None:
        return UNTOLD
    return either(not kernel.has_headers, f"`/lib/modules/{kernel.release}/build` leads nowhere")


def dkms_registered(case: Case) -> Claimed:
    builds = known(case.host.kernel.dkms)
    if builds is None:
        return no() if is_not_there(case.host.kernel.dkms) else UNTOLD
    own = [b for b in builds if b.module.startswith("nvidia")]
    return either(bool(own), f"dkms knows `{own[0].module}/{own[0].version}`" if own else "")


def dkms_failed(case: Case) -> Claimed:
    builds = known(case.host.kernel.dkms)
    if builds is None:
        return no() if is_not_there(case.host.kernel.dkms) else UNTOLD
    running = known(case.host.kernel.release)
    for build in builds:
        if build.module.startswith("nvidia") and build.failure and build.kernel in ("", running):
            return yes(
                f"dkms could not build `{build.module}/{build.version}` for {running}: {build.failure}"
            )
    return no()


def compiler_missing(case: Case) -> Claimed:
    fact = case.host.kernel.compiler_on_path
    return either(is_not_there(fact), "no `gcc` on the host") if is_told(fact) else UNTOLD


_GCC_MAJOR = re.compile(r"\bgcc\b[^,\n]*?\b(\d+)\.\d+\.\d+")


def compiler_differs(case: Case) -> Claimed:
    built, here = known(case.host.kernel.compiler), known(case.host.kernel.compiler_on_path)
    if built is None or here is None:
        return UNTOLD
    ours, theirs = _GCC_MAJOR.search(here), _GCC_MAJOR.search(built)
    if not ours or not theirs:
        return UNTOLD
    return either(
        ours.group(1) != theirs.group(1),
        f"the kernel was built by gcc {theirs.group(1)}, `gcc` here is {ours.group(1)}",
    )


def secure_boot_enabled(case: Case) -> Claimed:
    state = known(case.host.kernel.secure_boot)
    lockdown = known(case.host.kernel.lockdown)
    if state is None and lockdown is None:
        return UNTOLD
    locked = lockdown in ("integrity", "confidentiality")
    words = "Secure Boot is enabled" if state == "enabled" else f"kernel lockdown is `{lockdown}`"
    return either(state == "enabled" or locked, words)


def signature_rejected(case: Case) -> Claimed:
    said = next(messages(case, "module_signature_rejected"), None)
    if said:
        return yes(f"kernel: {said.text}")
    found = nvidia_file(running_kernel(case))
    if found is not None and not found.signer:
        return yes(f"`{found.path}` carries no signature")
    return no() if log_is_whole(case) and found is not None else UNTOLD


def symbol_missing(case: Case) -> Claimed:
    said = next(messages(case, "module_symbol"), None)
    if said:
        return yes(f"kernel: {said.text}")
    return no() if log_is_whole(case) else UNTOLD


def driver_packages_installed(case: Case) -> Claimed:
    packages = known(case.host.packages)
    if packages is None:
        return UNTOLD
    names = [p.name for p in packages.installed if DRIVER_PACKAGE.match(p.name)]
    return either(bool(names), f"package `{names[0]}` is installed" if names else "")


def packages_half_installed(case: Case) -> Claimed:
    packages = known(case.host.packages)
    if packages is None:
        return UNTOLD
    bad = [f"`{p.name}` is {p.state}" for p in packages.installed if p.state != "installed"]
    return either(bool(bad), "; ".join(bad[:3]))


def headers_block(case: Case) -> Claimed:
    """Dkms would build the module, and has no headers to build it with."""
    registered, missing = dkms_registered(case), headers_missing(case)
    if registered.holds and missing.holds:
        return yes(f"{registered.because}; {missing.because}")
    return no() if registered.holds is False or missing.holds is False else UNTOLD


def signature_blocks(case: Case) -> Claimed:
    """Signatures are enforced, and the module's is refused or absent."""
    enforced, rejected = secure_boot_enabled(case), signature_rejected(case)
    if enforced.holds and rejected.holds:
        return yes(f"{enforced.because}; {rejected.because}")
    return no() if enforced.holds is False or rejected.holds is False else UNTOLD


def module_blacklisted(case: Case) -> Claimed:
    """A modprobe.d line keeps `nvidia` from being loaded."""
    options = known(case.host.kernel.module_options)
    if options is None:
        return UNTOLD
    for line in options:
        is_void = line.directive == "install" and line.arguments.strip().rsplit("/", 1)[-1] in (
            "false",
            "true",
        )
        if line.module == "nvidia" and (line.directive == "blacklist" or is_void):
            return yes(f"`{line.file}` has `{line.directive} nvidia`")
    return no()


_COMPILER_ERRORS = re.compile(
    r"unrecognized command[- ]line option|compiler differs|different compiler", re.IGNORECASE
)


def dkms_blames_compiler(case: Case) -> Claimed:
    """The build failed over an option or a version of the compiler."""
    failed = dkms_failed(case)
    if failed.holds and _COMPILER_ERRORS.search(failed.because):
        return yes(failed.because)
    return failed if failed.holds is None else no()
