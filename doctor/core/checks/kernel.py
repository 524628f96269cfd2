"""Checks of the kernel side: module on disk, headers, DKMS, signatures, the next boot, what it logged."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import on_gpu_host, on_own_kernel
from doctor.core.claims.modules import dkms_registered, module_loaded, secure_boot_enabled, signature_rejected
from doctor.core.claims.running import some_gpu_down
from doctor.core.host import KernelMessage, Known, known
from doctor.core.views import log_is_whole, messages, nvidia_file, running_kernel

__all__ = ["CHECKS"]

_HERE = (on_gpu_host, on_own_kernel)


@check("kernel.module_on_disk", "module on disk for the running kernel", applies=_HERE)
def module_on_disk(case: Case) -> Iterator[Outcome]:
    """An `nvidia` module file for the running kernel. A loaded module proves more than a file."""
    release = known(case.host.kernel.release) or "the running kernel"
    kernel = running_kernel(case)
    found = nvidia_file(kernel)
    wanted = f"an `nvidia` module for {release}"
    if found is not None:
        version = f" {found.version}" if found.version else ""
        yield passed(f"`{found.path}`{version}", wanted=wanted)
    elif module_loaded(case).holds:
        yield passed("no file was found, and the module is loaded", wanted=wanted)
    elif not isinstance(case.host.kernel.installed, Known):
        yield unknown("`/lib/modules` was not read", wanted=wanted, why=(case.host.kernel.installed.detail,))
    elif kernel is None or isinstance(kernel.nvidia_modules, Known):
        others = [k.release for k in case.host.kernel.installed.value if nvidia_file(k)]
        why = (f"it is there for {', '.join(others)}",) if others else ("no installed kernel has one",)
        yield failed("none", wanted=wanted, why=why)
    else:
        yield unknown("the module directory was not read", wanted=wanted)


@check("kernel.headers", "headers of the running kernel", applies=_HERE)
def headers(case: Case) -> Iterator[Outcome]:
    """Needed only where DKMS must build: a failure when the module is missing for want of them."""
    if dkms_registered(case).holds is not True:
        yield skipped("no NVIDIA module is built by dkms here")
        return
    yield from _headers_of(case, known(case.host.kernel.release), is_running=True)


def _headers_of(case: Case, release: str | None, *, is_running: bool) -> Iterator[Outcome]:
    kernel = next((k for k in known(case.host.kernel.installed) or () if k.release == release), None)
    wanted = f"headers for {release}, which dkms builds against"
    if kernel is None or kernel.has_headers is None:
        yield unknown("not read", wanted=wanted)
    elif kernel.has_headers:
        yield passed(f"`/lib/modules/{release}/build` is there", wanted=wanted)
    elif is_running and module_loaded(case).holds is False and nvidia_file(kernel) is None:
        yield failed(f"`/lib/modules/{release}/build` leads nowhere", wanted=wanted)
    else:
        why = ("the module of this kernel is there; the next driver update cannot be built",)
        yield warned(f"`/lib/modules/{release}/build` leads nowhere", wanted=wanted, why=why)


@check("kernel.dkms", "dkms builds", needs=("kernel.dkms",), applies=_HERE)
def dkms(case: Case) -> Iterator[Outcome]:
    """A failed build for the running kernel matters when no module came of it."""
    release = known(case.host.kernel.release)
    builds = [b for b in known(case.host.kernel.dkms) or () if b.module.startswith("nvidia")]
    if not builds:
        yield skipped("no NVIDIA module is registered with dkms")
        return
    broken = [b for b in builds if b.failure and b.kernel in ("", release)]
    missing = nvidia_file(running_kernel(case)) is None and module_loaded(case).holds is not True
    for build in broken if missing else ():
        yield failed(
            f"`{build.module}/{build.version}` was not built for {release}: {build.failure}",
            wanted="a module built and installed",
            why=(f"log: `{build.log}`",) if build.log else (),
        )
    if not (broken and missing):
        states = ", ".join(f"{b.version} {b.kernel} {b.state}".replace("  ", " ") for b in builds)
        yield passed(states)


@check("kernel.module_signature", "module signature accepted", applies=_HERE)
def module_signature(case: Case) -> Iterator[Outcome]:
    """With Secure Boot or lockdown the kernel loads modules signed by a trusted key only."""
    enforced = secure_boot_enabled(case)
    if module_loaded(case).holds:
        yield passed("the module is loaded: its signature was accepted or not asked for")
    elif enforced.holds is False:
        yield passed("Secure Boot is off: no signature is asked for")
    elif enforced.holds is None:
        yield unknown("neither Secure Boot nor lockdown state could be read")
    elif nvidia_file(running_kernel(case)) is None and not next(
        messages(case, "module_signature_rejected"), None
    ):
        yield skipped("there is no module to check")
    else:
        yield _signature_outcome(case, enforced.because)


def _rejections(case: Case) -> list[KernelMessage]:
    return list(messages(case, "module_signature_rejected"))


def _signature_outcome(case: Case, enforced: str) -> Outcome:
    rejected = signature_rejected(case)
    wanted = "a module signed by a key that this machine trusts"
    if rejected.holds:
        return failed(rejected.because, wanted=wanted, why=(enforced,))
    found = nvidia_file(running_kernel(case))
    signer = found.signer if found else ""
    return unknown(f"signed by `{signer}`; whether that key is enrolled was not read", wanted=wanted)


@check("kernel.next_boot", "module for the next kernel", applies=_HERE)
def next_boot(case: Case) -> Iterator[Outcome]:
    """The kernel that the next boot takes has a module too, or dkms and headers to build one."""
    release, running = known(case.host.kernel.next_release), known(case.host.kernel.release)
    if release is None or release == running:
        yield skipped("the next boot takes the running kernel" if release else "the next kernel is not known")
        return
    kernel = next((k for k in known(case.host.kernel.installed) or () if k.release == release), None)
    if kernel is None or not isinstance(kernel.nvidia_modules, Known):
        yield unknown(f"modules of {release} were not read")
    elif nvidia_file(kernel) is not None:
        yield passed(f"{release} has an `nvidia` module", why=(f"the running kernel is {running}",))
    else:
        yield warned(
            f"{release} has no `nvidia` module",
            wanted="a module for the kernel that the next boot takes",
            why=(f"the running kernel is {running}; after the next boot the GPU would be without driver",),
        )


#: Messages of the kernel that mean that a GPU or the driver did not come up in this boot.
_FATAL = (
    "api_mismatch",
    "open_modules_required",
    "unsupported_gpu",
    "legacy_gpu",
    "init_failed",
    "fallen_off_bus",
    "gsp",
    "bar",
    "probe_failed",
    "module_signature_rejected",
    "module_symbol",
)


@check("kernel.messages", "kernel messages of this boot", needs=("kernel.logs",), applies=(on_gpu_host,))
def kernel_messages(case: Case) -> Iterator[Outcome]:
    """What the kernel said about the driver. Text alone never fails a host that works: facts do."""
    first: dict[str, KernelMessage] = {}
    for message in messages(case, *_FATAL):
        first.setdefault(message.kind, message)
    if not first:
        whole = log_is_whole(case)
        yield passed("nothing wrong was logged" if whole else "nothing wrong in the part that was read")
    works = some_gpu_down(case).holds is False
    for kind, message in first.items():
        if works:
            why = ("logged in this boot; every GPU works all the same",)
            yield passed(message.text, subject=message.gpu or kind, why=why)
        else:
            yield warned(message.text, subject=message.gpu or kind, wanted="no such message in this boot")


CHECKS = (module_on_disk, headers, dkms, module_signature, next_boot, kernel_messages)
