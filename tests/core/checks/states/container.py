"""States of the checks of containers: engines, toolkit, CDI on the host, and what is inside one."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.goal import parse_goal
from doctor.core.versions import Dotted
from tests.core.checks.states.base import States
from tests.core.hosts import (
    MIB,
    healthy,
    in_container,
    in_wsl2,
    matrix,
    put,
    without,
)
from tests.core.hosts_container import (
    BARE_DOCKER,
    LEGACY_DOCKER,
    config,
    containerd,
    docker,
    inside,
    node,
    serving,
    spec,
    without_toolkit,
)
from tests.core.pairs_container import BARE, EVEN, MANAGED, ODD, SNAP, STRAY, driver_packages_of

_ROOTLESS = docker(is_rootless=True, cdi_enabled=False, cdi_dirs=None)
_LEGACY = serving(LEGACY_DOCKER, toolkit_config=config(mode="legacy"), char_links=False)
_DENIAL = ("avc:  denied  { read write } for  path=/dev/nvidiactl scontext=system_u:system_r:container_t:s0",)

STATES: dict[str, States] = {
    "container.engine_config": States(ok=serving(), bad=serving(docker(config_fault="it is no JSON"))),
    "container.toolkit": States(ok=serving(), bad=without_toolkit(BARE_DOCKER)),
    "container.runtime_registered": States(ok=serving(), bad=serving(BARE_DOCKER)),
    "container.runtime_binary": States(ok=serving(), bad=without_toolkit(docker(cdi_enabled=False))),
    "container.default_runtime": States(
        ok=node(),
        bad=node(containerd(default_runtime="runc"), has_device_plugin_socket=False),
        unknown=node(containerd(default_runtime=None, runtimes=None)),
        skip=serving(),
    ),
    "container.no_cgroups": States(
        ok=serving(),
        bad=serving(toolkit_config=config(no_cgroups=True)),
        unknown=without(serving(), ["containers.toolkit_config"], "denied"),
        skip=without_toolkit(),
    ),
    "container.rootless": States(
        ok=serving(docker(is_rootless=True)),
        bad=serving(_ROOTLESS),
        unknown=serving(_ROOTLESS, toolkit_config=config(no_cgroups=None)),
        skip=serving(),
    ),
    "container.snap": States(ok=serving(), bad=serving(SNAP)),
    "container.toolkit_mode": States(
        ok=serving(),
        bad=serving(toolkit_config=config(mode="csv")),
        unknown=serving(toolkit_config=config(mode="teleport")),
        skip=without_toolkit(),
    ),
    "container.toolkit_parts": States(
        ok=driver_packages_of(*EVEN), bad=driver_packages_of(*ODD), skip=without_toolkit()
    ),
    "container.toolkit_advisory": States(
        ok=serving(),
        bad=Case(
            host=serving(toolkit_version=Dotted("1.17.3")), matrix=matrix(), goal=parse_goal("policy=harden")
        ),
        unknown=without(serving(), ["containers.toolkit_version"], "timeout"),
        skip=without_toolkit(),
    ),
    "container.driver_double_managed": States(
        bad=MANAGED, unknown=without(MANAGED, ["packages"], "timeout"), skip=in_container()
    ),
    "container.wsl_driver": States(
        ok=in_wsl2(), bad=STRAY, unknown=without(in_wsl2(), ["packages", "driver.libraries"]), skip=serving()
    ),
    "container.cdi_spec": States(
        ok=serving(), bad=serving(cdi_specs=(spec(driver_versions=("575.57.08",)),))
    ),
    "container.cdi_paths": States(
        ok=serving(), bad=serving(cdi_specs=(spec(missing_paths=("/dev/nvidia1",)),))
    ),
    "container.cdi_dirs": States(ok=serving(), bad=serving(docker(cdi_dirs=("/etc/cdi",)))),
    "container.cgroup_devices": States(
        ok=serving(), bad=_LEGACY, unknown=without(_LEGACY, ["containers.char_links"]), skip=healthy()
    ),
    "container.selinux": States(
        ok=serving(selinux="enforcing"),
        bad=serving(selinux="enforcing", selinux_denials=_DENIAL),
        unknown=without(serving(selinux="enforcing"), ["containers.selinux_denials"], "denied"),
        skip=serving(),
    ),
    "container.gpu_visible": States(
        ok=in_container(),
        bad=put(BARE, "system.environment", {"NVIDIA_VISIBLE_DEVICES": "void"}),
        unknown=without(in_container(), ["driver.nvml", "driver.smi"], "timeout"),
        skip=BARE,
    ),
    "container.shm": States(
        ok=inside(),
        bad=inside(64 * MIB),
        unknown=without(inside(64 * MIB), ["driver.nvml", "driver.smi"]),
        skip=healthy(),
    ),
}

__all__ = ["STATES"]
