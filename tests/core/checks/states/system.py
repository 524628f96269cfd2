"""States of the checks of the system, its package sources, and of what could change or open the host."""

from __future__ import annotations

import msgspec

from doctor.core.check import Case
from doctor.core.goal import parse_goal
from doctor.core.host import Collection, DeviceNode, Filesystem, Host, StuckItem
from doctor.core.host_machine import LockHolder, ModuleStream, NumaNode, OomKill
from doctor.core.matrix import Matrix
from doctor.core.rows.site import Overlay, SiteRule
from doctor.core.versions import Dotted
from tests.core.checks.states.base import States
from tests.core.hosts import (
    GIB,
    MIB,
    OLD_DRIVER,
    at,
    driver_packages,
    having,
    healthy,
    in_container,
    known_of,
    matrix,
    no_driver,
    put,
    without,
    working_probe,
)
from tests.core.pairs_machine import OLDER, entry, sources

_UNREAD = without(
    healthy(), ["driver.kernel_version", "driver.userspace_version", "kernel.installed"], "timeout"
)
_STUCK = StuckItem(key="nvml", pid=4711, state="D", wchan="os_acquire_rwlock_write", waited_s=15.0)
_NODES = (NumaNode(index=0, cpus="0-31"), NumaNode(index=1, cpus="32-63"))
_OTHER_LIBCUDA = having(
    healthy(),
    {
        "system.environment": {"LD_LIBRARY_PATH": "/opt/nv/lib"},
        "cuda.probe_caller": working_probe(library_path="/opt/nv/lib/libcuda.so.1"),
    },
)
#: A report that somebody pasted: nobody asked for the caller's variables.
_PASTED = put(without(healthy(), ["cuda.probe_caller"]), "collection", Collection())


def _resources(**fields: object) -> Host:
    value = msgspec.structs.replace(at(healthy(), "system.resources").value, **fields)
    return put(healthy(), "system.resources", value)


def _room(free: int) -> Host:
    place = Filesystem(path="/", total_bytes=100 * GIB, free_bytes=free, kind="ext4")
    return _resources(filesystems=(place,))


def _stream(name: str) -> Host:
    streams = (ModuleStream(module="nvidia-driver", stream=name, state="enabled"),)
    return put(healthy(), "machine.module_streams", streams)


def _marked(*, is_due: bool) -> Host:
    return put(healthy(), "packages", driver_packages(reboot_required=known_of(value=is_due)))


def _ruled(versions: str, host: Host | None = None) -> Case:
    """A host on a site whose overlay forbids some drivers."""
    rule = SiteRule(
        component="driver",
        versions=(versions,),
        reason="known to be bad",
        source=("ticket 4711",),
        as_of="2026-11-30",
        confidence="measured",
        review_by="2027-11-30",
        overlay="site-a: overlay.yaml:7",
    )
    overlay = Overlay(name="site-a", as_of="2026-11-30", digest="0", rules=(("forbid", rule),))
    edition = matrix().edition
    return Case(host=host or healthy(), matrix=Matrix(edition, overlays=(overlay,), plain=edition))


STATES: dict[str, States] = {
    "system.nvidia_gpu": States(
        bad=put(no_driver(), "pci", ()), unknown=without(no_driver(), ["pci"], "unreadable")
    ),
    "system.collection": States(
        unknown=put(healthy(), "collection", Collection(stuck=(_STUCK,))), skip=_PASTED
    ),
    "system.witnesses": States(
        bad=put(
            healthy(),
            "driver.smi",
            msgspec.structs.replace(at(healthy(), "driver.smi").value, driver_version=OLD_DRIVER),
        ),
        unknown=without(healthy(), ["driver.nvml", "driver.smi"], "timeout"),
    ),
    "system.disk_space": States(bad=_room(200 * MIB), skip=_resources(filesystems=())),
    "system.caller_paths": States(
        ok=_OTHER_LIBCUDA, unknown=without(_OTHER_LIBCUDA, ["cuda.probe_caller"], "timeout"), skip=_PASTED
    ),
    "system.memory": States(bad=_resources(memory_available_bytes=2 * GIB)),
    "system.oom_kills": States(ok=put(healthy(), "machine.oom_kills", (OomKill(process="vllm"),))),
    "system.cgroup_limit": States(bad=put(healthy(), "machine.cgroup_memory_limit_bytes", 4 * GIB)),
    "system.governor": States(ok=put(healthy(), "machine.governors", {"powersave": 64})),
    "system.numa": States(ok=put(healthy(), "machine.numa_nodes", _NODES)),
    "system.clock": States(bad=put(healthy(), "machine.clocksource", "hpet")),
    "system.repositories": States(bad=sources(entry(), entry(OLDER, signed_by="")), skip=in_container()),
    "system.repository_keys": States(
        ok=sources(entry(key_present=True)), bad=sources(entry(key_present=False)), skip=healthy()
    ),
    "system.package_lock": States(
        ok=put(
            healthy(),
            "machine.package_locks",
            (LockHolder(lock="/var/lib/dpkg/lock-frontend", process="unattended-upgr", pid=7),),
        ),
        skip=in_container(),
    ),
    "system.module_stream": States(ok=_stream("580-open"), bad=_stream("570-dkms"), skip=healthy()),
    "system.reboot_required": States(ok=_marked(is_due=True), skip=in_container()),
    "system.site_rules": States(
        ok=_ruled("==595.*"), bad=_ruled("==580.178.04"), unknown=_ruled("==595.*", _UNREAD), skip=healthy()
    ),
    "security.automatic_updates": States(
        bad=put(healthy(), "packages", driver_packages(automatic_updates=known_of(value=True)))
    ),
    "security.unverified_repositories": States(
        ok=sources(entry(checks_signature=True)),
        bad=sources(entry(checks_signature=False)),
        skip=in_container(),
    ),
    "security.driver_advisory": States(
        bad=Case(
            host=put(healthy(), "driver.kernel_version", Dotted("580.95.05")),
            matrix=matrix(),
            goal=parse_goal("policy=harden"),
        )
    ),
    "security.device_nodes": States(
        bad=put(
            healthy(),
            "driver.device_nodes",
            (DeviceNode(path="/dev/nvidia0", mode="0666", owner="eve:users"),),
        )
    ),
    "security.pending_keys": States(ok=put(healthy(), "machine.pending_keys", ("CN=dkms",))),
}

__all__ = ["STATES"]
