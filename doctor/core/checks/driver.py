"""Checks of the driver: bound, loaded, matching its libraries and its GPUs, and answering."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import not_jetson, not_wsl, on_gpu_host, on_own_kernel, with_module
from doctor.core.checks.listing import gpu_count, is_table
from doctor.core.checks.told import fact_untold
from doctor.core.claims.listed import HANDED_OVER, is_beside
from doctor.core.claims.modules import module_loaded
from doctor.core.claims.running import (
    cuinit_works,
    driver_in_container,
    is_closed,
    nvml_answers,
    uvm_not_ready,
)
from doctor.core.claims.stack import userspace_differs
from doctor.core.host import Flavour, PciDevice, is_not_there, is_untold, known
from doctor.core.views import (
    DRIVER_PACKAGE,
    card_name,
    cut_short,
    driver_major,
    first_branch,
    is_stub,
    last_branch,
    nvidia_file,
    on_jetson,
    report,
    running_kernel,
    same_version,
    working_gpus,
)

__all__ = ["CHECKS"]


@check(
    "driver.binding", "GPU bound to the nvidia driver", needs=("pci",), applies=(on_gpu_host, on_own_kernel)
)
def binding(case: Case) -> Iterator[Outcome]:
    """Which kernel driver owns each GPU."""
    for device in case.host.gpus_on_bus:
        wanted = "driver `nvidia`"
        if device.driver is None:
            yield unknown("the binding was not read", subject=device.address, wanted=wanted)
        elif device.driver == "nvidia":
            yield passed(subject=device.address, wanted=wanted)
        elif device.driver in HANDED_OVER:
            yield skipped(f"handed to a virtual machine ({device.driver})", subject=device.address)
        else:
            found = f"driver `{device.driver}`" if device.driver else "no driver"
            name, is_spare = card_name(case, device), is_beside(case, device)
            why = f"{name}; other GPUs work: it may be for the screen, or unused" if is_spare else name
            say = warned if is_spare else failed
            yield say(found, subject=device.address, wanted=wanted, why=(why,))


@check(
    "driver.module_loaded",
    "module loaded",
    needs=("driver.kernel_version|kernel.modules",),
    applies=(on_gpu_host, not_jetson),
    critical=True,
)
def loaded_module(case: Case) -> Iterator[Outcome]:
    """The `nvidia` module is in the running kernel."""
    if case.virtualisation == "wsl2":
        yield skipped("under WSL2 the driver is the one of Windows")
        return
    claim = module_loaded(case)
    wanted = "module `nvidia` loaded"
    if claim.holds:
        yield passed(claim.because, wanted=wanted)
    elif claim.holds is False:
        yield failed("it is not loaded", wanted=wanted)
    else:
        yield unknown("neither `/proc/driver/nvidia/version` nor `/proc/modules` was read", wanted=wanted)


@check(
    "driver.userspace_match",
    "module and libraries of one version",
    needs=("driver.kernel_version", "driver.userspace_version"),
    applies=(on_gpu_host, not_wsl, not_jetson, with_module),
)
def userspace_match(case: Case) -> Iterator[Outcome]:
    """NVML and CUDA refuse to work unless module and user space have the very same version."""
    kernel, user = known(case.host.driver.kernel_version), known(case.host.driver.userspace_version)
    wanted = "the same version on both sides"
    if kernel is None:
        yield skipped("no module version to compare")
    elif user is None and driver_in_container(case).holds:
        yield skipped(driver_in_container(case).because)
    elif user is None:
        yield failed("no driver library on the host", wanted=f"user-space libraries {kernel}")
    elif same_version(kernel, user):
        yield passed(f"both are {kernel}", wanted=wanted)
    elif userspace_differs(case).holds is False:
        why = ("NVML and cuInit work, so the libraries in use fit; a service may find these instead",)
        yield warned(f"module {kernel}, libraries found {user}", wanted=wanted, why=why)
    else:
        yield failed(f"module {kernel}, libraries {user}", wanted=wanted)


def _running_flavour(case: Case) -> Flavour | None:
    found = nvidia_file(running_kernel(case))
    return known(case.host.driver.flavour) or (found.flavour if found else None)


@check("driver.flavour", "module flavour fits the GPU", needs=("pci",), applies=(on_gpu_host, on_own_kernel))
def flavour(case: Case) -> Iterator[Outcome]:
    """Blackwell and Grace Hopper need the open modules; Maxwell, Pascal and Volta the proprietary ones."""
    running = _running_flavour(case)
    if running is None:
        words = "no module whose flavour is known"
        yield fact_untold(case.host.driver.flavour, "the module's flavour", absent=words)
        return
    for device in case.host.gpus_on_bus:
        allowed = case.matrix.open_module(device.device_id)
        wrong = {"required": "proprietary", "unsupported": "open"}.get(allowed or "")
        if allowed is None:
            yield unknown(
                f"{device.device_id} is not in matrix {case.matrix.edition.name}", subject=device.address
            )
        elif running == wrong:
            other = "open" if running == "proprietary" else "proprietary"
            wanted = f"the {other} modules for {card_name(case, device)}"
            yield _unfit(case, device, f"the {running} modules", wanted)
        else:
            yield passed(f"the {running} modules", subject=device.address)


def _unfit(case: Case, device: PciDevice, found: str, wanted: str) -> Outcome:
    """A driver that the matrix says does not drive this card. What the driver does drive proves it wrong."""
    if device.address in working_gpus(case):
        why = ("the driver lists this GPU all the same: the matrix may be wrong about it",)
        return warned(found, subject=device.address, wanted=wanted, why=why)
    if is_beside(case, device):
        return skipped(
            f"{found}; other GPUs work: it may be for the screen, or unused", subject=device.address
        )
    return failed(found, subject=device.address, wanted=wanted)


@check("driver.branch", "branch drives the GPU", needs=("pci",), applies=(on_gpu_host, on_own_kernel))
def branch(case: Case) -> Iterator[Outcome]:
    """Each GPU generation has a first driver branch, and old ones have a last one."""
    major = driver_major(case)
    if major is None:
        fact, words = case.host.driver.kernel_version, "there is no driver"
        yield fact_untold(fact, "the driver's version", absent=words)
        return
    for device in case.host.gpus_on_bus:
        yield _branch_outcome(case, device, major)


def _branch_outcome(case: Case, device: PciDevice, major: int) -> Outcome:
    first, last = first_branch(case, device.device_id), last_branch(case, device.device_id)
    subject, found = device.address, f"R{major}"
    if case.matrix.gpu(device.device_id) is None:
        text = f"{device.device_id} is not in matrix {case.matrix.edition.name}"
        return unknown(text, subject=subject, why=("a newer edition may know it",))
    if last is not None and major > last:
        return _unfit(case, device, found, f"R{last} or older for {card_name(case, device)}")
    if first is not None and major < first:
        return _unfit(case, device, found, f"R{first} or newer for {card_name(case, device)}")
    return passed(found, subject=subject)


@check(
    "driver.nvml",
    "NVML answers",
    needs=("driver.nvml|driver.smi",),
    applies=(on_gpu_host,),
    critical=True,
)
def nvml(case: Case) -> Iterator[Outcome]:
    """The management library starts and lists the GPUs; nvidia-smi's word stands in for it."""
    answered = report(case)
    wanted = "NVML starts and lists the GPUs"
    if answered is None and any(is_untold(f) for f in (case.host.driver.nvml, case.host.driver.smi)):
        yield unknown("neither NVML nor nvidia-smi gave an answer", wanted=wanted)
    elif answered is None and on_jetson(case):
        yield skipped("this release of JetPack has no NVML")
    elif answered is None and driver_in_container(case).holds:
        yield unknown(
            "NVML lies in a driver container", wanted=wanted, why=(driver_in_container(case).because,)
        )
    elif answered is None:
        yield failed("neither `libnvidia-ml.so.1` nor `nvidia-smi` is on the host", wanted=wanted)
    elif answered.error:
        yield failed(answered.error, wanted=wanted)
    elif cut_short(answered):
        yield unknown(f"{len(answered.gpus)} GPU(s) came in time", wanted=wanted, why=answered.device_errors)
    elif is_table(case, answered):
        yield passed(f"nvidia-smi answers, driver {answered.driver_version or 'unnamed'}", wanted=wanted)
    elif not answered.gpus and answered.device_errors:
        yield unknown("it starts, and stopped at an error", wanted=wanted, why=answered.device_errors)
    elif not answered.gpus:
        yield failed("it lists no GPU", wanted=wanted)
    else:
        yield passed(
            f"{len(answered.gpus)} GPU(s), driver {answered.driver_version or 'unnamed'}", wanted=wanted
        )


@check(
    "driver.device_nodes",
    "device nodes",
    needs=("driver.device_nodes",),
    applies=(on_gpu_host, not_jetson, with_module),
)
def device_nodes(case: Case) -> Iterator[Outcome]:
    """`/dev/nvidiactl` and one node a GPU. They are made on first use, so absence alone is no fault."""
    if case.virtualisation == "wsl2":
        yield skipped("WSL2 uses `/dev/dxg`")
        return
    nodes = {n.path: n for n in known(case.host.driver.device_nodes) or ()}
    if "/dev/nvidiactl" in nodes:
        closed = [n.path for n in nodes.values() if is_closed(n)]
        note = (f"{', '.join(closed)} open to root and its group only",) if closed else ()
        yield passed(f"{len(nodes)} nodes", why=note)
    elif cuinit_works(case).holds or nvml_answers(case).holds:
        yield passed("made on first use")
    elif cuinit_works(case).holds is None and nvml_answers(case).holds is None:
        yield unknown("`/dev/nvidiactl` does not exist: it is made on first use, and nothing was asked yet")
    else:
        yield failed("`/dev/nvidiactl` does not exist", wanted="`/dev/nvidiactl` and `/dev/nvidia0`")


@check(
    "driver.uvm",
    "nvidia_uvm ready",
    needs=("kernel.modules|driver.device_nodes",),
    applies=(on_gpu_host, not_jetson, with_module),
)
def uvm(case: Case) -> Iterator[Outcome]:
    """CUDA needs nvidia_uvm and its node. They come with the first CUDA call, so cuInit decides."""
    if case.virtualisation == "wsl2":
        yield skipped("WSL2 has no nvidia_uvm")
        return
    ready, works = uvm_not_ready(case), cuinit_works(case)
    wanted = "module `nvidia_uvm` and `/dev/nvidia-uvm`"
    if works.holds:
        yield passed("cuInit works", wanted=wanted)
    elif ready.holds and works.holds is False:
        yield failed(ready.because, wanted=wanted)
    elif ready.holds:
        yield passed(f"{ready.because}: both come with the first CUDA call", wanted=wanted)
    elif ready.holds is False:
        yield passed("loaded, node present", wanted=wanted)
    else:
        yield unknown("module list or device nodes were not read", wanted=wanted)


@check("driver.packages", "driver packages whole", needs=("packages",), applies=(on_own_kernel,))
def packages(case: Case) -> Iterator[Outcome]:
    """Every NVIDIA package is fully installed; a half-configured one blocks the package manager."""
    if is_not_there(case.host.packages):
        yield skipped("no package manager that is known here")
        return
    found = known(case.host.packages)
    half = [p for p in found.installed if p.state != "installed"] if found else []
    for package in half:
        yield warned(f"`{package.name}` is {package.state}", subject=package.name, wanted="installed")
    if not half:
        yield passed("all whole")


@check(
    "driver.install_source",
    "one source for the driver",
    needs=("driver.libraries", "packages"),
    applies=(on_gpu_host, on_own_kernel),
)
def install_source(case: Case) -> Iterator[Outcome]:
    """Driver libraries that no package owns beside driver packages: two installations in one place."""
    packages = known(case.host.packages)
    mine = [p.name for p in packages.installed if DRIVER_PACKAGE.match(p.name)] if packages else []
    libraries = [x for x in known(case.host.driver.libraries) or () if not x.is_compat]
    stray = [x.path for x in libraries if x.package == "" and not is_stub(x)]
    if mine and stray:
        yield warned(
            f"`{mine[0]}` is installed, and no package owns `{stray[0]}`",
            wanted="all driver files from one source",
            why=("a runfile or hand-made installation beside packages: updates change half of it",),
        )
    elif stray:
        why = (f"no package owns `{stray[0]}`: put there by hand, by a runfile or with the image",)
        yield passed("driver files without a package", why=why)
    elif libraries and all(x.package is None for x in libraries):
        yield skipped("which packages own the driver's files was not asked")
    elif mine:
        yield passed(f"packages such as `{mine[0]}`")
    else:
        yield skipped("neither files nor packages of a driver are here")


CHECKS = (
    binding,
    loaded_module,
    flavour,
    branch,
    userspace_match,
    nvml,
    gpu_count,
    device_nodes,
    uvm,
    packages,
    install_source,
)
