"""Checks of engines and the NVIDIA Container Toolkit: can a container that asks for a GPU be given one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import asked, not_jetson, on_gpu_host, outside_containers
from doctor.core.checks.told import fact_untold
from doctor.core.claims.cdi import cdi_specs, engine, kubernetes, operator_manages, toolkit_present
from doctor.core.claims.container import (
    docker_is_snap,
    double_managed,
    is_wired,
    linux_driver_in_wsl,
    no_cgroups_rootful,
    no_cgroups_seen,
    node_engine,
    pods_get_runc,
    rootless_closed,
)
from doctor.core.claims.toolkit import (
    toolkit_bulletins,
    toolkit_mode_known,
    toolkit_mode_unfit,
    toolkit_packages,
    toolkit_parts_differ,
)
from doctor.core.host import is_not_there, known
from doctor.core.host_container import ContainerEngine
from doctor.core.views import on_jetson

__all__ = ["CHECKS", "grave", "on_engines"]

on_engines = (on_gpu_host, outside_containers, asked("containers.engines", "container engines"))
_ENGINES = ("containers.engines",)
_WANTS_GPU = ("docker", "containerd", "crio", "k3s", "rke2")


def grave(case: Case) -> Callable[..., Outcome]:
    """The host serves without containers, unless they are the goal."""
    return failed if case.goal.delivery == "container" else warned


def _engines(case: Case) -> tuple[ContainerEngine, ...]:
    return known(case.host.containers.engines) or ()


def _serving(case: Case) -> tuple[ContainerEngine, ...]:
    """The engines that start work with GPUs here: not the containerd that only serves Docker."""
    node = node_engine(case)
    return tuple(e for e in _engines(case) if e.name == "docker" or e is node)


@check("container.engine_config", "engine configuration readable", needs=_ENGINES, applies=on_engines)
def engine_config(case: Case) -> Iterator[Outcome]:
    """A configuration with a fault is used until the engine's next start, which then fails."""
    for one in _engines(case):
        wanted = f"`{one.config_path or one.name}` is what it should be"
        if one.config_fault:
            why = (f"`{one.name}` does not start with it again",)
            yield grave(case)(one.config_fault, subject=one.name, wanted=wanted, why=why)
        elif one.config_path:
            yield passed(one.config_path, subject=one.name)
    if not _engines(case):
        yield skipped("no container engine is on this host")


@check("container.toolkit", "NVIDIA Container Toolkit installed", needs=_ENGINES, applies=on_engines)
def toolkit(case: Case) -> Iterator[Outcome]:
    """It puts device nodes and libraries of the driver into a container that asks for a GPU."""
    present, version = toolkit_present(case), known(case.host.containers.toolkit_version)
    names = ", ".join(e.name for e in _serving(case))
    if present:
        yield passed(str(version or "its runtime is on disk"))
    elif operator_manages(case):
        yield skipped("the GPU Operator brings it in a container")
    elif not names:
        yield skipped("no engine here starts work with GPUs" if _engines(case) else "no container engine")
    elif docker_is_snap(case).holds:
        yield skipped("Docker is a snap: see `container.snap`")
    elif present is None:
        yield unknown("whether it is installed was not read")
    else:
        why = ("containers can be started, and none of them gets a GPU",)
        yield grave(case)(f"not installed, and {names} is here", wanted="installed", why=why)


@check("container.runtime_registered", "engine can give GPUs", needs=_ENGINES, applies=on_engines)
def runtime_registered(case: Case) -> Iterator[Outcome]:
    """Docker needs the runtime `nvidia` or CDI; installing the toolkit alone registers neither."""
    docker = engine(case, "docker")
    if docker is None or docker.is_snap or toolkit_present(case) is False:
        yield skipped("no Docker with the toolkit beside it")
        return
    wired, wanted = is_wired(case, docker), "a runtime `nvidia`, or CDI with a specification"
    runtimes = ", ".join(docker.runtimes or ())
    is_waiting = any(name.startswith("nvidia") for name in docker.configured_runtimes or ())
    if wired:
        yield passed(f"runtimes {runtimes}" if runtimes else "by CDI", wanted=wanted)
    elif wired is None:
        yield unknown("Docker's runtimes and CDI were not read", wanted=wanted)
    else:
        why = ("its configuration names it already: Docker has not been restarted since",)
        if not is_waiting:
            why = ("`nvidia-ctk runtime configure --runtime=docker`, then a restart of Docker, registers it",)
        found = f"runtimes {runtimes}" if runtimes else "no runtime but its own"
        yield grave(case)(found, wanted=wanted, why=why)


@check("container.runtime_binary", "registered runtime on disk", needs=_ENGINES, applies=on_engines)
def runtime_binary(case: Case) -> Iterator[Outcome]:
    """A runtime that is the default, and gone, keeps every container from starting."""
    registered = [
        (e, p) for e in _serving(case) for n, p in e.runtime_paths.items() if n.startswith("nvidia")
    ]
    hook = known(case.host.containers.runtime_hook_present)
    for one, path in registered:
        wanted = f"`{path}` on disk"
        if path.startswith("/usr/local/nvidia/") or on_jetson(case):
            yield skipped("its toolkit lies in a place of its own", subject=one.name)
        elif hook is None:
            yield unknown("whether it is there was not read", subject=one.name, wanted=wanted)
        elif hook:
            yield passed(path, subject=one.name)
        else:
            is_default = (one.default_runtime or "").startswith("nvidia")
            why = ("it is the default: no container starts at all",) if is_default else ()
            yield grave(case)("it is not there", subject=one.name, wanted=wanted, why=why)
    if not registered:
        yield skipped("no engine names the binary of an NVIDIA runtime")


@check("container.default_runtime", "Kubernetes gives pods the driver", needs=_ENGINES, applies=on_engines)
def default_runtime(case: Case) -> Iterator[Outcome]:
    """Pods get the driver by runtime class, by default runtime or by CDI."""
    node, one = kubernetes(case), node_engine(case)
    if node is None or one is None:
        yield skipped("no Kubernetes node")
        return
    plain, wanted = pods_get_runc(case), "runtime `nvidia` by class or default, or CDI"
    if operator_manages(case):
        yield passed("the GPU Operator looks after it", wanted=wanted)
    elif toolkit_present(case) is False:
        yield skipped("the toolkit is not installed: see `container.toolkit`")
    elif plain.holds:
        yield grave(case)(plain.because, subject=one.name, wanted=wanted)
    elif plain.holds is None:
        yield unknown("its configuration or the device plugin's socket was not read", subject=one.name)
    else:
        yield passed(f"default runtime `{one.default_runtime or 'runc'}`", subject=one.name, wanted=wanted)


@check("container.no_cgroups", "device rules left to the toolkit", applies=(on_gpu_host, outside_containers))
def no_cgroups(case: Case) -> Iterator[Outcome]:
    """`no-cgroups = true` is for rootless engines: under a rootful one the device stays closed."""
    seen, rootful = no_cgroups_seen(case), no_cgroups_rootful(case)
    wanted = "`no-cgroups = false` for engines that run as root"
    config = case.host.containers.toolkit_config
    if seen.holds is None or is_not_there(config):
        yield _no_config(config)
    elif not seen.holds:
        yield passed("false, or left at its default")
    elif rootful.holds is None:
        yield unknown("it is true; whether an engine runs as root was not read", wanted=wanted)
    elif rootful.holds:
        why = ("a container then gets `Failed to initialize NVML: Unknown Error` from its first second",)
        yield grave(case)(f"{seen.because}; {rootful.because}", wanted=wanted, why=why)
    else:
        yield passed("true, for a rootless engine")


def _no_config(config: object) -> Outcome:
    return fact_untold(config, "the toolkit's configuration", absent="the toolkit has no configuration here")


@check("container.rootless", "rootless Docker can open devices", needs=_ENGINES, applies=on_engines)
def rootless(case: Case) -> Iterator[Outcome]:
    """A rootless engine may not write device rules: it needs `no-cgroups`, or CDI."""
    docker, closed = engine(case, "docker"), rootless_closed(case)
    wanted = "`no-cgroups = true`, or CDI"
    if docker is None or not docker.is_rootless:
        yield skipped("no rootless Docker")
    elif closed.holds is None:
        yield unknown("the toolkit's configuration does not say", wanted=wanted)
    elif closed.holds:
        yield grave(case)(closed.because, wanted=wanted)
    else:
        yield passed("by CDI" if docker.cdi_enabled and cdi_specs(case) else "`no-cgroups = true`")


@check("container.snap", "Docker from packages", needs=_ENGINES, applies=on_engines)
def snap(case: Case) -> Iterator[Outcome]:
    """A confined Docker does not see the toolkit of the host, nor `/etc/docker/daemon.json`."""
    docker, claim = engine(case, "docker"), docker_is_snap(case)
    if docker is None:
        yield skipped("no Docker")
    elif claim.holds is None:
        yield unknown("where Docker's binary lies was not read")
    elif claim.holds:
        why = ("it does not see the host's toolkit, however often that is installed",)
        yield grave(case)(claim.because, wanted="Docker from distribution or vendor packages", why=why)
    elif docker.is_snap:
        yield passed("a snap with NVIDIA's runtime inside")
    else:
        yield passed(docker.path)


@check("container.toolkit_mode", "toolkit mode fits the host", applies=(on_gpu_host, outside_containers))
def toolkit_mode(case: Case) -> Iterator[Outcome]:
    """`csv` is for Jetson, `cdi` needs a specification; driver and ldconfig must lie where it says."""
    config, unfit, mode = (
        known(case.host.containers.toolkit_config),
        toolkit_mode_unfit(case),
        toolkit_mode_known(case),
    )
    if config is None:
        yield _no_config(case.host.containers.toolkit_config)
    elif unfit.holds:
        yield grave(case)(unfit.because, subject=config.path, wanted="a mode and a driver root of this host")
    elif config.mode is None:
        yield skipped("no mode is set")
    elif mode.holds is None:
        yield unknown(f"`{config.mode}`; whether it fits was not read", subject=config.path)
    elif config.mode in ("auto", "legacy", "cdi", "csv", "jit-cdi"):
        note = (f"whether the toolkit takes ldconfig `{config.ldconfig}` is not known",)
        why = note if unfit.holds is None else ()
        yield passed(f"`{config.mode}`", subject=config.path, why=why)
    else:
        yield unknown(f"`{config.mode}` is newer than this edition, or a slip", subject=config.path)


@check("container.toolkit_parts", "toolkit packages of one version", needs=("packages",), applies=on_engines)
def toolkit_parts(case: Case) -> Iterator[Outcome]:
    """Toolkit and libnvidia-container are made together; apt can leave them apart when one is held."""
    found, claim = toolkit_packages(case), toolkit_parts_differ(case)
    if len(found) < 2:
        yield skipped("the toolkit is not installed from packages")
    elif claim.holds:
        yield warned(claim.because, wanted="one version of all of them")
    else:
        yield passed(f"{next(iter(found.values()))}, {len(found)} packages")


@check(
    "container.toolkit_advisory", "toolkit without known faults", applies=(on_gpu_host, outside_containers)
)
def toolkit_advisory(case: Case) -> Iterator[Outcome]:
    """Security bulletins that name this release: a warning for the policy *harden*, else a note."""
    version, hits = known(case.host.containers.toolkit_version), toolkit_bulletins(case)
    if version is None:
        yield _no_version(case)
        return
    if not hits:
        yield passed(str(version))
        return
    floor = max((f for a in hits for f in a.fixed_in), default=None)
    why = tuple(f"bulletin {a.bulletin} names it: {', '.join(a.cves)}" for a in reversed(hits[-3:]))
    say = warned if case.goal.policy == "harden" else passed
    yield say(f"{version}; {len(hits)} bulletin(s) mended in {floor}", wanted=f"{floor} or newer", why=why)


def _no_version(case: Case) -> Outcome:
    fact = case.host.containers.toolkit_version
    if is_not_there(fact) and toolkit_present(case):
        return unknown("the toolkit is there, and nothing tells its release")
    return fact_untold(fact, "the toolkit's release", absent="the toolkit is not installed")


@check(
    "container.driver_double_managed",
    "one owner of the driver",
    applies=(on_gpu_host, outside_containers, not_jetson),
)
def driver_double_managed(case: Case) -> Iterator[Outcome]:
    """A driver container and packages of the host replace each other's modules."""
    claim = double_managed(case)
    if claim.holds:
        why = ("whichever loads its module later wins, and the other's libraries no longer fit",)
        yield warned(claim.because, wanted="packages, or a driver container", why=why)
    elif claim.holds is None:
        root, packages = case.host.driver.container_root, case.host.packages
        words = "neither was looked for"
        yield fact_untold(packages if known(root) else root, "driver container or packages", absent=words)
    else:
        yield passed()


@check("container.wsl_driver", "no Linux driver in WSL2", applies=(on_gpu_host, outside_containers))
def wsl_driver(case: Case) -> Iterator[Outcome]:
    """Windows brings libcuda and NVML; a Linux driver beside them collides when a container is started."""
    if case.virtualisation != "wsl2":
        yield skipped("this is not WSL2")
        return
    claim = linux_driver_in_wsl(case)
    if claim.holds:
        yield grave(case)(claim.because, wanted="only what lies in `/usr/lib/wsl/lib`")
    elif claim.holds is None:
        yield unknown("packages and libraries were not read")
    else:
        yield passed()


CHECKS = (
    engine_config,
    toolkit,
    runtime_registered,
    runtime_binary,
    default_runtime,
    no_cgroups,
    rootless,
    snap,
    toolkit_mode,
    toolkit_parts,
    toolkit_advisory,
    driver_double_managed,
    wsl_driver,
)
