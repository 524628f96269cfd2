"""Facts about what runs containers with GPUs: engines, NVIDIA Container Toolkit, CDI, SELinux, Kubernetes."""

from __future__ import annotations

from typing import Literal

from doctor.core.fact import NOT_COLLECTED, Fact, Value
from doctor.core.versions import Dotted

__all__ = [
    "CdiSpec",
    "ContainerEngine",
    "Containers",
    "EngineName",
    "Kubernetes",
    "SelinuxMode",
    "ToolkitConfig",
]

EngineName = Literal["docker", "containerd", "podman", "crio", "k3s", "rke2"]
SelinuxMode = Literal["enforcing", "permissive", "disabled"]


class ContainerEngine(Value, frozen=True, kw_only=True):
    """An engine on this host, from its binary, its configuration and, where it answered, its own word."""

    name: EngineName
    version: Dotted | None = None
    path: str = ""
    """Its binary: `/snap/bin/docker` says that it is a snap."""
    is_snap: bool | None = None
    is_rootless: bool | None = None
    """As the engine says of itself; True where only users have a Docker socket; None when nothing told."""
    config_path: str = ""
    """The configuration read: `/etc/docker/daemon.json`, the generated `config.toml` of k3s."""
    config_fault: str = ""
    """Why that file cannot be read as what it should be; empty when it can."""
    runtimes: tuple[str, ...] | None = None
    """Names of runtimes it knows; None when neither file nor engine told."""
    configured_runtimes: tuple[str, ...] | None = None
    """Names in its configuration alone: one that `runtimes` lacks waits for the engine's restart."""
    runtime_paths: dict[str, str] = {}
    """Runtime -> the binary that its configuration names."""
    default_runtime: str | None = None
    cgroup_driver: str | None = None
    """`systemd` or `cgroupfs`."""
    cdi_enabled: bool | None = None
    cdi_dirs: tuple[str, ...] | None = None
    disabled_plugins: tuple[str, ...] = ()
    """Of containerd: `cri` here shuts Kubernetes out, as the packages of Docker ship it."""


class ToolkitConfig(Value, frozen=True, kw_only=True):
    """`/etc/nvidia-container-runtime/config.toml`, the parts that decide."""

    path: str
    mode: str | None = None
    """`auto`, `legacy`, `cdi`, `csv`."""
    no_cgroups: bool | None = None
    ldconfig: str | None = None
    """The program that writes a container's library cache: `@/sbin/ldconfig`; without `@` the image's own."""
    ldconfig_there: tuple[str, ...] | None = None
    """Of the program with `@` and its other name (with or without `.real`) those that are on this host;
    None: nobody looked."""
    allows_ldconfig_of_image: bool | None = None
    """The feature `allow-ldconfig-from-container`."""
    root: str | None = None
    """Where the driver lies: `/run/nvidia/driver` under the GPU Operator."""
    swarm_resource: str | None = None
    debug: str | None = None
    fault: str = ""


class CdiSpec(Value, frozen=True, kw_only=True):
    """One CDI specification."""

    path: str
    kind: str = ""
    """`nvidia.com/gpu`."""
    cdi_version: str = ""
    devices: tuple[str, ...] = ()
    driver_versions: tuple[str, ...] = ()
    """Versions in the names of driver libraries that it mounts: `580.126.09`."""
    host_paths: tuple[str, ...] = ()
    """Host files and nodes it names (bounded)."""
    missing_paths: tuple[str, ...] | None = None
    """Those of them that are not there; None when nobody looked."""
    fault: str = ""
    is_read: bool = True
    """False when the file could not be read: `fault` says why, and it may be in order."""
    folder_mode: str = ""
    """Octal permission bits of its directory: a closed one hides it from rootless engines."""


class Kubernetes(Value, frozen=True, kw_only=True):
    """What of a Kubernetes node shows on the host."""

    distribution: str = ""
    """`kubelet`, `k3s`, `rke2`, `microk8s`."""
    has_nvidia_operator: bool | None = None
    """True when the GPU Operator left its marks (`/run/nvidia/driver`, `/run/nvidia/validations`)."""
    has_device_plugin_socket: bool | None = None


class Containers(Value, frozen=True, kw_only=True):
    """Everything on the host that decides whether a container gets its GPUs."""

    engines: Fact[tuple[ContainerEngine, ...]] = NOT_COLLECTED
    """An empty tuple: all were looked for and none is there."""
    toolkit_version: Fact[Dotted] = NOT_COLLECTED
    """Of the NVIDIA Container Toolkit: package, else `nvidia-ctk --version`."""
    toolkit_config: Fact[ToolkitConfig] = NOT_COLLECTED
    cdi_specs: Fact[tuple[CdiSpec, ...]] = NOT_COLLECTED
    cgroup_version: Fact[int] = NOT_COLLECTED
    """1 or 2, from what is mounted at `/sys/fs/cgroup`."""
    char_links: Fact[bool] = NOT_COLLECTED
    """Whether `/dev/char` has links to the NVIDIA nodes (systemd drops devices without them); not installed:
    there are no nodes that could have links."""
    selinux: Fact[SelinuxMode] = NOT_COLLECTED
    """Of the running kernel; `disabled` too where the kernel has none."""
    selinux_denials: Fact[tuple[str, ...]] = NOT_COLLECTED
    """AVC lines that name an NVIDIA node or library."""
    selinux_use_devices: Fact[bool] = NOT_COLLECTED
    """The boolean `container_use_devices`."""
    kubernetes: Fact[Kubernetes] = NOT_COLLECTED
    runtime_hook_present: Fact[bool] = NOT_COLLECTED
    """Whether `nvidia-container-runtime` (or its hook) is on disk."""
