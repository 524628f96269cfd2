"""Claims about what joins GPUs: NVSwitch, Fabric Manager, the parts that NVLink 5 needs, IMEX."""

from __future__ import annotations

from typing import Literal

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.claims.running import cuinit_is, cuinit_works
from doctor.core.host import Known, Unit, is_not_there, known
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.core.views import loaded, on_jetson, report, same_version

__all__ = [
    "NVLINK5_MODULES",
    "FabricKind",
    "fabric_in_question",
    "fabric_kind",
    "fabric_manager_differs",
    "fabric_manager_down",
    "fabric_of_provider",
    "fabric_state_unready",
    "fabric_waits",
    "imex_channel_missing",
    "manager_unit",
    "nvlink5_part_missing",
    "unready_states",
]

#: `switch`: NVSwitches on this host's PCI bus. `nvlink5`: those of NVLink 5, reached through InfiniBand.
#: `rack`: switch trays with managers of their own. `provider`: a guest with GPUs of such a board. `none`.
FabricKind = Literal["switch", "nvlink5", "rack", "provider", "none"]

#: Fabric Manager and NVLSM reach the switches of NVLink 5 through these (gpu-operator issue 2781).
NVLINK5_MODULES = ("mlx5_ib", "ib_umad")

#: A whole board of NVSwitches in one guest has eight GPUs; fewer are a slice that the provider manages.
_BOARD = 8

_UNREADY = ("in_progress", "not_started")


def fabric_kind(case: Case) -> FabricKind | None:
    """What joins this host's GPUs; None where that was not read, or inside a container, whose host has it."""
    if "fabric_kind" not in case.memo:
        case.memo["fabric_kind"] = _kind(case)
    kind: FabricKind | None = case.memo["fabric_kind"]
    return kind


def _kind(case: Case) -> FabricKind | None:
    if case.virtualisation == "container":
        return None
    if case.virtualisation == "wsl2" or on_jetson(case):
        return "none"
    if not isinstance(case.host.pci, Known):
        return None
    if any(d.is_nvswitch for d in case.host.pci.value):
        return "switch"
    products = [case.matrix.product(d.device_id) for d in case.host.gpus_on_bus]
    kinds = {p.fabric for p in products if p is not None}
    if "rack" in kinds:
        return "rack"
    if "nvlink5" in kinds:
        return _kind_of_nvlink5(case)
    if "nvswitch" not in kinds or case.virtualisation == "bare_metal":
        # Boards of four GPUs are joined by plain NVLink, without switches.
        return "none"
    return "provider" if case.virtualisation == "vm" else None


def _kind_of_nvlink5(case: Case) -> FabricKind | None:
    """Its switches are not on the PCI bus: in a guest other facts must tell whose they are."""
    if case.virtualisation != "vm":
        return "nvlink5"
    if len(case.host.gpus_on_bus) < _BOARD:
        return "provider"
    unit, ports = manager_unit(case), known(case.host.network.ports)
    is_installed = isinstance(case.host.fabric.manager_version, Known)
    if is_installed or ports or (unit is not None and unit.load == "loaded"):
        return "nvlink5"
    return "provider" if ports is not None and unit is not None else None


def manager_unit(case: Case) -> Unit | None:
    """Fabric Manager's unit, where systemd was asked for it."""
    units = known(case.host.system.units) or ()
    return next((u for u in units if u.name.startswith("nvidia-fabricmanager")), None)


def unready_states(case: Case) -> tuple[tuple[str, str], ...]:
    """(GPU, fabric state) of the GPUs whose fabric is not up."""
    answered = report(case)
    gpus = answered.gpus if answered else ()
    return tuple((g.pci_address, g.fabric_state) for g in gpus if g.fabric_state in _UNREADY)


def fabric_waits(case: Case) -> Claimed:
    """CUDA cannot start because the fabric is not up: its error 802, or a GPU's state while CUDA fails."""
    refused, works = cuinit_is(802)(case), cuinit_works(case)
    if refused.holds or works.holds:
        return yes(refused.because) if refused.holds else no()
    unready = unready_states(case)
    if unready and works.holds is None:
        return yes(f"a GPU reports fabric state `{unready[0][1]}`")
    return refused if refused.holds is False else UNTOLD


def fabric_manager_down(case: Case) -> Claimed:
    """The GPUs of this host need Fabric Manager, and it does not run."""
    kind, unit = fabric_kind(case), manager_unit(case)
    if kind not in (None, "switch", "nvlink5"):
        return no()
    if unit is not None and unit.active == "active":
        return no()
    # A driver container runs its own, out of systemd's sight; one that is starting will tell in a minute.
    if (
        kind is None
        or (_is_gone(unit) and _may_be_in_a_container(case))
        or (unit is not None and unit.active == "activating")
    ):
        return UNTOLD
    joined = "NVSwitches are on the bus" if kind == "switch" else "NVLink 5 joins these GPUs"
    if unit is not None and unit.load == "loaded":
        return yes(f"{joined}, and `{unit.name}` is {unit.active}")
    if unit is not None or is_not_there(case.host.fabric.manager_version):
        return yes(f"{joined}, and Fabric Manager is not installed")
    return UNTOLD


def _is_gone(unit: Unit | None) -> bool:
    return unit is None or unit.load != "loaded"


def _may_be_in_a_container(case: Case) -> bool:
    """Whether a driver container manages the driver, or somebody looked for one in vain."""
    root = case.host.driver.container_root
    return isinstance(root, Known) or root.reason not in ("not_installed", "not_collected")


_REFUSAL = pattern(r"interface version (\S{1,64}) don't match with driver version (\S{1,64})")


def fabric_manager_differs(case: Case) -> Claimed:
    """Fabric Manager is of another version than the loaded driver, or says so itself and does not run."""
    kind = fabric_kind(case)
    if kind not in (None, "switch", "nvlink5"):
        return no()
    manager, driver = known(case.host.fabric.manager_version), known(case.host.driver.kernel_version)
    if kind is None:
        return UNTOLD
    on_disk = known(case.host.driver.userspace_version)
    if (
        manager is not None
        and on_disk is not None
        and driver is not None
        and _waits(on_disk, driver, manager)
    ):
        return no()
    if manager is not None and driver is not None:
        return either(not same_version(manager, driver), _versions(manager, driver))
    return _said_to_differ(case)


def _waits(on_disk: Dotted, driver: Dotted, manager: Dotted) -> bool:
    """Whether Fabric Manager fits the driver on disk, and the loaded one is older: a reboot is due."""
    return not same_version(on_disk, driver) and same_version(manager, on_disk)


def _versions(manager: Dotted, driver: Dotted) -> str:
    return f"Fabric Manager is {manager}, the loaded driver {driver}"


def _said_to_differ(case: Case) -> Claimed:
    unit, lines = manager_unit(case), known(case.host.fabric.manager_log) or ()
    refusal = next((m for line in reversed(lines) if (m := _REFUSAL.search(line))), None)
    if refusal and (unit is None or unit.active != "active"):
        manager, driver = (text.rstrip(".,") for text in refusal.groups())
        return yes(f"Fabric Manager {manager} refuses driver {driver}, by its own log")
    return no() if is_not_there(case.host.fabric.manager_version) else UNTOLD


def nvlink5_part_missing(case: Case) -> Claimed:
    """Something that Fabric Manager needs to reach the switches of NVLink 5 is not there."""
    kind = fabric_kind(case)
    if kind not in (None, "nvlink5"):
        return no()
    if kind is None:
        return UNTOLD
    host = case.host
    missing = [f"module `{m}` is not loaded" for m in NVLINK5_MODULES if not loaded(case, m)]
    if not isinstance(host.kernel.modules, Known):
        missing = []
    if known(host.network.ports) == ():
        missing.append("no InfiniBand device is there")
    # A driver container has an NVLSM of its own.
    if is_not_there(host.fabric.subnet_manager_version) and not _may_be_in_a_container(case):
        missing.append("NVLSM is not installed")
    if missing:
        return yes("; ".join(missing))
    is_told = isinstance(host.kernel.modules, Known) and isinstance(host.fabric.subnet_manager_version, Known)
    return no() if is_told else UNTOLD


def fabric_in_question(case: Case) -> Claimed:
    """CUDA waits for the fabric, or something that brings it up is not as it must be."""
    waits = fabric_waits(case)
    if waits.holds:
        return waits
    signs = [claim(case) for claim in (fabric_manager_down, fabric_manager_differs, nvlink5_part_missing)]
    told = next((sign for sign in signs if sign.holds), None)
    if told is not None:
        return told
    return no() if waits.holds is False or all(sign.holds is False for sign in signs) else UNTOLD


def fabric_state_unready(case: Case) -> Claimed:
    """A GPU says that its fabric is not up. Error 802 alone may come from confidential computing."""
    unready, answered = unready_states(case), report(case)
    if unready:
        return yes(f"{unready[0][0]} reports fabric state `{unready[0][1]}`")
    states = [g.fabric_state for g in answered.gpus] if answered else []
    return no() if states and None not in states else UNTOLD


def fabric_of_provider(case: Case) -> Claimed:
    """A guest has GPUs of an NVSwitch board, and not its switches: the fabric is the provider's."""
    kind = fabric_kind(case)
    if kind is None:
        return UNTOLD
    return either(
        kind == "provider", "this is a guest with GPUs of an NVSwitch board, and without its switches"
    )


def imex_channel_missing(case: Case) -> Claimed:
    """The driver offers IMEX channels, and there is no node of one."""
    fabric = case.host.fabric
    has_class, channels = known(fabric.imex_device_class), known(fabric.imex_channels)
    if has_class is False or channels:
        return no()
    if channels is None and not is_not_there(fabric.imex_channels):
        return UNTOLD
    return yes("`/dev/nvidia-caps-imex-channels` holds no channel") if has_class else UNTOLD
