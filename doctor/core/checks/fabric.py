"""Checks of what joins GPUs: NVSwitch, Fabric Manager, NVLink 5's own parts, NVLinks, IMEX."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import asked, on_gpu_host, with_module
from doctor.core.checks.told import fact_untold, gpu_untold
from doctor.core.claims.fabric import (
    fabric_kind,
    fabric_manager_differs,
    fabric_manager_down,
    fabric_waits,
    imex_channel_missing,
    manager_unit,
    nvlink5_part_missing,
    unready_states,
)
from doctor.core.claims.running import cuinit_works
from doctor.core.host import Absent, Gpu, is_not_there, known
from doctor.core.host_fabric import NvlinkTotal
from doctor.core.views import report

__all__ = ["CHECKS"]

_WORKS = ("cuInit succeeds now; after the next reboot or reset of the GPUs it will not",)


def _with_kind(*kinds: str) -> Callable[[Case], str]:
    """A reason to skip where the GPUs are known to be joined otherwise, or this is a container."""

    def applies(case: Case) -> str:
        kind = fabric_kind(case)
        if kind is None:
            if case.virtualisation == "container":
                return "inside a container the fabric is the host's"
            return "whether this host has NVSwitches was not read"
        if kind in kinds:
            return ""
        return "the provider manages the fabric of this guest" if kind == "provider" else _NOT_JOINED[kind]

    return applies


_NOT_JOINED = {
    "none": "no NVSwitch joins the GPUs of this host",
    "switch": "the NVSwitches of this host are on its PCI bus",
    "nvlink5": "the GPUs of this host are joined by NVLink 5",
    "rack": "the switch trays of the rack have managers of their own",
}


def _grave(case: Case) -> Callable[..., Outcome]:
    """What is wrong with the fabric fails the host, unless CUDA starts all the same."""
    return warned if cuinit_works(case).holds else failed


@check(
    "fabric.manager",
    "Fabric Manager running",
    applies=(on_gpu_host, with_module, _with_kind("switch", "nvlink5")),
)
def manager(case: Case) -> Iterator[Outcome]:
    """Without it CUDA does not start on a host whose GPUs are joined by NVSwitches (error 802)."""
    down, unit, wanted = fabric_manager_down(case), manager_unit(case), "Fabric Manager active"
    if down.holds is False:
        yield passed(f"`{unit.name}` is {unit.active}" if unit else "it runs", wanted=wanted)
    elif down.holds is None:
        yield unknown(_why_untold(case), wanted=wanted)
    elif cuinit_works(case).holds:
        yield warned(down.because, wanted=wanted, why=_WORKS)
    else:
        yield failed(down.because, wanted=wanted, why=_last_words(case))


def _why_untold(case: Case) -> str:
    unit = manager_unit(case)
    if unit is not None and unit.active == "activating":
        return f"`{unit.name}` is starting"
    if isinstance(case.host.driver.container_root, Absent):
        return "whether it runs was not read"
    return "a driver container manages the driver: its Fabric Manager is out of sight"


def _last_words(case: Case) -> tuple[str, ...]:
    """The newest line of its log that speaks of an error."""
    lines = known(case.host.fabric.manager_log) or ()
    return tuple(f"its log: {line}" for line in lines[-1:])


@check(
    "fabric.manager_version",
    "Fabric Manager of the driver's version",
    applies=(on_gpu_host, with_module, _with_kind("switch", "nvlink5")),
)
def manager_version(case: Case) -> Iterator[Outcome]:
    """The full version must be equal; another patch level of the branch is refused as well."""
    differs, driver = fabric_manager_differs(case), known(case.host.driver.kernel_version)
    wanted = f"version {driver}" if driver else "the driver's version"
    if is_not_there(case.host.fabric.manager_version) and not differs.holds:
        yield skipped("Fabric Manager is not installed")
    elif differs.holds is None:
        yield unknown("its version, or the driver's, was not read", wanted=wanted)
    elif differs.holds:
        why = ("it refuses another version when it starts next",) if cuinit_works(case).holds else ()
        yield _grave(case)(differs.because, wanted=wanted, why=why)
    else:
        yield passed(str(known(case.host.fabric.manager_version)), wanted=wanted)


@check(
    "fabric.nvlink5",
    "NVLink 5 switches reachable",
    applies=(on_gpu_host, with_module, _with_kind("nvlink5")),
)
def nvlink5(case: Case) -> Iterator[Outcome]:
    """Fabric Manager reaches these switches through `mlx5_ib` and `ib_umad`, with NVLSM beside it."""
    missing = nvlink5_part_missing(case)
    wanted = "mlx5_ib and ib_umad loaded, InfiniBand devices there, NVLSM installed"
    if missing.holds is None:
        yield unknown("modules, InfiniBand devices or packages were not read", wanted=wanted)
    elif missing.holds:
        why = _WORKS if cuinit_works(case).holds else ()
        yield _grave(case)(missing.because, wanted=wanted, why=why)
    else:
        yield passed(wanted=wanted)


#: NVML's call, by its newer and older name.
_INFO = ("gpu_fabric_info", "gpu_fabric_info_v")


@check(
    "fabric.state",
    "fabric ready for each GPU",
    needs=("driver.nvml|driver.smi",),
    applies=(on_gpu_host,),
)
def state(case: Case) -> Iterator[Outcome]:
    """The driver's own word on each GPU that a fabric joins; *completed* is what CUDA waits for."""
    answered = report(case)
    gpus = [g for g in answered.gpus if g.fabric_state] if answered else []
    silent = [g for g in answered.gpus if not g.fabric_state and {*_INFO} & {*g.errors}] if answered else []
    yield from (gpu_untold(gpu, *_INFO) for gpu in silent)
    if not gpus and not silent:
        yield skipped("no GPU tells of a fabric")
    waits, unready = fabric_waits(case), dict(unready_states(case))
    for gpu in gpus:
        yield _state_outcome(case, gpu, is_waiting=bool(waits.holds), is_unready=gpu.pci_address in unready)


def _state_outcome(case: Case, gpu: Gpu, *, is_waiting: bool, is_unready: bool) -> Outcome:
    found, wanted = f"`{gpu.fabric_state}`", "`completed`"
    if gpu.fabric_status not in (None, "success"):
        why = ("the fabric was set up for this GPU, and that failed",)
        return _grave(case)(
            f"{found}, `{gpu.fabric_status}`", subject=gpu.pci_address, wanted=wanted, why=why
        )
    if not is_unready:
        return passed(found, subject=gpu.pci_address, wanted=wanted)
    if is_waiting:
        return failed(found, subject=gpu.pci_address, wanted=wanted, why=("CUDA waits for it",))
    if gpu.mig_mode or fabric_kind(case) in (None, "none", "provider"):
        # A GPU cut off from the others (MIG, handed out alone) need not join, and CUDA starts.
        return passed(found, subject=gpu.pci_address)
    if cuinit_works(case).holds:
        why = ("CUDA starts; memory over NVLink to the other GPUs may not work",)
        return warned(found, subject=gpu.pci_address, wanted=wanted, why=why)
    return unknown(found, subject=gpu.pci_address, wanted=wanted, why=("CUDA fails for another reason",))


@check("fabric.switches", "NVSwitches answer", applies=(on_gpu_host, with_module, _with_kind("switch")))
def switches(case: Case) -> Iterator[Outcome]:
    """Each NVSwitch on the bus answers, and the driver has it."""
    for device in known(case.host.pci) or ():
        if not device.is_nvswitch:
            continue
        wanted = "it answers, bound to `nvidia-nvswitch`"
        if device.is_responding is False:
            yield failed("its config space reads all ones", subject=device.address, wanted=wanted)
        elif device.driver is None:
            yield unknown("which driver has it was not read", subject=device.address, wanted=wanted)
        elif not device.driver:
            yield _grave(case)("no driver has it", subject=device.address, wanted=wanted)
        else:
            yield passed(f"bound to `{device.driver}`", subject=device.address)


@check("fabric.nvlinks", "NVLinks active", applies=(on_gpu_host,))
def nvlinks(case: Case) -> Iterator[Outcome]:
    """On an NVSwitch board all GPUs have equally many links; one with fewer has lost some."""
    fact = case.host.fabric.nvlinks
    if isinstance(fact, Absent) or not fact.value:
        is_lost = isinstance(fact, Absent) and fact.reason not in ("not_collected", "not_installed")
        words = "the links of the GPUs were not read"
        yield unknown(words) if is_lost else skipped("no GPU tells of NVLinks")
        return
    answered = report(case)
    split = {g.pci_address for g in (answered.gpus if answered else ()) if g.mig_mode}
    is_joined = fabric_kind(case) in ("switch", "nvlink5", "rack")
    usual = max(row.active for row in fact.value)
    for row in fact.value:
        yield _links_outcome(row, usual, is_joined=is_joined, is_split=row.gpu in split)


def _links_outcome(row: NvlinkTotal, usual: int, *, is_joined: bool, is_split: bool) -> Outcome:
    found = f"{row.active} active, {row.inactive} inactive"
    if row.errors:
        found += f", {row.errors} error(s) counted"
    if is_split:
        return passed(found, subject=row.gpu, why=("MIG is on: it uses no NVLink",))
    if not is_joined:
        return passed(found, subject=row.gpu)  # a bridge that nobody plugged is a choice
    if row.active < usual:
        why = (f"other GPUs of this board have {usual}",)
        return warned(found, subject=row.gpu, wanted=f"{usual} active", why=why)
    if not row.active:
        return warned(found, subject=row.gpu, wanted="links active on an NVSwitch board")
    return passed(found, subject=row.gpu)


@check("fabric.not_needed", "Fabric Manager only where it is needed", applies=(on_gpu_host,))
def not_needed(case: Case) -> Iterator[Outcome]:
    """Where there is no NVSwitch its failing is harmless: it finds nothing to do."""
    kind, unit = fabric_kind(case), manager_unit(case)
    if unit is None:
        yield fact_untold(case.host.system.units, "systemd's units", absent="it is not installed")
    elif unit.load != "loaded":
        yield skipped("it is not installed")
    elif kind is None:
        yield unknown(f"`{unit.name}` is {unit.active}; whether NVSwitches join the GPUs was not read")
    elif kind in ("switch", "nvlink5"):
        yield skipped("it is needed here: see `fabric.manager`")
    elif unit.active == "active":
        yield passed(f"`{unit.name}` runs")
    else:
        why = ("no NVSwitch is here for it: it has nothing to do, and CUDA does not wait for it",)
        if kind != "none":
            why = ("the fabric of these GPUs is managed elsewhere",)
        yield passed(f"`{unit.name}` is {unit.active}", why=why if unit.active == "failed" else ())


@check("fabric.imex", "IMEX ready", applies=(on_gpu_host, asked("fabric.imex_channels", "IMEX channels")))
def imex(case: Case) -> Iterator[Outcome]:
    """Memory over NVLink between hosts needs a channel node and the service; nothing else does."""
    unit = next((u for u in known(case.host.system.units) or () if u.name.startswith("nvidia-imex")), None)
    peers = known(case.host.fabric.imex_peers) or ()
    is_wanted = unit is not None and (unit.enabled == "enabled" or unit.active in ("active", "failed"))
    if fabric_kind(case) != "rack" and len(peers) < 2 and not is_wanted:
        yield skipped("only memory over NVLink between hosts needs IMEX")
        return
    missing, wanted = imex_channel_missing(case), "a channel in `/dev/nvidia-caps-imex-channels`"
    if missing.holds:
        why = ("CUDA starts without it; sharing memory with other hosts of the rack does not work",)
        yield warned(missing.because, wanted=wanted, why=why)
    elif missing.holds is None:
        yield unknown("whether there are channels was not read", wanted=wanted)
    else:
        channels = known(case.host.fabric.imex_channels) or ()
        yield passed(f"{len(channels)} channel(s)", wanted=wanted)
    if unit is not None and unit.active == "failed":
        yield warned(f"`{unit.name}` is failed", subject=unit.name, wanted="active")


CHECKS = (manager, manager_version, nvlink5, state, switches, nvlinks, not_needed, imex)
