"""Facts about the machine around the GPUs: processors, NUMA, IOMMU, clock, memory pressure, repositories."""

from __future__ import annotations

from typing import Literal

from doctor.core.fact import NOT_COLLECTED, Fact, Value

__all__ = [
    "AcsBridge",
    "Chassis",
    "LockHolder",
    "Machine",
    "ModuleStream",
    "NumaNode",
    "OomKill",
    "Repository",
]

Chassis = Literal["laptop", "desktop", "server", "other"]


class NumaNode(Value, frozen=True, kw_only=True):
    """One memory node."""

    index: int
    cpus: str
    """As the kernel lists them: `0-31,64-95`."""
    memory_bytes: int | None = None


class AcsBridge(Value, frozen=True, kw_only=True):
    """A PCIe bridge above a GPU whose Access Control Services redirect peer traffic upstream."""

    address: str
    redirects: bool
    """P2P Request Redirect or Completion Redirect is on in its ACS control register."""


class OomKill(Value, frozen=True, kw_only=True):
    """A process that the kernel killed for want of memory."""

    process: str
    constraint: str = ""
    """`CONSTRAINT_MEMCG` when a cgroup's limit was hit, `CONSTRAINT_NONE` when the machine's memory was."""
    memory_cgroup: str = ""


class Repository(Value, frozen=True, kw_only=True):
    """An entry of the package manager's sources that matters for the GPU stack."""

    file: str
    """Where it stands: `/etc/apt/sources.list.d/cuda.list`."""
    name: str = ""
    """Section of a `.repo` file."""
    uri: str = ""
    suite: str = ""
    components: tuple[str, ...] = ()
    """Of apt: `main`, `contrib`, `non-free`, `restricted`; empty for a flat repository (suite `/`)."""
    signed_by: str = ""
    """Keyring path or inline key; empty when the entry names none."""
    is_enabled: bool = True
    checks_signature: bool | None = None
    """False for `trusted=yes`, `gpgcheck=0`; None where the file does not say."""
    key_present: bool | None = None
    """Whether the keyring it names is on disk; None when it names none by a path, or nobody looked."""


class ModuleStream(Value, frozen=True, kw_only=True):
    """A dnf module stream, from `/etc/dnf/modules.d/*.module`."""

    module: str
    stream: str
    state: str
    """`enabled`, `disabled` or empty."""


class LockHolder(Value, frozen=True, kw_only=True):
    """Who holds the package manager's lock at this moment."""

    lock: str
    process: str
    pid: int | None = None


class Machine(Value, frozen=True, kw_only=True):
    """The machine around the GPUs."""

    chassis: Fact[Chassis] = NOT_COLLECTED
    other_displays: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Displays of other vendors on the bus: `0000:00:02.0 8086:a7a0`; more than none on a hybrid laptop."""
    governors: Fact[dict[str, int]] = NOT_COLLECTED
    """cpufreq governor -> how many processors have it; not installed: no cpufreq here (many VMs)."""
    numa_nodes: Fact[tuple[NumaNode, ...]] = NOT_COLLECTED
    numa_balancing: Fact[bool] = NOT_COLLECTED
    iommu_groups: Fact[int] = NOT_COLLECTED
    """How many there are; 0: no IOMMU translates."""
    iommu_domain: Fact[str] = NOT_COLLECTED
    """Of the GPUs' groups: `DMA`, `DMA-FQ`, `identity`."""
    acs_bridges: Fact[tuple[AcsBridge, ...]] = NOT_COLLECTED
    """Bridges above GPUs; needs root, as their config space does."""
    clock_synchronised: Fact[bool] = NOT_COLLECTED
    clocksource: Fact[str] = NOT_COLLECTED
    transparent_hugepages: Fact[str] = NOT_COLLECTED
    swappiness: Fact[int] = NOT_COLLECTED
    cgroup_memory_limit_bytes: Fact[int] = NOT_COLLECTED
    """Of the collector's own cgroup; not installed when unlimited."""
    oom_kills: Fact[tuple[OomKill, ...]] = NOT_COLLECTED
    """Of the running boot, newest first."""
    pcie_errors: Fact[dict[str, int]] = NOT_COLLECTED
    """PCI address -> AER messages about it in the running boot."""
    repositories: Fact[tuple[Repository, ...]] = NOT_COLLECTED
    module_streams: Fact[tuple[ModuleStream, ...]] = NOT_COLLECTED
    package_locks: Fact[tuple[LockHolder, ...]] = NOT_COLLECTED
    """An empty tuple: nobody holds one."""
    enrolled_keys: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Subjects of the machine owner keys and firmware keys (`mokutil --list-enrolled`)."""
    pending_keys: Fact[tuple[str, ...]] = NOT_COLLECTED
    """Subjects that wait for the console at the next boot (`mokutil --list-new`)."""
