"""What serves: container toolkit and runtimes, engine environments; and the lock at the end."""

from __future__ import annotations

from doctor.core.host import known
from doctor.core.host_container import ContainerEngine
from doctor.core.lower.ground import Ground
from doctor.core.lower.packages import names_of, transaction, unlocked, wanted_of
from doctor.core.lower.pins import lock_of
from doctor.core.rows.install import PackageSet
from doctor.core.stages import (
    ContainerRuntime,
    EngineEnvironment,
    FileEntry,
    Services,
    Stage,
    Verify,
)
from doctor.errors import UsageError

__all__ = ["container", "engine", "lock"]


# --- containers -----------------------------------------------------------------------------------

_RUNTIMES = {
    "docker": ContainerRuntime(
        engine="docker", mode="runtime", config="/etc/docker/daemon.json", unit="docker"
    ),
    "containerd": ContainerRuntime(
        engine="containerd",
        mode="runtime",
        config="/etc/containerd/config.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        unit="containerd",
    ),
    # CRI-O reads `crio.conf.d`; 1.18 and 1.19 of the toolkit write `conf.d` where nobody says otherwise.
    "crio": ContainerRuntime(
        engine="crio",
        mode="runtime",
        config="/etc/crio/crio.conf",
        drop_in="/etc/crio/crio.conf.d/99-nvidia.toml",
        unit="crio",
    ),
}
#: Memory: a unit of the toolkit writes it at every boot. Where there is no such unit the other one lasts.
_CDI_AT_BOOT, _CDI_LASTING = "/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml"
#: As goals name them.
_COMPONENTS = {"docker": "docker", "containerd": "containerd", "podman": "podman", "cri-o": "crio"}

#: Left from older guides; they hide what the toolkit writes now.
_HOOK = FileEntry(path="/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", state="absent")


def container(ground: Ground) -> Stage:
    """The toolkit's packages at one version, and each engine that is there wired to it."""
    version = ground.version("container-toolkit")
    if not version:
        return _refreshed(ground)
    row = ground.catalogue.set_of("container-toolkit", version)
    wanted = wanted_of(ground, row, version)
    packages = transaction(
        ground,
        "container-toolkit",
        wanted,
        beside=names_of(ground, row, version),
        why=f"container toolkit {version}, as one set",
    )
    runtimes = tuple(_RUNTIMES.get(name) or _podman(row) for name in _engines(ground))
    stale = (FileEntry(path=_CDI_LASTING, state="absent"), _HOOK) if row.units else (_HOOK,)
    return Stage(
        id="container",
        why=(f"container toolkit {version}", *(f"{one.engine}: {one.mode}" for one in runtimes)),
        unlock=unlocked(ground, packages),
        packages=packages,
        files=stale if any(one.mode == "cdi" for one in runtimes) else (),
        services=Services(restart=tuple(one.unit for one in runtimes if one.unit), enable=row.units),
        containers=runtimes,
        verify=(
            *(Verify(kind="package_version", subject=p.name, want=p.version) for p in wanted),
            *_wired(runtimes),
        ),
    )


def _podman(row: PackageSet) -> ContainerRuntime:
    return ContainerRuntime(engine="podman", mode="cdi", config=_CDI_AT_BOOT if row.units else _CDI_LASTING)


def _refreshed(ground: Ground) -> Stage:
    """The toolkit stays. A new driver leaves a CDI file behind that names the old one's libraries."""
    toolkit = ground.target.version("container-toolkit")
    row = ground.catalogue.find("container-toolkit", toolkit) if toolkit and ground.driver else None
    if row is None or "podman" not in _engines(ground):
        return Stage(id="container")
    podman = _podman(row)
    return Stage(
        id="container",
        why=("podman's CDI file names the new driver",),
        containers=(podman,),
        verify=_wired((podman,)),
    )


def _engines(ground: Ground) -> tuple[str, ...]:
    """Engines on the host; where it was only named, those that were named with it."""
    found = known(ground.host.containers.engines)
    if found is None:
        terms = {*ground.wanted, *(term.component for term in ground.target.have)}
        return tuple(engine for component, engine in _COMPONENTS.items() if component in terms)
    names = frozenset[str](engine.name for engine in found)
    return tuple(
        engine.name
        for engine in sorted(found, key=lambda one: one.name)
        if engine.name in _COMPONENTS.values() and not _only_docker_uses(engine, names) and not engine.is_snap
    )


def _only_docker_uses(engine: ContainerEngine, names: frozenset[str]) -> bool:
    """Docker's containerd has its `cri` plugin off: wiring it would change nothing."""
    if engine.name != "containerd" or "docker" not in names:
        return False
    return not engine.config_path or "cri" in engine.disabled_plugins


def _wired(runtimes: tuple[ContainerRuntime, ...]) -> tuple[Verify, ...]:
    docker = (one for one in runtimes if one.engine == "docker")
    podman = (one for one in runtimes if one.engine == "podman")
    return (
        *(
            Verify(kind="json_key", subject=f"{one.config}:runtimes.nvidia", why="docker knows the runtime")
            for one in docker
        ),
        *(Verify(kind="file_exists", subject=one.config, why="podman reads its devices") for one in podman),
    )


# --- engines --------------------------------------------------------------------------------------

_ENGINES = {"vllm": ("vllm", 300), "tensorrt-llm": ("tensorrt_llm", 600), "sglang": ("sglang", 300)}
_STATE = "/var/lib/mopt-doctor/engines"


def engine(ground: Ground) -> Stage:
    """An environment of its own for each engine that the goal names."""
    names = [name for name in _ENGINES if ground.stack.components.get(name)]
    if not names or ground.stack.delivery != "venv":
        why = ("the engine runs in a container: no environment on the host",) if names else ()
        return Stage(id="engine", why=why)
    _refuse_strange_locks(ground, names)
    environments = tuple(_environment(ground, name) for name in names)
    row = ground.catalogue.find("mpi") if "tensorrt-llm" in names else None
    packages = (
        transaction(ground, "mpi", wanted_of(ground, row, ""), why="tensorrt_llm loads libmpi") if row else ()
    )
    return Stage(
        id="engine",
        why=tuple(f"{one.engine} {one.version} under Python {one.python}" for one in environments),
        unlock=unlocked(ground, packages),
        packages=packages,
        environments=environments,
        verify=tuple(
            Verify(kind="python_import", subject=one.path, want=one.import_name) for one in environments
        ),
    )


def _refuse_strange_locks(ground: Ground, names: list[str]) -> None:
    """A lock that no engine of the plan stands in would be passed over in silence."""
    for where, pins in ground.choices.engine_locks.items():
        if not any(pin.name in names for pin in pins):
            raise UsageError(
                f"`{where}` has none of the plan's engines: {', '.join(names)}",
                hints=("a lock is that of one engine, with it among the pins",),
            )


def _environment(ground: Ground, name: str) -> EngineEnvironment:
    version = ground.stack.components[name]
    import_name, timeout_s = _ENGINES[name]
    label = f"{name}-{version}"
    return EngineEnvironment(
        name=label,
        engine=name,
        version=version,
        python=ground.stack.components.get("python", ""),
        path=f"{ground.choices.engine_root}/{label}",
        requirements=lock_of(ground.choices.engine_locks, name, version) or f"{name}=={version}\n",
        index_url=ground.choices.index_url,
        extra_index_url=ground.choices.extra_index_url,
        wheelhouse=ground.choices.wheelhouse,
        import_name=import_name,
        import_timeout_s=timeout_s,
        descriptor=f"{_STATE}/{label}.json",
    )


# --- lock -----------------------------------------------------------------------------------------

_BLACKLIST = (
    *("nvidia-", "libnvidia-", "linux-modules-nvidia-", "cuda-", "libcudnn", "libnccl", "libnvinfer"),
    *("libnvonnxparsers", "tensorrt", "nvlsm", "datacenter-gpu-manager"),
)

#: Canonical builds modules one package a kernel: a kernel without its own boots without a driver.
_KERNELS = ("linux-generic", "linux-image-", "linux-headers-", "linux-modules-")


def lock(ground: Ground, stages: tuple[Stage, ...], pinned: frozenset[str]) -> Stage:
    """Nothing pulls user space from under the module: automatic updates pass it by, and the rest is held.

    What a preference of apt pins is not held: a hold fights the switch to another branch.
    """
    checks = (check for stage in stages for check in stage.verify)
    names = {check.subject for check in checks if check.kind == "package_version"}
    held = tuple(sorted(names - pinned))
    return Stage(
        id="lock",
        why=(
            "automatic updates pass the stack by",
            *(("what no branch lock keeps is held",) if held else ()),
        ),
        files=(_exclusions(ground),) if ground.catalogue.kind == "deb" else (),
        hold=held,
    )


def _exclusions(ground: Ground) -> FileEntry:
    words = (*_BLACKLIST, *(_KERNELS if ground.choices.origin == "canonical" else ()))
    lines = "".join(f'  "{word}";\n' for word in words)
    return FileEntry(
        path="/etc/apt/apt.conf.d/52mopt-stack",
        content="// Written by mopt-doctor: user space must not move under a loaded module.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n",
    )
