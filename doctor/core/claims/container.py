"""Claims about whether containers get their GPUs: engines, NVIDIA Container Toolkit, SELinux.

A cause that shows on the host as a setting, and in a container as an error, has two claims: what is seen at
either side, and what only the host can settle. In a container the second is untold, unless the host's
evidence lies beside the container's.
"""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.cdi import cdi_specs, engine, kubernetes, operator_manages, toolkit_present
from doctor.core.claims.claimed import UNTOLD, Claim, Claimed, either, no, yes
from doctor.core.claims.modules import module_loaded
from doctor.core.claims.running import not_injected, on_wsl
from doctor.core.host import Known, is_not_there, known
from doctor.core.host_container import ContainerEngine
from doctor.core.versions import Dotted
from doctor.core.views import DRIVER_PACKAGE, is_stub, report

__all__ = [
    "containers_lack_gpu",
    "docker_is_snap",
    "double_managed",
    "engine_config_faulty",
    "is_since",
    "is_wired",
    "linux_driver_in_wsl",
    "no_cgroups_rootful",
    "no_cgroups_seen",
    "node_engine",
    "pods_get_runc",
    "reload_loss_open",
    "reload_loss_seen",
    "rootless_closed",
    "selinux_enforces",
    "selinux_refusal_seen",
    "shm_small",
    "shm_total_bytes",
]

#: Engines that Kubernetes itself starts pods with.
_OF_KUBERNETES = ("k3s", "rke2", "crio", "containerd")
#: Docker gives a container 64 MiB; NCCL takes some MiB for each pair of GPUs, and torch's loaders more.
_SHM_BYTES = 1024**3


def node_engine(case: Case) -> ContainerEngine | None:
    """The engine that Kubernetes starts pods with on this node."""
    if kubernetes(case) is None:
        return None
    return next((e for name in _OF_KUBERNETES if (e := engine(case, name))), None)


def is_wired(case: Case, one: ContainerEngine) -> bool | None:
    """Whether an engine can give a container a GPU: by a runtime `nvidia`, or by CDI with a specification."""
    if any(name.startswith("nvidia") for name in one.runtimes or ()):
        return True
    specs = cdi_specs(case)
    reads_cdi = False if specs == () else one.cdi_enabled
    if reads_cdi:
        return True if specs else None
    return False if reads_cdi is False and one.runtimes is not None else None


def containers_lack_gpu(case: Case) -> Claimed:
    """A container was given no GPU; or on a host: no engine here can give a container one."""
    if case.virtualisation == "container":
        module, missing = module_loaded(case), not_injected(case)
        if module.holds is False or missing.holds is False:
            return no()
        return missing if module.holds and missing.holds else UNTOLD
    if not isinstance(case.host.containers.engines, Known):
        return UNTOLD
    docker, node = engine(case, "docker"), node_engine(case)
    if operator_manages(case) or (docker is None and node is None) or (docker and docker.is_snap):
        return no()
    present = toolkit_present(case)
    name = "Docker" if docker else "Kubernetes"
    if present is False:
        return yes(f"{name} is here, and the NVIDIA Container Toolkit is not installed")
    if docker is None:
        return no() if present else UNTOLD
    wired = is_wired(case, docker)
    if present is None or wired is None:
        return UNTOLD
    return either(not wired, "Docker has no runtime `nvidia`, and no CDI to give a GPU with")


def docker_is_snap(case: Case) -> Claimed:
    """Docker is a snap, and has no runtime of NVIDIA's inside it."""
    if not isinstance(case.host.containers.engines, Known):
        return UNTOLD
    docker = engine(case, "docker")
    if docker is None or any(name.startswith("nvidia") for name in docker.runtimes or ()):
        return no()
    if docker.is_snap is None:
        return UNTOLD
    return either(docker.is_snap, f"Docker is the snap at `{docker.path or '/snap/bin/docker'}`")


def _nvml_says(case: Case, words: str) -> Claimed:
    answered = report(case)
    if answered is None:
        return UNTOLD
    return either(words in answered.error.lower(), f"NVML: {answered.error}")


def _host_side(case: Case) -> Case | None:
    """The case of the host that a container runs on, where its evidence lies beside the container's."""
    if case.virtualisation != "container":
        return case
    if "host_side" not in case.memo:
        host = next((h for h in case.others if h.scope == "host"), None)
        side = Case(host=host, matrix=case.matrix, goal=case.goal) if host else None
        # Evidence that was taken inside a container, as scope `host`, is no host's.
        case.memo["host_side"] = side if side and side.virtualisation != "container" else None
    told: Case | None = case.memo["host_side"]
    return told


def _of_host(case: Case, claim: Claim) -> Claimed:
    """What a claim about the host comes to, asked from inside a container."""
    side = _host_side(case)
    return claim(side) if side else UNTOLD


def no_cgroups_seen(case: Case) -> Claimed:
    """`no-cgroups` is set; or, in a container, NVML gives the error that follows from it among others."""
    if case.virtualisation == "container":
        said, told = _nvml_says(case, "unknown error"), _of_host(case, no_cgroups_seen)
        return told if said.holds and told.holds is not None else said
    config = case.host.containers.toolkit_config
    value = known(config).no_cgroups if isinstance(config, Known) else None  # type: ignore[union-attr]
    if value is None and not is_not_there(config) and not isinstance(config, Known):
        return UNTOLD
    return either(bool(value), "`no-cgroups = true` in the toolkit's configuration")


def no_cgroups_rootful(case: Case) -> Claimed:
    """An engine that uses the toolkit runs as root: a container asks its host."""
    if case.virtualisation == "container":
        return _of_host(case, no_cgroups_rootful)
    if not isinstance(case.host.containers.engines, Known):
        return UNTOLD
    docker = engine(case, "docker")
    if docker is None:
        return no()
    if docker.is_rootless is None:
        return UNTOLD
    return either(not docker.is_rootless, "Docker runs as root")


def reload_loss_seen(case: Case) -> Claimed:
    """The legacy hook hands GPUs over behind systemd's back; or, in a container, NVML's error after that."""
    if case.virtualisation == "container":
        said, told = _nvml_says(case, "unknown error"), _of_host(case, reload_loss_seen)
        return told if said.holds and told.holds is not None else said
    if not isinstance(case.host.containers.engines, Known):
        return UNTOLD
    if no_cgroups_seen(case).holds and no_cgroups_rootful(case).holds:
        return no()  # the devices are closed from the first second: there is nothing to lose
    # The containerd that only serves Docker hands over nothing.
    serving = [e for e in (engine(case, "docker"), node_engine(case)) if e]
    drivers = {e.name: e.cgroup_driver for e in serving}
    by_systemd = [name for name, driver in drivers.items() if driver == "systemd"]
    config = known(case.host.containers.toolkit_config)
    mode = config.mode if config else None
    if not by_systemd or mode == "cdi" or any(_gives_by_cdi(case, e) for e in by_systemd):
        return no() if by_systemd or None not in drivers.values() else UNTOLD
    if mode is None:
        return UNTOLD
    version = known(case.host.containers.toolkit_version)
    if mode != "legacy" and (version is None or _makes_cdi_itself(case, version)):
        return no() if version else UNTOLD
    return yes(f"`{by_systemd[0]}` leaves cgroups to systemd, and GPUs are given by the legacy hook")


def _gives_by_cdi(case: Case, name: str) -> bool:
    one = engine(case, name)
    return bool(one and one.cdi_enabled and cdi_specs(case))


def _makes_cdi_itself(case: Case, version: Dotted) -> bool:
    """From the release on whose row says so (jit-cdi), mode `auto` takes CDI."""
    return bool(is_since(case, version, "jit-cdi"))


def is_since(case: Case, version: Dotted | None, word: str) -> bool | None:
    """Whether a toolkit is of the release whose row names a change, or newer; None: not known."""
    tools = case.matrix.edition.tools
    rows = [t.version for t in tools if t.component == "container-toolkit" and word in t.changes]
    return version >= min(rows) if rows and version is not None else None


def reload_loss_open(case: Case) -> Claimed:
    """Nothing tells systemd of the devices: a container asks its host."""
    if case.virtualisation == "container":
        return _of_host(case, reload_loss_open)
    links = known(case.host.containers.char_links)
    if links is None:
        return UNTOLD
    return either(not links, "`/dev/char` has no links to the NVIDIA nodes")


def selinux_refusal_seen(case: Case) -> Claimed:
    """SELinux has refused an NVIDIA device; or, in a container, NVML may not open one."""
    if case.virtualisation == "container":
        return _nvml_says(case, "insufficient permissions")
    denials = known(case.host.containers.selinux_denials)
    if denials is None:
        return no() if is_not_there(case.host.containers.selinux_denials) else UNTOLD
    return either(bool(denials), f"SELinux: {denials[0]}" if denials else "")


def selinux_enforces(case: Case) -> Claimed:
    """SELinux enforces, and containers may not use devices by its own boolean: a container asks its host."""
    if case.virtualisation == "container":
        return _of_host(case, selinux_enforces)
    mode, allowed = known(case.host.containers.selinux), known(case.host.containers.selinux_use_devices)
    if mode is None:
        return no() if is_not_there(case.host.containers.selinux) else UNTOLD
    return either(mode == "enforcing" and not allowed, "SELinux is enforcing, `container_use_devices` is off")


def pods_get_runc(case: Case) -> Claimed:
    """Kubernetes starts pods with a runtime that injects no driver, and no device plugin has registered."""
    node, one = kubernetes(case), node_engine(case)
    if node is None or operator_manages(case):
        return UNTOLD if node is None and not isinstance(case.host.containers.kubernetes, Known) else no()
    if one is None or toolkit_present(case) is False:
        return no()
    if is_wired(case, one) is False:
        return yes(f"`{one.name}` has no runtime `nvidia`, and gives nothing by CDI")
    # Without a specification nothing is given by CDI; a configuration that names no default means runc.
    reads_cdi = False if cdi_specs(case) == () else one.cdi_enabled
    default = one.default_runtime or ("runc" if one.runtimes else None)
    if default is None or reads_cdi is None or node.has_device_plugin_socket is None:
        return UNTOLD
    is_plain = not default.startswith("nvidia") and not reads_cdi
    words = f"the default runtime of `{one.name}` is `{default}`, and no device plugin has registered"
    return either(is_plain and not node.has_device_plugin_socket, words)


def linux_driver_in_wsl(case: Case) -> Claimed:
    """A Linux driver lies in a WSL2 system beside what Windows brings."""
    place = on_wsl(case)
    if not place.holds:
        return place
    packages = known(case.host.packages)
    found = [p.name for p in packages.installed if DRIVER_PACKAGE.match(p.name)] if packages else []
    if found:
        return yes(f"driver packages of Linux are installed in WSL2: {', '.join(found[:3])}")
    libraries = known(case.host.driver.libraries) or ()
    strays = [
        x.path for x in libraries if not (x.is_compat or is_stub(x) or x.path.startswith("/usr/lib/wsl/"))
    ]
    if strays:
        return yes(f"`{strays[0]}` is a driver library of Linux, in WSL2")
    return no() if packages and isinstance(case.host.driver.libraries, Known) else UNTOLD


def shm_total_bytes(case: Case) -> int | None:
    """The size of `/dev/shm`, where it was measured."""
    resources = known(case.host.system.resources)
    places = resources.filesystems if resources else ()
    return next((f.total_bytes for f in places if f.path == "/dev/shm"), None)  # noqa: S108 - a name, not a file


def shm_small(case: Case) -> Claimed:
    """A container with several GPUs has little shared memory for them to talk through."""
    if case.virtualisation != "container":
        return no() if case.virtualisation else UNTOLD
    total, answered = shm_total_bytes(case), report(case)
    if total is None or answered is None:
        return UNTOLD
    words = f"`/dev/shm` has {total // 1024**2} MiB, for {len(answered.gpus)} GPUs"
    return either(total < _SHM_BYTES and len(answered.gpus) > 1, words)


def double_managed(case: Case) -> Claimed:
    """A driver container and packages of the host both bring the driver."""
    root, packages = known(case.host.driver.container_root), known(case.host.packages)
    if root is None:
        return no() if is_not_there(case.host.driver.container_root) else UNTOLD
    if packages is None:
        return no() if is_not_there(case.host.packages) else UNTOLD
    found = [p.name for p in packages.installed if DRIVER_PACKAGE.match(p.name)]
    return either(bool(found), f"`{root}` holds a driver, and so does the host: {', '.join(found[:2])}")


def engine_config_faulty(case: Case) -> Claimed:
    """The configuration of an engine cannot be read as what it should be."""
    engines = known(case.host.containers.engines)
    if engines is None:
        return UNTOLD
    faulty = next((e for e in engines if e.config_fault), None)
    return yes(f"`{faulty.config_path}`: {faulty.config_fault}") if faulty else no()


def rootless_closed(case: Case) -> Claimed:
    """A rootless Docker would have to write device rules, which it may not."""
    if not isinstance(case.host.containers.engines, Known):
        return UNTOLD
    docker, config = engine(case, "docker"), known(case.host.containers.toolkit_config)
    if docker is None or docker.is_rootless is False or (docker.cdi_enabled and cdi_specs(case)):
        return no()
    if docker.is_rootless is None or config is None or config.no_cgroups is None:
        return UNTOLD
    return either(not config.no_cgroups, "Docker is rootless, and `no-cgroups = false`")
