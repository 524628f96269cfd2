"""Claims about kernel modules: on disk, built, signed, loaded; and the packages behind them."""

from __future__ import annotations

import re

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, is_told, no, yes
from doctor.core.host import Known, is_not_there, known
from doctor.core.pattern import pattern
from doctor.core.views import (
    DRIVER_PACKAGE,
    driver_builds,
    loaded,
    log_is_whole,
    messages,
    nvidia_file,
    report,
    running_kernel,
)

_NOT_IN = pattern(r"could not insert '?nvidia'?\b")
_NOT_FOUND = pattern(r"FATAL: Module nvidia not found in directory /lib/modules/(\S{1,100})")


def modprobe_missed(case: Case) -> str:
    """What modprobe said when it found no `nvidia` for the running kernel; empty when it said nothing."""
    release = known(case.host.kernel.release)
    for message in messages(case, "other"):
        found = _NOT_FOUND.search(message.text)
        if found is not None and release in (None, found.group(1)):
            return message.text
    return ""


def module_loaded(case: Case) -> Claimed:
    version = case.host.driver.kernel_version
    if isinstance(version, Known):
        return yes(f"module `nvidia` {version.value} is loaded")
    if loaded(case, "nvidia"):
        return yes("module `nvidia` is loaded")
    answered = report(case)
    if answered is not None and answered.error_code == 18 and not is_not_there(version):
        # NVML compared its own version with that of a module: there is one.
        return yes("module `nvidia` is loaded: NVML met one of another version")
    if is_not_there(version) or isinstance(case.host.kernel.modules, Known):
        return no("module `nvidia` is not loaded")
    if refused := next(
        (m for m in messages(case, "module_signature_rejected") if _NOT_IN.search(m.text)), None
    ):
        return no(f"module `nvidia` is not loaded: {refused.text}")
    if missed := modprobe_missed(case):
        return no(f"module `nvidia` is not loaded: {missed}")
    return UNTOLD


def module_on_disk(case: Case) -> Claimed:
    """An `nvidia` module file for the running kernel."""
    kernel, release = running_kernel(case), known(case.host.kernel.release)
    said = modprobe_missed(case)
    if kernel is None:
        is_read = bool(release) and isinstance(case.host.kernel.installed, Known)
        return no(said) if said or (is_read and not modules_lie_elsewhere(case)) else UNTOLD
    if not isinstance(kernel.nvidia_modules, Known):
        return no(said) if said else UNTOLD
    found = nvidia_file(kernel)
    version = f" {found.version}" if found and found.version else ""
    return either(found is not None, f"`nvidia`{version} is on disk for {kernel.release}")


def modules_lie_elsewhere(case: Case) -> bool:
    """Whether `/lib/modules` proves nothing: it holds nothing at all, or not the kernel whose driver spoke.

    NixOS keeps modules in `/run/current-system/kernel-modules`.
    """
    kernels = known(case.host.kernel.installed)
    if kernels is None or running_kernel(case) is not None:
        return False
    return not kernels or has_spoken(case)


def module_for_other_kernel(case: Case) -> Claimed:
    kernels, running = known(case.host.kernel.installed), known(case.host.kernel.release)
    if kernels is None or running is None:
        return UNTOLD
    others = [k.release for k in kernels if k.release != running and nvidia_file(k)]
    return either(bool(others), f"`nvidia` was built for {', '.join(others)} only")


def module_nowhere(case: Case) -> Claimed:
    kernels = known(case.host.kernel.installed)
    if kernels is None or any(not isinstance(k.nvidia_modules, Known) for k in kernels):
        return UNTOLD
    if modules_lie_elsewhere(case) and not modprobe_missed(case):
        return UNTOLD
    return either(not any(nvidia_file(k) for k in kernels), "no kernel has an `nvidia` module on disk")


def headers_missing(case: Case) -> Claimed:
    kernel = running_kernel(case)
    if kernel is None or kernel.has_headers is None:
        return UNTOLD
    return either(not kernel.has_headers, f"`/lib/modules/{kernel.release}/build` leads nowhere")


def dkms_registered(case: Case) -> Claimed:
    if not is_told(case.host.kernel.dkms):
        return UNTOLD
    own = driver_builds(case)
    return either(bool(own), f"dkms knows `{own[0].module}/{own[0].version}`" if own else "")


def dkms_failed(case: Case) -> Claimed:
    running = known(case.host.kernel.release)
    for build in driver_builds(case):
        if build.failure and build.kernel in ("", running):
            return yes(
                f"dkms could not build `{build.module}/{build.version}` for {running}: {build.failure}"
            )
    return no() if is_told(case.host.kernel.dkms) and running else UNTOLD


_COMPILER_NOT_FOUND = pattern(r"\b(?:gcc|g\+\+|cc|c\+\+)(?:-\d+)?: (?:command )?not found")
#: A place in a source file, or a stage that comes after the compiler.
_COMPILER_RAN = pattern(r"\.[chS](?:pp)?:\d+|modpost|\bld: ")


def compiler_missing(case: Case) -> Claimed:
    """A build found no gcc or g++; or there is no gcc, and no log shows that one ran all the same."""
    fact, failed = case.host.kernel.compiler_on_path, dkms_failed(case)
    if failed.holds and _COMPILER_NOT_FOUND.search(failed.because):
        return yes(failed.because)
    if failed.holds and _COMPILER_RAN.search(failed.because):
        return no()
    return either(is_not_there(fact), "no `gcc` on the host") if is_told(fact) else UNTOLD


def compiler_blocks(case: Case) -> Claimed:
    """Dkms would build the module, and has no compiler to build it with."""
    registered, missing = dkms_registered(case), compiler_missing(case)
    if registered.holds and missing.holds:
        return yes(f"{registered.because}; {missing.because}")
    return no() if registered.holds is False or missing.holds is False else UNTOLD


_GCC_MAJOR = pattern(r"\bgcc\b[^,\n]*?\b(\d+)\.\d+\.\d+")


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
    """The kernel asks for module signatures: by Secure Boot, by lockdown, or by its command line."""
    state = known(case.host.kernel.secure_boot)
    lockdown = known(case.host.kernel.lockdown)
    if "module.sig_enforce=1" in (known(case.host.kernel.command_line) or ()):
        return yes("the kernel was started with `module.sig_enforce=1`")
    if lockdown in ("integrity", "confidentiality"):
        words = "Secure Boot is enabled" if state == "enabled" else f"kernel lockdown is `{lockdown}`"
        return yes(words)
    if lockdown is not None or state in ("disabled", "unsupported"):
        # With lockdown `none` Secure Boot ends at the boot loader: shim was told so, or the kernel goes on.
        return no()
    is_old_kernel = is_not_there(case.host.kernel.lockdown)
    return yes("Secure Boot is enabled") if state == "enabled" and is_old_kernel else UNTOLD


#: The kernel did not load a module; the second it says of modules that it loads all the same.
_REFUSED = pattern(r"rejected|unsigned module loading is restricted")
_REFUSED_OR_DOUBTED = pattern(r"rejected|unsigned module loading is restricted|not signed with a trusted key")
_OF_NVIDIA = pattern(r"\bnvidia")


def _refusal(case: Case, words: re.Pattern[str] = _REFUSED) -> tuple[str, bool | None]:
    """The kernel's word against a module's signature, and whether `nvidia` is meant; None where that is open.

    The line names no module: VirtualBox's and others are refused in the same words. Where `nvidia` has
    spoken in this boot it was accepted, and where it is not on disk nobody tried it.
    """
    texts = [m.text for m in messages(case, "module_signature_rejected", "lockdown")]
    said = [t for t in texts if words.search(t)]
    named = next((t for t in said if _OF_NVIDIA.search(t)), "")
    if named or not said:
        return named, bool(named)
    on_disk = module_on_disk(case).holds
    if has_spoken(case) or on_disk is False or module_loaded(case).holds:
        return said[0], False
    return said[0], on_disk


#: Openings of what the driver's own modules say; other drivers' names begin with the vendor's, too.
_OF_MODULE = pattern(
    r"NVRM\b|nvidia: |nvidia [0-9a-f]{4,8}:[0-9a-f]{2}:|nvidia[-_](?:nvlink|modeset|uvm|drm)\b"
)
_ANY_MESSAGE = (
    "xid",
    "api_mismatch",
    "open_modules_required",
    "unsupported_gpu",
    "legacy_gpu",
    "init_failed",
    "fallen_off_bus",
    "firmware_missing",
    "gsp",
    "bar",
    "probe_failed",
    "no_devices_probed",
    "nouveau",
    "uvm",
    "loading",
    "other",
)


def has_spoken(case: Case) -> bool:
    """Whether the driver's module ran in this boot, so far as its words tell."""
    return any(_OF_MODULE.match(m.text) for m in messages(case, *_ANY_MESSAGE))


def signature_rejected(case: Case) -> Claimed:
    said, is_ours = _refusal(case, _REFUSED_OR_DOUBTED)
    if said and is_ours is not False:
        return yes(f"kernel: {said}") if is_ours else UNTOLD
    if said:
        return no()
    found = nvidia_file(running_kernel(case))
    # Some reports give version or vermagic alone; only a description with a licence is a whole one.
    is_described = found is not None and bool(found.license)
    if found is not None and is_described and not found.signer:
        return yes(f"`{found.path}` carries no signature")
    if found is not None and found.signer and (trusted := is_enrolled(case, found.signer)) is not None:
        waits = " and waits for a person at the console" if _is_pending(case, found.signer) else ""
        return either(
            not trusted, f"`{found.path}` is signed by `{found.signer}`, whose key is not enrolled{waits}"
        )
    return no() if log_is_whole(case) and is_described else UNTOLD


#: Keys that only enrolment makes trusted: of dkms on Debian, Ubuntu and others, of akmods, NVIDIA's own.
#: Distributions' own keys are built into their kernels, and no list shows them.
_ENROLLED_ONLY = pattern(
    r"Secure Boot Module Signature key|DKMS module signing key|akmods|^NVIDIA\b", re.IGNORECASE
)


def is_enrolled(case: Case, signer: str) -> bool | None:
    """Whether the signer's key is among those of machine owner and firmware; None where that is open."""
    keys = known(case.host.machine.enrolled_keys)
    if keys is None:
        return None
    if any(signer.casefold() in key.casefold() for key in keys):
        return True
    return False if _ENROLLED_ONLY.search(signer) else None


def _is_pending(case: Case, signer: str) -> bool:
    return any(signer.casefold() in key.casefold() for key in known(case.host.machine.pending_keys) or ())


#: A symbol of `nvidia` itself that another module does not find: `nvidia` did not stay loaded, no more.
_OWN_SYMBOL = pattern(r"\bnvidia(?:_uvm|_modeset|_drm)?: (?!Unknown symbol nv)")


def symbol_missing(case: Case) -> Claimed:
    """The kernel could not link one of the driver's own modules; nvidia_peermem and others are no part."""
    said = next((m for m in messages(case, "module_symbol") if _OWN_SYMBOL.search(m.text)), None)
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
    """The kernel refused a module for its signature; or signatures are enforced, and the module has none."""
    enforced, rejected = secure_boot_enabled(case), signature_rejected(case)
    if rejected.holds and _refusal(case)[1]:
        return yes("; ".join(filter(None, (enforced.because, rejected.because))))
    if enforced.holds and rejected.holds:
        return yes(f"{enforced.because}; {rejected.because}")
    return no() if enforced.holds is False or rejected.holds is False else UNTOLD


_BLACKLISTING = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")


def module_blacklisted(case: Case) -> Claimed:
    """A modprobe.d line or a word of the kernel's command line keeps `nvidia` from being loaded."""
    for word in known(case.host.kernel.command_line) or ():
        name, _, value = word.partition("=")
        if name in _BLACKLISTING and "nvidia" in value.split(","):
            return yes(f"the kernel was started with `{word}`")
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


_COMPILER_ERRORS = pattern(
    r"unrecognized command[- ]line option|compiler differs|different compiler", re.IGNORECASE
)


def dkms_blames_compiler(case: Case) -> Claimed:
    """The build failed over an option or a version of the compiler."""
    failed = dkms_failed(case)
    if failed.holds and _COMPILER_ERRORS.search(failed.because):
        return yes(failed.because)
    return failed if failed.holds is None else no()


def compiler_unfit(case: Case) -> Claimed:
    """The build failed over the compiler, and `gcc` here is not the one that built the kernel."""
    blamed, differs = dkms_blames_compiler(case), compiler_differs(case)
    if blamed.holds and differs.holds:
        return yes(f"{blamed.because}; {differs.because}")
    return no() if blamed.holds is False or differs.holds is False else UNTOLD


def not_built_here(case: Case) -> Claimed:
    """The driver's source or module is on the host, and not as a module of the running kernel."""
    here, other, registered = module_on_disk(case), module_for_other_kernel(case), dkms_registered(case)
    if here.holds is not False:
        return no() if here.holds else UNTOLD
    if other.holds or registered.holds:
        return other if other.holds else registered
    return no() if other.holds is False and registered.holds is False else UNTOLD


def load_not_tried(case: Case) -> Claimed:
    """The whole log of this boot has no word from the module: nothing loaded it, or it was taken out."""
    if has_spoken(case):
        return no()
    return yes("the log of this boot has no word of the module") if log_is_whole(case) else UNTOLD
