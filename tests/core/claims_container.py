"""Claims about containers, fabric and network: each on a host where it holds, does not, and is untold."""

from __future__ import annotations

from doctor.core.versions import Dotted
from tests.core.hosts import (
    MIB,
    NOT_THERE,
    OLD_DRIVER,
    healthy,
    in_wsl2,
    loaded_modules,
    put,
    said,
    without,
)
from tests.core.hosts_container import (
    LEGACY_DOCKER,
    config,
    containerd,
    docker,
    inside,
    node,
    refused,
    serving,
    spec,
)
from tests.core.hosts_fabric import (
    bridged,
    guest,
    hgx,
    hgx_b200,
    managed,
    networked,
    waiting,
)
from tests.core.pair import Three
from tests.core.pairs_container import BARE, EVEN, ODD, SNAP, STRAY, XID_78, driver_packages_of, slice_of_a10
from tests.core.pairs_fabric import LITTLE, ONE_DOWN, RACK

HEALTHY = healthy()
LEGACY = serving(LEGACY_DOCKER, toolkit_config=config(mode="legacy"), char_links=False)
UNKNOWN_ERROR = refused("Unknown Error")
DENIAL = ("avc:  denied  { read } for  comm=nvidia-smi path=/dev/nvidiactl",)
NO_ENGINES = without(serving(), ["containers.engines"], "denied")
STARTING = managed(hgx(), active="activating")
MANAGED = put(serving(), "driver.container_root", "/run/nvidia/driver")

CASES: dict[str, Three] = {
    # containers
    "containers_lack_gpu": Three(BARE, serving(), serving(docker(runtimes=None, cdi_enabled=None))),
    "docker_is_snap": Three(serving(SNAP), serving(), serving(docker(is_snap=None, runtimes=None))),
    "no_cgroups_seen": Three(
        serving(toolkit_config=config(no_cgroups=True)),
        serving(),
        without(serving(), ["containers.toolkit_config"], "denied"),
    ),
    "no_cgroups_rootful": Three(serving(), serving(docker(is_rootless=True)), UNKNOWN_ERROR),
    "reload_loss_seen": Three(LEGACY, serving(), without(LEGACY, ["containers.toolkit_config"])),
    "reload_loss_open": Three(LEGACY, serving(), UNKNOWN_ERROR),
    "cdi_stale": Three(
        serving(cdi_specs=(spec(driver_versions=("575.57.08",)),)),
        serving(),
        serving(cdi_specs=(spec(driver_versions=(), missing_paths=None),)),
    ),
    "cdi_unseen": Three(
        serving(docker(cdi_dirs=("/etc/cdi",))), serving(), without(serving(), ["containers.cdi_specs"])
    ),
    "selinux_refusal_seen": Three(
        serving(selinux_denials=DENIAL), serving(), without(serving(), ["containers.selinux_denials"])
    ),
    "selinux_enforces": Three(
        serving(selinux="enforcing"),
        serving(selinux="permissive"),
        without(serving(), ["containers.selinux"]),
    ),
    "pods_get_runc": Three(
        node(containerd(runtimes=("runc",), default_runtime="runc")),
        node(),
        node(containerd(default_runtime=None, runtimes=None)),
    ),
    "linux_driver_in_wsl": Three(STRAY, in_wsl2(), without(in_wsl2(), ["packages"])),
    "shm_small": Three(inside(64 * MIB), inside(), inside(None)),
    "double_managed": Three(MANAGED, serving(), without(MANAGED, ["packages"])),
    "engine_config_faulty": Three(serving(docker(config_fault="it is no JSON")), serving(), NO_ENGINES),
    "toolkit_mode_unfit": Three(
        serving(toolkit_config=config(fault="it is no TOML")),
        serving(),
        without(serving(toolkit_config=config(mode="cdi")), ["containers.cdi_specs"]),
    ),
    "rootless_closed": Three(
        serving(docker(is_rootless=True, cdi_enabled=False)),
        serving(docker(is_rootless=True)),
        serving(docker(is_rootless=None, cdi_enabled=False)),
    ),
    "toolkit_parts_differ": Three(
        driver_packages_of(*ODD), driver_packages_of(*EVEN), without(serving(), ["packages"])
    ),
    "toolkit_named": Three(
        serving(toolkit_version=Dotted("1.17.3")),
        serving(),
        without(serving(), ["containers.toolkit_version"]),
    ),
    "vgpu_refused": Three(said(HEALTHY, xids=(XID_78,)), HEALTHY, said(HEALTHY, is_complete=False)),
    "vgpu_with_plain_driver": Three(slice_of_a10(), HEALTHY, without(slice_of_a10(), ["packages"])),
    # what joins the GPUs
    "fabric_waits": Three(waiting(hgx()), hgx(), without(hgx(), ["cuda.probe"])),
    "fabric_in_question": Three(
        managed(hgx(), active="failed"), hgx(), without(hgx(), ["cuda.probe", "pci"])
    ),
    "fabric_manager_down": Three(managed(hgx(), active="failed"), hgx(), STARTING),
    "fabric_manager_differs": Three(
        put(hgx(), "fabric.manager_version", OLD_DRIVER), hgx(), without(hgx(), ["fabric.manager_version"])
    ),
    "fabric_state_unready": Three(waiting(hgx()), hgx(), HEALTHY),
    "fabric_of_provider": Three(guest(), hgx(), without(guest(), ["pci"])),
    "nvlink5_part_missing": Three(
        put(hgx_b200(), "kernel.modules", loaded_modules("nvidia", "mlx5_ib")),
        hgx_b200(),
        without(hgx_b200(), ["kernel.modules"]),
    ),
    "imex_channel_missing": Three(
        RACK, put(RACK, "fabric.imex_channels", ("channel0",)), without(RACK, ["fabric.imex_channels"])
    ),
    # the network
    "acs_redirects": Three(bridged(), bridged(redirects=False), without(bridged(), ["machine.acs_bridges"])),
    "memlock_low": Three(
        put(networked(), "system.resources", LITTLE), networked(), without(networked(), ["system.resources"])
    ),
    "peermem_missing": Three(
        networked(**{"kernel.modules": loaded_modules("nvidia"), "driver.flavour": "proprietary"}),
        networked(),
        networked(**{"kernel.modules": NOT_THERE}),
    ),
    "port_down": Three(
        networked(**{"network.ports": ONE_DOWN}), networked(), without(networked(), ["network.ports"])
    ),
}
