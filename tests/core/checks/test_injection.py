"""The checks of how a container gets its GPU: CDI, cgroups and SELinux on the host, and what is inside."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.finding import Status
from doctor.core.host import Host
from doctor.core.judge import judge_scopes
from doctor.core.versions import Dotted
from tests.core.hosts import (
    DRIVER,
    MIB,
    NOT_THERE,
    answer,
    expect,
    failing_probe,
    having,
    healthy,
    in_container,
    matrix,
    put,
    without,
    without_module,
    wrong,
)
from tests.core.hosts_container import (
    LEGACY_DOCKER,
    LIBCUDA,
    SPEC,
    TOOLKIT,
    alone,
    config,
    docker,
    inside,
    other,
    refused,
    serving,
    spec,
    without_toolkit,
)
from tests.core.pairs_container import BARE, PODMAN

STALE = spec(driver_versions=("575.57.08",))
GONE = spec(missing_paths=(LIBCUDA, "/dev/nvidia1"))
LEGACY = serving(LEGACY_DOCKER, toolkit_config=config(mode="legacy"), char_links=False)
OLD_AUTO = serving(LEGACY_DOCKER, toolkit_version=Dotted("1.16.2"), char_links=False)
DENIAL = ("avc:  denied  { read write } for  path=/dev/nvidiactl scontext=system_u:system_r:container_t:s0",)
UNKNOWN_ERROR = put(refused("Unknown Error"), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN"))
CLOSED = put(refused("Insufficient Permissions", 4), "cuda.probe", failing_probe(100, "CUDA_ERROR_NO_DEVICE"))
VOID = put(BARE, "system.environment", {"NVIDIA_VISIBLE_DEVICES": "void"})

TABLE: dict[str, dict[str, tuple[Host, Status, str, str]]] = {
    "container.cdi_spec": {
        "of this driver": (serving(), "pass", SPEC, DRIVER.raw),
        "of an earlier one": (serving(cdi_specs=(STALE,)), "warn", SPEC, "575.57.08"),
        "names no version": (serving(cdi_specs=(spec(driver_versions=()),)), "pass", SPEC, "no version"),
        "unreadable": (serving(cdi_specs=(spec(fault="it is empty"),)), "warn", SPEC, "empty"),
        "may not be read": (
            serving(cdi_specs=(spec(fault="it cannot be read: denied", is_read=False, driver_versions=()),)),
            "unknown",
            SPEC,
            "denied",
        ),
        "the driver is not known": (
            without(serving(), ["driver.userspace_version", "driver.kernel_version"]),
            "unknown",
            SPEC,
            "not known",
        ),
        "of other devices": (serving(cdi_specs=(spec(kind="intel.com/gpu"),)), "skip", "", "no CDI"),
        "none": (serving(cdi_specs=()), "skip", "", "no CDI"),
        "not read": (without(serving(), ["containers.cdi_specs"], "denied"), "unknown", "", "needs root"),
        "not asked": (healthy(), "skip", "", "not asked"),
    },
    "container.cdi_paths": {
        "all there": (serving(), "pass", SPEC, "2 paths"),
        "some gone": (serving(cdi_specs=(GONE,)), "warn", SPEC, "and 1 more"),
        "nobody looked": (serving(cdi_specs=(spec(missing_paths=None),)), "skip", SPEC, "nobody looked"),
        "none": (serving(cdi_specs=()), "skip", "", "no CDI"),
        "not read": (without(serving(), ["containers.cdi_specs"], "timeout"), "unknown", "", "in time"),
    },
    "container.cdi_dirs": {
        "read by Docker": (serving(), "pass", "", "docker"),
        "elsewhere": (serving(docker(cdi_dirs=("/etc/cdi",))), "warn", "", "lies elsewhere"),
        "an engine too old for it": (
            serving(docker(version=Dotted("25.0.3")), cdi_specs=(spec(cdi_version="0.7.0"),)),
            "warn",
            "",
            "does not read CDI 0.7.0",
        ),
        "an engine that is new enough": (
            serving(cdi_specs=(spec(cdi_version="0.7.0"),)),
            "pass",
            "",
            "docker",
        ),
        "a directory that only root may enter": (
            serving(PODMAN, cdi_specs=(spec(folder_mode="0700"),)),
            "warn",
            "",
            "has mode 0700",
        ),
        "a directory that everybody may enter": (
            serving(PODMAN, cdi_specs=(spec(folder_mode="0755"),)),
            "pass",
            "",
            "podman",
        ),
        "Podman without one": (serving(PODMAN, cdi_specs=()), "warn", "", "no CDI specification"),
        "Podman without the toolkit": (without_toolkit(PODMAN), "skip", "", "nothing here is given by CDI"),
        "Docker with its runtime": (serving(cdi_specs=()), "skip", "", "nothing here is given by CDI"),
        "one that may not be read": (
            serving(cdi_specs=(spec(fault="it cannot be read: denied", is_read=False),)),
            "unknown",
            "",
            "not read",
        ),
        "no engine uses it": (serving(LEGACY_DOCKER), "skip", "", "no engine"),
        "not read": (without(serving(), ["containers.cdi_specs"], "denied"), "unknown", "", "not read"),
    },
    "container.cgroup_devices": {
        "by CDI": (serving(), "pass", "", "not used"),
        "the legacy hook, no links": (LEGACY, "warn", "", "/dev/char"),
        "mode auto of an older toolkit": (OLD_AUTO, "warn", "", "legacy hook"),
        "mode auto of a newer toolkit": (
            serving(LEGACY_DOCKER, toolkit_version=TOOLKIT, char_links=False),
            "pass",
            "",
            "not used",
        ),
        "links": (put(LEGACY, "containers.char_links", value=True), "pass", "", "has links"),
        "cgroupfs": (serving(docker(cgroup_driver="cgroupfs", cdi_enabled=False)), "pass", "", "not used"),
        "a containerd that serves Docker": (
            serving(
                docker(cgroup_driver="cgroupfs", cdi_enabled=False),
                other("containerd", cgroup_driver="systemd"),
                toolkit_config=config(mode="legacy"),
                char_links=False,
            ),
            "pass",
            "",
            "not used",
        ),
        "links not read": (without(LEGACY, ["containers.char_links"]), "unknown", "", "not read"),
        "the mode was not read": (without(LEGACY, ["containers.toolkit_config"]), "skip", "", "not asked"),
        "engines not read": (without(LEGACY, ["containers.engines"], "denied"), "unknown", "", "needs root"),
    },
    "container.selinux": {
        "enforcing, nothing refused": (serving(selinux="enforcing"), "pass", "", "no refusal"),
        "refused": (serving(selinux="enforcing", selinux_denials=DENIAL), "warn", "", "nvidiactl"),
        "refused, and allowed since": (
            serving(selinux="enforcing", selinux_denials=DENIAL, selinux_use_devices=True),
            "pass",
            "",
            "a refusal was logged",
        ),
        "permissive": (serving(selinux="permissive", selinux_denials=DENIAL), "pass", "", "permissive"),
        "denials not read": (
            without(serving(selinux="enforcing"), ["containers.selinux_denials"], "denied"),
            "unknown",
            "",
            "needs root",
        ),
        "disabled": (serving(), "skip", "", "not in use"),
        "not read": (without(serving(), ["containers.selinux"], "failed"), "unknown", "", "could not"),
        "not asked": (healthy(), "skip", "", "not asked"),
    },
    "container.gpu_visible": {
        "given": (in_container(), "pass", "", "2 GPU(s)"),
        "given by CDI, which sets void": (inside(NVIDIA_VISIBLE_DEVICES="void"), "pass", "", "2 GPU(s)"),
        "none asked for": (VOID, "fail", "", "NVIDIA_VISIBLE_DEVICES is `void`"),
        "asked for, not given": (BARE, "skip", "", "driver.nvml"),
        "without compute": (inside(NVIDIA_DRIVER_CAPABILITIES="utility"), "warn", "", "`utility`"),
        "with compute": (inside(NVIDIA_DRIVER_CAPABILITIES="compute,utility"), "pass", "", "2 GPU(s)"),
        "all of it": (inside(NVIDIA_DRIVER_CAPABILITIES="all"), "pass", "", "2 GPU(s)"),
        "nobody answered": (
            without(in_container(), ["driver.nvml", "driver.smi"], "timeout"),
            "unknown",
            "",
            "in time",
        ),
        "a host": (healthy(), "skip", "", "inside of a container"),
    },
    "container.shm": {
        "the host's": (inside(), "pass", "", "16384 MiB"),
        "64 MiB for two GPUs": (inside(64 * MIB), "warn", "", "64 MiB, for 2 GPUs"),
        "64 MiB for one": (alone(inside(64 * MIB)), "pass", "", "64 MiB"),
        "not measured": (inside(None), "skip", "", "not measured"),
        "how many GPUs was not read": (
            without(inside(64 * MIB), ["driver.nvml", "driver.smi"]),
            "unknown",
            "",
            "how many",
        ),
        "no resources": (without(inside(), ["system.resources"], "timeout"), "unknown", "", "in time"),
        "a host": (healthy(), "skip", "", "inside of a container"),
    },
}
ROWS = [(check, name) for check, rows in TABLE.items() for name in rows]


@pytest.mark.parametrize(("check", "name"), ROWS)
def test_check(check: str, name: str) -> None:
    host, status, subject, words = TABLE[check][name]
    expect(host, check, status, subject, words)


# --- the same error in a container has several causes ---------------------------------------------


def test_unknown_error_inside_is_not_decided_there() -> None:
    cause = answer(UNKNOWN_ERROR).causes[0]
    assert cause.id == "unknown"
    assert {"container.cgroup_device_loss", "container.no_cgroups_misconfig"} <= set(cause.tied_with)
    facts = " ".join(cause.deciding_facts)
    assert "no-cgroups" in facts
    assert "daemon-reload" in facts


def test_insufficient_permissions_inside_is_not_decided_there() -> None:
    cause = answer(CLOSED).causes[0]
    assert (cause.id, cause.tied_with) == ("unknown", ("container.selinux_denied",))


def beside(host: Host, inside_it: Host) -> dict[str, list[str]]:
    """Scope -> causes, where host and container were asked."""
    inner = msgspec.structs.replace(inside_it, scope="container:8a1d5c77e0b2")
    report = judge_scopes((host, inner), matrix())
    return {s.scope: [c.id for c in report.causes if c.scope == s.scope] for s in report.scopes}


BOTH = serving(LEGACY_DOCKER, toolkit_config=config(mode="legacy", no_cgroups=True))
SIDES: dict[str, tuple[Host, Host, str]] = {
    "devices that systemd does not know": (LEGACY, UNKNOWN_ERROR, "container.cgroup_device_loss"),
    "no-cgroups": (BOTH, UNKNOWN_ERROR, "container.no_cgroups_misconfig"),
    "neither": (serving(), UNKNOWN_ERROR, "unknown"),
    "SELinux": (serving(selinux="enforcing"), CLOSED, "container.selinux_denied"),
    "a permissive host": (serving(selinux="permissive"), CLOSED, "unknown"),
}


@pytest.mark.parametrize("name", SIDES)
def test_the_host_settles_what_a_container_cannot(name: str) -> None:
    host, inner, cause = SIDES[name]
    assert beside(host, inner) == {"host": [], "container:8a1d5c77e0b2": [cause]}


def test_where_nothing_opens_nothing_is_lost_later() -> None:
    assert [a.id for a in answer(BOTH).advice] == ["container.no_cgroups_misconfig"]


def test_a_container_taken_for_the_host_settles_nothing() -> None:
    assert beside(inside(), UNKNOWN_ERROR)["container:8a1d5c77e0b2"] == ["unknown"]


def test_a_container_that_asked_for_none_is_one_cause() -> None:
    report = answer(VOID)
    assert [c.id for c in report.causes] == ["container.toolkit_not_configured"], wrong(VOID)
    assert "container.gpu_visible" in report.causes[0].findings


def test_a_stale_specification_is_told_with_both_versions() -> None:
    advice = answer(serving(cdi_specs=(STALE,))).advice
    assert [a.id for a in advice] == ["container.cdi_spec_stale"]
    assert "575.57.08" in " ".join(advice[0].because)
    assert DRIVER.raw in " ".join(advice[0].because)


def test_a_specification_without_versions_is_stale_by_what_it_names() -> None:
    host = serving(cdi_specs=(spec(driver_versions=(), missing_paths=(LIBCUDA,)),))
    assert [a.id for a in answer(host).advice] == ["container.cdi_spec_stale"]


def test_a_driver_update_that_waits_for_a_reboot_goes_by_what_is_on_disk() -> None:
    """Containers are given the libraries on disk: those are what a specification has to name."""
    host = put(
        serving(cdi_specs=(spec(driver_versions=("580.95.05",)),)),
        "driver.userspace_version",
        Dotted("580.95.05"),
    )
    expect(host, "container.cdi_spec", "pass", SPEC)


def test_one_specification_of_two_that_an_engine_reads_is_enough() -> None:
    both = (spec(path="/opt/cdi/nvidia.yaml"), spec())
    assert "container.cdi_not_seen" not in {a.id for a in answer(serving(cdi_specs=both)).advice}


def test_var_run_is_run() -> None:
    host = serving(docker(cdi_dirs=("/var/run/cdi",)), cdi_specs=(spec(path="/var/run/cdi/nvidia.yaml"),))
    expect(host, "container.cdi_dirs", "pass")


@pytest.mark.parametrize("host", [without_module(serving()), having(serving(), {"packages": NOT_THERE})])
def test_settings_of_containers_never_crash_a_broken_host(host: Host) -> None:
    assert not [f for f in answer(host).findings if f.area == "internal"]


def test_an_engine_that_nobody_asked_is_not_blamed() -> None:
    host = serving(other("docker"), toolkit_config=config(mode="legacy"), char_links=False)
    warned = [f.id for f in answer(host).findings if f.status == "warn" and f.area == "container"]
    assert warned == []


def test_what_has_happened_stands_before_what_may_happen() -> None:
    host = put(LEGACY, "containers.selinux", "enforcing")
    host = put(host, "containers.selinux_denials", DENIAL)
    advice = [a.id for a in answer(host).advice]
    assert advice == ["container.selinux_denied", "container.cgroup_device_loss"]
