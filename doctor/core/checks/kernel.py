"""Checks of the kernel side: module on disk, headers, DKMS, signatures, the next boot, what it logged."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import asked, on_gpu_host, on_own_kernel
from doctor.core.checks.build import built_here
from doctor.core.claims.listed import HANDED_OVER, REFUSALS, is_beside
from doctor.core.claims.modules import (
    is_enrolled,
    modprobe_missed,
    module_loaded,
    modules_lie_elsewhere,
    secure_boot_enabled,
    signature_blocks,
)
from doctor.core.claims.modules import module_on_disk as on_disk
from doctor.core.claims.running import some_gpu_down
from doctor.core.host import KernelMessage, Known, known
from doctor.core.views import (
    driver_builds,
    log_is_whole,
    messages,
    nvidia_file,
    running_kernel,
    working_gpus,
)

__all__ = ["CHECKS"]

_HERE = (on_gpu_host, on_own_kernel)


@check("kernel.module_on_disk", "module on disk for the running kernel", applies=_HERE)
def module_on_disk(case: Case) -> Iterator[Outcome]:
    """An `nvidia` module file for the running kernel. A loaded module proves more than a file."""
    release, kernel = known(case.host.kernel.release), running_kernel(case)
    found = nvidia_file(kernel)
    wanted = f"an `nvidia` module for {release or 'the running kernel'}"
    if found is not None:
        version = f" {found.version}" if found.version else ""
        yield passed(f"`{found.path}`{version}", wanted=wanted)
    elif module_loaded(case).holds:
        yield passed("no file was found, and the module is loaded", wanted=wanted)
    elif missed := modprobe_missed(case):
        yield failed(missed, wanted=wanted)
    elif release is None:
        yield unknown("the release of the running kernel was not read", wanted=wanted)
    elif module_loaded(case).holds is None:
        yield unknown("no file was found; whether the module is loaded was not read", wanted=wanted)
    elif not isinstance(case.host.kernel.installed, Known):
        yield unknown("`/lib/modules` was not read", wanted=wanted, why=(case.host.kernel.installed.detail,))
    elif modules_lie_elsewhere(case):
        why = ("`/lib/modules` holds nothing of the running kernel: its modules lie elsewhere",)
        yield unknown("no file was found", wanted=wanted, why=why)
    elif kernel is None or isinstance(kernel.nvidia_modules, Known):
        others = [k.release for k in case.host.kernel.installed.value if nvidia_file(k)]
        why = (f"it is there for {', '.join(others)}",) if others else ("no installed kernel has one",)
        yield failed("none", wanted=wanted, why=why)
    else:
        yield unknown("the module directory was not read", wanted=wanted)


@check(
    "kernel.headers",
    "headers of the running kernel",
    needs=("kernel.dkms",),
    applies=(*_HERE, asked("kernel.dkms", "dkms"), built_here),
)
def headers(case: Case) -> Iterator[Outcome]:
    """Needed only where DKMS must build: a failure when the module is missing for want of them."""
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
    builds = driver_builds(case)
    if not builds:
        yield skipped("no NVIDIA driver is registered with dkms")
        return
    broken = [b for b in builds if b.failure and b.kernel in ("", release)]
    there = (on_disk(case).holds, module_loaded(case).holds)
    if not broken or True in there:
        states = ", ".join(f"{b.version} {b.kernel} {b.state}".replace("  ", " ") for b in builds)
        yield passed(states)
        return
    say = failed if there == (False, False) else unknown
    for build in broken:
        yield say(
            f"`{build.module}/{build.version}` was not built for {release or build.kernel}: {build.failure}",
            wanted="a module built and installed",
            why=(f"log: `{build.log}`",) if build.log else (),
        )


@check("kernel.module_signature", "module signature accepted", applies=_HERE)
def module_signature(case: Case) -> Iterator[Outcome]:
    """With Secure Boot or lockdown the kernel loads modules signed by a trusted key only."""
    enforced, blocked = secure_boot_enabled(case), signature_blocks(case)
    wanted = "a module signed by a key that this machine trusts"
    if module_loaded(case).holds:
        yield passed("the module is loaded: its signature was accepted or not asked for")
    elif module_loaded(case).holds is None:
        yield unknown("whether the module is loaded was not read", wanted=wanted)
    elif blocked.holds:
        yield failed(blocked.because, wanted=wanted)
    elif enforced.holds is False:
        yield passed("neither Secure Boot nor lockdown asks for a signature")
    elif enforced.holds is None:
        yield unknown("neither Secure Boot nor lockdown state could be read", wanted=wanted)
    elif on_disk(case).holds is False:
        yield skipped("there is no module to check")
    else:
        found = nvidia_file(running_kernel(case))
        if found and found.signer and is_enrolled(case, found.signer):
            yield passed(f"signed by `{found.signer}`, whose key is enrolled", wanted=wanted)
            return
        signer = f"signed by `{found.signer}`" if found and found.signer else "its signer was not read"
        yield unknown(f"{signer}; whether that key is enrolled was not read", wanted=wanted)


@check("kernel.next_boot", "module for the next kernel", applies=_HERE)
def next_boot(case: Case) -> Iterator[Outcome]:
    """Where the running kernel has a module on disk, the kernel that the next boot takes has one too."""
    release, running = known(case.host.kernel.next_release), known(case.host.kernel.release)
    if release is None or release == running:
        yield skipped("the next boot takes the running kernel" if release else "the next kernel is not known")
        return
    if release is not None and on_disk(case).holds is False:
        # A driver container or the image brings the module, or there is none: another finding's matter.
        yield skipped("the module of the running kernel does not lie in `/lib/modules` either")
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
    "firmware_missing",
    "gsp",
    "bar",
    "probe_failed",
    "module_signature_rejected",
    "module_symbol",
    "oops",
)


@check("kernel.messages", "kernel messages of this boot", needs=("kernel.logs",), applies=(on_gpu_host,))
def kernel_messages(case: Case) -> Iterator[Outcome]:
    """What the kernel said about the driver. Text alone never fails a host that works: facts do."""
    if not any(boot.index == 0 for boot in known(case.host.kernel.logs) or ()):
        yield unknown("no log of this boot was read")
        return
    first: dict[tuple[str, str], KernelMessage] = {}
    for message in messages(case, *_FATAL):
        if not _is_foreign(case, message):
            first.setdefault((message.kind, message.gpu), message)
    if not first:
        whole = log_is_whole(case)
        yield passed("nothing wrong was logged" if whole else "nothing wrong in the part that was read")
    for message in first.values():
        yield _message_outcome(case, message)


def _is_foreign(case: Case, message: KernelMessage) -> bool:
    """True for a message about a bridge or a card of another vendor: every boot has some."""
    gpus = {d.address for d in case.host.gpus_on_bus}
    return message.kind == "bar" and not message.text.startswith("NVRM") and message.gpu not in gpus


def _message_outcome(case: Case, message: KernelMessage) -> Outcome:
    subject, wanted = f"{message.gpu} {message.kind}".strip(), "no such message in this boot"
    if harmless := _why_harmless(case, message):
        return passed(message.text, subject=subject, why=(f"logged in this boot; {harmless}",))
    is_meant = message.gpu or not working_gpus(case)
    is_refused = message.kind in REFUSALS and is_meant and case.virtualisation != "container"
    # The module's own word that it does not drive this card, and nothing that shows otherwise since.
    say = failed if is_refused else warned
    return say(message.text, subject=subject, wanted=wanted)


def _why_harmless(case: Case, message: KernelMessage) -> str:
    """What shows that nothing follows from a message; empty when nothing does.

    After an oops locks may be held for good and counts be wrong, whatever answers still.
    """
    if message.kind == "oops":
        return ""
    if message.kind == "module_signature_rejected" and module_loaded(case).holds:
        return "`nvidia` is loaded"
    if message.gpu in working_gpus(case):
        return f"{message.gpu} works all the same"
    device = next((d for d in case.host.gpus_on_bus if d.address == message.gpu), None)
    if device is not None and device.driver in HANDED_OVER:
        return f"{message.gpu} is handed to a virtual machine"
    if device is not None and is_beside(case, device):
        return f"other GPUs work, and {message.gpu} may be for the screen, or unused"
    if some_gpu_down(case).holds is not False:
        return ""
    if not message.gpu:
        return "the GPUs that the driver lists work all the same"
    is_elsewhere = isinstance(case.host.pci, Known) and device is None
    return "the GPUs on the bus work all the same" if is_elsewhere else ""


CHECKS = (module_on_disk, headers, dkms, module_signature, next_boot, kernel_messages)
