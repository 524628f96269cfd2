"""Claims about what answers: NVML, device nodes, nvidia_uvm, cuInit; and where this runs."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claim, Claimed, either, no, yes
from doctor.core.claims.listed import HANDED_OVER, down_by_log, is_beside, why_hidden
from doctor.core.host import DeviceNode, GpuReport, Known, is_not_there, is_untold, known
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.core.views import (
    DRIVER_PACKAGE,
    default_library,
    loaded,
    on_jetson,
    probe,
    report,
    working_gpus,
)
from doctor.core.xids import is_action, loaded_since, running_log

#: What dnf's versionlock may put before a name.
_EPOCH = pattern(r"^\d+:")


def nvml_answers(case: Case) -> Claimed:
    """NVML, or nvidia-smi in its place, lists GPUs."""
    answered = report(case)
    if answered is None:
        both = (case.host.driver.nvml, case.host.driver.smi)
        is_missing = all(is_not_there(fact) for fact in both) and not driver_in_container(case).holds
        return no() if is_missing else UNTOLD
    works = not answered.error and bool(answered.gpus)
    return either(works, f"NVML answers with {len(answered.gpus)} GPU(s)")


def nvml_sees_no_gpu(case: Case) -> Claimed:
    answered = report(case)
    if answered is None:
        return UNTOLD
    nothing = "no devices" in answered.error.lower() or (not answered.error and not answered.gpus)
    return either(nothing, "the driver lists no GPU")


def cuinit_works(case: Case) -> Claimed:
    said = probe(case)
    if (said is None or said.error) and driver_in_container(case).holds:
        # Its libraries are not for the host's own processes.
        return UNTOLD
    if said is None:
        return no("libcuda.so.1 is not on the host") if is_not_there(case.host.cuda.probe) else UNTOLD
    if said.result is None and not said.error:
        return UNTOLD
    words = f"cuInit returns {said.result} {said.name}".rstrip() if said.result is not None else said.error
    return yes(words) if said.result == 0 else no(words)


def cuinit_is(*codes: int) -> Claim:
    """A claim that cuInit returned one of these CUresult codes."""

    def claim(case: Case) -> Claimed:
        said = probe(case)
        if said is None or said.result is None:
            return UNTOLD
        return either(said.result in codes, f"cuInit returns {said.result} {said.name}".rstrip())

    return claim


def uvm_loaded(case: Case) -> Claimed:
    if not isinstance(case.host.kernel.modules, Known):
        return UNTOLD
    return either(loaded(case, "nvidia_uvm") is not None, "module `nvidia_uvm` is loaded")


def uvm_node_present(case: Case) -> Claimed:
    nodes = known(case.host.driver.device_nodes)
    if nodes is None:
        return UNTOLD
    return either(any(n.path == "/dev/nvidia-uvm" for n in nodes), "`/dev/nvidia-uvm` exists")


def uvm_not_ready(case: Case) -> Claimed:
    """nvidia_uvm is not loaded, or its node is missing."""
    module, node = uvm_loaded(case), uvm_node_present(case)
    if module.holds is False:
        return yes("module `nvidia_uvm` is not loaded")
    if node.holds is False:
        return yes("`/dev/nvidia-uvm` does not exist")
    return no() if module.holds and node.holds else UNTOLD


#: What nvidia_uvm says when it is loaded.
_UVM_LOADS = "Loaded the UVM driver"


def uvm_lost_in_sleep(case: Case) -> Claimed:
    """Everything is in place, and cuInit fails of unknown cause, on a machine that has slept since the load.

    nvidia_uvm does not always survive suspend; loaded anew it works (pytorch issue 43281, pop-os
    default-settings pull request 64). Error 999 has other causes where the machine was awake.
    """
    said, log = cuinit_is(999)(case), running_log(case)
    if said.holds is not True or uvm_not_ready(case).holds is not False:
        return no() if said.holds is False or uvm_not_ready(case).holds else UNTOLD
    since = loaded_since(log) if log else ()
    sleeps = [n for n, message in enumerate(since) if message.kind == "sleep"]
    if sleeps and not any(_UVM_LOADS in message.text for message in since[sleeps[-1] :]):
        return yes(f"{said.because}, and the machine has slept since: kernel: {since[sleeps[-1]].text}")
    return no() if log is not None else UNTOLD


def uvm_unfit(case: Case) -> Claimed:
    """nvidia_uvm is not ready, or has not come back from sleep."""
    missing, lost = uvm_not_ready(case), uvm_lost_in_sleep(case)
    if missing.holds or lost.holds:
        return missing if missing.holds else lost
    return no() if missing.holds is False and lost.holds is False else UNTOLD


def hmm_enabled(case: Case) -> Claimed:
    uvm = loaded(case, "nvidia_uvm")
    value = uvm.parameters.get("uvm_disable_hmm") if uvm else None
    if value is None:
        return UNTOLD
    return either(value.upper() in ("N", "0"), "nvidia_uvm runs with HMM (`uvm_disable_hmm` is N)")


def device_nodes_missing(case: Case) -> Claimed:
    nodes = known(case.host.driver.device_nodes)
    if nodes is None:
        return UNTOLD
    return either(not any(n.path == "/dev/nvidiactl" for n in nodes), "`/dev/nvidiactl` does not exist")


def _mapped_libcuda(case: Case) -> tuple[str, Dotted | None] | None:
    said = probe(case)
    if said is not None and (said.library_path or said.error):
        # What could not be loaded is mapped by nobody.
        return said.library_path, said.library_version
    library = default_library(case, "libcuda.so.1")
    return (library.path, library.version) if library else None


def libcuda_is_compat(case: Case) -> Claimed:
    mapped = _mapped_libcuda(case)
    if mapped is None:
        return UNTOLD
    return either("/compat/" in mapped[0], f"libcuda comes from `{mapped[0]}`")


def libcuda_older_than_driver(case: Case) -> Claimed:
    mapped, driver = _mapped_libcuda(case), known(case.host.driver.kernel_version)
    if mapped is None or mapped[1] is None or driver is None:
        return UNTOLD
    return either(mapped[1] < driver, f"libcuda is {mapped[1]}, the driver {driver}")


def libcuda_missing(case: Case) -> Claimed:
    """The loader finds no libcuda; one that is there and does not load is another matter."""
    said, other = probe(case), known(case.host.cuda.probe_caller)
    if other is not None and other.library_path:
        return no()
    if is_not_there(case.host.cuda.probe):
        return yes("libcuda.so.1 is not on the host")
    if said is not None:
        is_missing = said.result is None and "no such file" in said.error.lower()
        return either(is_missing, f"libcuda.so.1 cannot be loaded: {said.error}")
    libraries = known(case.host.driver.libraries)
    if libraries is None:
        return UNTOLD
    return either(not any(x.soname == "libcuda.so.1" for x in libraries), "no libcuda on disk")


def userspace_missing(case: Case) -> Claimed:
    """No libcuda; or nvidia-smi says itself that it finds no NVML beside it."""
    smi = known(case.host.driver.smi)
    if smi is not None and "couldn't find libnvidia-ml" in smi.error.lower():
        return yes(f"nvidia-smi: {smi.error}")
    return no() if nix_libcuda(case) else libcuda_missing(case)


def nix_libcuda(case: Case) -> str:
    """Where NixOS keeps libcuda: its programs find it there by path, and the loader's cache knows of none."""
    libraries = known(case.host.driver.libraries) or ()
    found = (x.path for x in libraries if x.soname == "libcuda.so.1" and not x.is_compat)
    return next((p for p in found if p.startswith(("/run/opengl-driver/", "/nix/store/"))), "")


def driver_in_container(case: Case) -> Claimed:
    """A driver container brings module and libraries: nothing of the driver belongs on the host itself."""
    root = case.host.driver.container_root
    if is_not_there(root) or isinstance(case.host.driver.smi, Known):
        # Such a container keeps nvidia-smi to itself as well.
        return no()
    where = known(root)
    return (
        yes(f"a driver container manages the driver: its libraries are below `{where}`") if where else UNTOLD
    )


def jetson(case: Case) -> Claimed:
    if known(case.host.system.platform) is None:
        return UNTOLD
    return either(on_jetson(case), "this is a Jetson: kernel and driver come with JetPack")


def nodes_closed(case: Case) -> Claimed:
    """NVML was refused the device nodes, and not because of who root is."""
    answered = report(case)
    if answered is None or "insufficient permissions" not in answered.error.lower():
        return UNTOLD if answered is None else no()
    if case.host.collection.root:
        return no()
    nodes = known(case.host.driver.device_nodes) or ()
    closed = [f"`{n.path}` is {n.mode} {n.owner}" for n in nodes if is_closed(n)]
    return yes("; ".join([f"NVML: {answered.error}", *closed[:1]]))


def is_closed(node: DeviceNode) -> bool:
    """Whether a node that every CUDA program opens is for its owner and group only."""
    usable = node.path.startswith("/dev/nvidia") and "caps" not in node.path
    return usable and node.mode.isdigit() and int(node.mode, 8) & 0o006 != 0o006


def mig_without_instance(case: Case) -> Claimed:
    """MIG is on for every GPU that the driver lists, and CUDA finds no device: it has no instance to use."""
    answered, none_found = report(case), cuinit_is(100)(case)
    modes = [g.mig_mode for g in answered.gpus] if answered else []
    if none_found.holds is False or False in modes:
        return no()
    if not modes or none_found.holds is None or None in modes:
        return UNTOLD
    return either(all(modes) and none_found.holds, f"MIG is enabled on every GPU; {none_found.because}")


def fabric_not_up(case: Case) -> Claimed:
    """Something of the NVSwitch fabric shows that it is not up: its service, or a GPU's own state."""
    answered = report(case)
    states = {g.fabric_state for g in answered.gpus} - {None} if answered else set()
    unready = sorted(str(s) for s in states if str(s) in ("in_progress", "not_started"))
    if unready:
        return yes(f"a GPU reports fabric state `{unready[0]}`")
    unit = next((u for u in known(case.host.system.units) or () if "fabricmanager" in u.name), None)
    has_switch = any(d.is_nvswitch for d in known(case.host.pci) or ())
    if has_switch and unit is not None and unit.active != "active":
        return yes(f"NVSwitch devices are on the bus, and `{unit.name}` is {unit.active} ({unit.load})")
    return no() if states == {"completed"} else UNTOLD


def place_is(kind: str) -> Claim:
    """A claim about where this runs."""

    def claim(case: Case) -> Claimed:
        place = case.virtualisation
        return either(place == kind, f"this is a {kind}") if place else UNTOLD

    return claim


def on_wsl(case: Case) -> Claimed:
    """Under WSL2; where nothing speaks of the place, its kernel does, and any other kernel is not it."""
    claimed = place_is("wsl2")(case)
    has_kernel = isinstance(case.host.kernel.release, Known)
    return no() if claimed.holds is None and has_kernel else claimed


def updates_unfenced(case: Case) -> Claimed:
    packages = known(case.host.packages)
    if packages is None:
        return UNTOLD
    automatic = known(packages.automatic_updates)
    if automatic is not True:
        return UNTOLD if automatic is None else no()
    excluded, holds = known(packages.automatic_update_exclusions), known(packages.holds)
    held = any(DRIVER_PACKAGE.match(_EPOCH.sub("", name)) for name in holds or ())
    fenced = held or any("nvidia" in pattern for pattern in excluded or ())
    if fenced:
        return no()
    if is_untold(packages.automatic_update_exclusions) or is_untold(packages.holds):
        return UNTOLD
    return yes("packages are upgraded automatically, and nothing excludes or holds the driver")


def not_injected(case: Case) -> Claimed:
    """The host's driver is loaded, and this container has neither its device nodes nor its libraries."""
    nodes, library = device_nodes_missing(case), libcuda_missing(case)
    if nodes.holds or library.holds:
        return nodes if nodes.holds else library
    return no() if nodes.holds is False and library.holds is False else UNTOLD


def recovery_asked(case: Case) -> Claimed:
    """The driver itself asks for a reset, a reboot or a drain."""
    answered = report(case)
    actions = [(g.pci_address, g.recovery_action) for g in answered.gpus] if answered else []
    asked = [f"{address}: {action}" for address, action in actions if is_action(action)]
    if asked:
        return yes(f"the driver asks for {'; '.join(asked)}")
    return no() if actions and all(action for _, action in actions) else UNTOLD


def some_gpu_down(case: Case) -> Claimed:
    """CUDA does not start, or the driver lists fewer GPUs than are on the bus."""
    works, answered = cuinit_works(case), report(case)
    if works.holds is False:
        return yes(works.because)
    if answered is not None and answered.error:
        return yes(f"NVML: {answered.error}")
    if answered is None:
        return UNTOLD if works.holds is None else no()
    missing, hidden = _missing(case, answered)
    if missing:
        return yes(f"the driver does not list {', '.join(missing)}")
    return UNTOLD if hidden else no()


def _missing(case: Case, answered: GpuReport) -> tuple[list[str], bool]:
    """GPUs that the driver should list and does not; and whether others may merely be hidden from who asked.

    A container has the GPUs that it was given, and sees the whole bus all the same.
    """
    if case.virtualisation == "container":
        return [], False
    if not isinstance(case.host.pci, Known):
        return sorted(down_by_log(case)), False
    listed = working_gpus(case)
    ours = [d for d in case.host.gpus_on_bus if d.driver not in HANDED_OVER and d.address not in listed]
    ours = [d for d in ours if not is_beside(case, d)]
    shown = [d.address for d in ours if answered.is_complete and not why_hidden(case, answered, d)]
    return shown, len(shown) < len(ours)
