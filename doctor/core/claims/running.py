"""Claims about what answers: NVML, device nodes, nvidia_uvm, cuInit; and where this runs."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.bus import HANDED_OVER
from doctor.core.claims.claimed import UNTOLD, Claim, Claimed, either, no, yes
from doctor.core.host import Known, is_not_there, is_untold, known
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.core.views import DRIVER_PACKAGE, default_library, loaded, probe, report, working_gpus

#: What dnf's versionlock may put before a name.
_EPOCH = pattern(r"^\d+:")


def nvml_answers(case: Case) -> Claimed:
    """NVML, or nvidia-smi in its place, lists GPUs."""
    answered = report(case)
    if answered is None:
        both = (case.host.driver.nvml, case.host.driver.smi)
        return no() if all(is_not_there(fact) for fact in both) else UNTOLD
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


def is_action(word: str | None) -> bool:
    """Whether a recovery action asks for something; a number that this edition cannot name does not."""
    return bool(word) and str(word).lower() != "none" and not str(word).startswith("unknown_")


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
    listed = working_gpus(case)
    ours = [d.address for d in case.host.gpus_on_bus if d.driver not in HANDED_OVER]
    missing = [address for address in ours if address not in listed]
    if answered is not None and missing:
        return yes(f"the driver does not list {', '.join(missing)}")
    return UNTOLD if answered is None and works.holds is None else no()
