"""The checks of engines and the NVIDIA Container Toolkit: pass, warn, unknown, or not for this host."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.claims import evaluate
from doctor.core.finding import Status
from doctor.core.goal import parse_goal
from doctor.core.host import AbsentReason, Host
from doctor.core.host_container import Kubernetes
from doctor.core.judge import judge
from doctor.core.versions import Dotted
from tests.core.hosts import (
    NOT_THERE,
    answer,
    beside_a_driver_container,
    case_of,
    expect,
    findings,
    having,
    healthy,
    in_container,
    in_wsl2,
    jetson,
    library,
    matrix,
    no_driver,
    package,
    packages_of,
    put,
    reports,
    unloadable_probe,
    without,
    wrong,
)
from tests.core.hosts_container import (
    BARE_DOCKER,
    CONFIG,
    config,
    containerd,
    docker,
    node,
    other,
    serving,
    without_toolkit,
)
from tests.core.pairs_container import EVEN, MANAGED, ODD, PODMAN, SNAP, STRAY, driver_packages_of

NO_GPU = put(no_driver(), "pci", ())
NOT_ASKED = healthy()
DENIED = without(serving(), ["containers.engines"], "denied")
CLOSED_CONFIG = without(serving(), ["containers.toolkit_config"], "denied")
OF_OPERATOR = without_toolkit(
    containerd(runtimes=("runc",), default_runtime="runc"),
    kubernetes=Kubernetes(distribution="kubelet", has_nvidia_operator=True, has_device_plugin_socket=True),
)
K3S = other("k3s", runtimes=("runc",), default_runtime="runc", cdi_enabled=False)
ROOTLESS = docker(is_rootless=True, cdi_enabled=False, cdi_dirs=None)

#: check -> name -> (host, status, subject, words in `found`)
TABLE: dict[str, dict[str, tuple[Host, Status, str, str]]] = {
    "container.engine_config": {
        "readable": (serving(), "pass", "docker", "daemon.json"),
        "a fault": (serving(docker(config_fault="it is no JSON")), "warn", "docker", "no JSON"),
        "the engine was not read": (DENIED, "unknown", "", "needs root"),
        "no engine": (
            put(serving(), "containers.engines", ()),
            "skip",
            "",
            "no container engine",
        ),
        "not asked": (NOT_ASKED, "skip", "", "not asked"),
    },
    "container.toolkit": {
        "installed": (serving(), "pass", "", "1.20.0"),
        "its runtime alone is known": (
            put(serving(), "containers.toolkit_version", NOT_THERE),
            "pass",
            "",
            "on disk",
        ),
        "Docker without it": (without_toolkit(BARE_DOCKER), "warn", "", "docker is here"),
        "a Kubernetes node without it": (
            without_toolkit(K3S, kubernetes=Kubernetes(distribution="k3s", has_nvidia_operator=False)),
            "warn",
            "",
            "k3s is here",
        ),
        "Podman, which nobody need use": (without_toolkit(PODMAN), "skip", "", "starts work with GPUs"),
        "a containerd that serves Docker": (
            without_toolkit(other("containerd")),
            "skip",
            "",
            "starts work with GPUs",
        ),
        "the GPU Operator brings it": (OF_OPERATOR, "skip", "", "Operator"),
        "a snap": (without_toolkit(SNAP), "skip", "", "container.snap"),
        "not read": (
            without(serving(), ["containers.toolkit_version", "containers.runtime_hook_present"], "timeout"),
            "unknown",
            "",
            "not read",
        ),
        "no engine": (put(without_toolkit(), "containers.engines", ()), "skip", "", "no container engine"),
        "no GPU": (put(NO_GPU, "containers.engines", (docker(),)), "skip", "", "no NVIDIA GPU"),
        "inside a container": (put(in_container(), "containers.engines", ()), "skip", "", "the host's"),
    },
    "container.runtime_registered": {
        "a runtime": (serving(), "pass", "", "nvidia, runc"),
        "by CDI alone": (
            serving(docker(runtimes=("runc",), configured_runtimes=(), runtime_paths={})),
            "pass",
            "",
            "runc",
        ),
        "neither": (serving(BARE_DOCKER), "warn", "", "runtimes runc"),
        "CDI is on, and there is no specification": (
            serving(docker(runtimes=("runc",), configured_runtimes=()), cdi_specs=()),
            "warn",
            "",
            "runtimes runc",
        ),
        "nobody told": (serving(docker(runtimes=None, cdi_enabled=None)), "unknown", "", "not read"),
        "no toolkit": (without_toolkit(BARE_DOCKER), "skip", "", ""),
        "no Docker": (serving(PODMAN), "skip", "", ""),
    },
    "container.runtime_binary": {
        "there": (serving(), "pass", "docker", "nvidia-container-runtime"),
        "gone": (without_toolkit(docker(cdi_enabled=False)), "warn", "docker", "not there"),
        "in the Operator's place": (
            serving(
                containerd(runtime_paths={"nvidia": "/usr/local/nvidia/toolkit/nvidia-container-runtime"}),
                kubernetes=Kubernetes(distribution="kubelet"),
            ),
            "skip",
            "containerd",
            "place of its own",
        ),
        "not read": (
            without(serving(), ["containers.runtime_hook_present"]),
            "unknown",
            "docker",
            "not read",
        ),
        "none named": (serving(BARE_DOCKER), "skip", "", ""),
    },
    "container.default_runtime": {
        "the default": (node(), "pass", "containerd", "`nvidia`"),
        "by class, with a device plugin": (
            node(containerd(default_runtime="runc")),
            "pass",
            "containerd",
            "runc",
        ),
        "plain, and no device plugin": (
            node(containerd(default_runtime="runc"), has_device_plugin_socket=False),
            "warn",
            "containerd",
            "no device plugin",
        ),
        "plain by default, which the configuration does not say": (
            node(containerd(default_runtime=None, cdi_enabled=None), has_device_plugin_socket=False),
            "warn",
            "containerd",
            "`runc`",
        ),
        "k3s that did not find the toolkit": (
            node(K3S, distribution="k3s"),
            "warn",
            "k3s",
            "no runtime `nvidia`",
        ),
        "the GPU Operator": (OF_OPERATOR, "pass", "", "Operator"),
        "not read": (
            node(containerd(default_runtime=None, runtimes=None)),
            "unknown",
            "containerd",
            "not read",
        ),
        "no Kubernetes": (serving(), "skip", "", "no Kubernetes"),
        "no toolkit": (
            without_toolkit(K3S, kubernetes=Kubernetes(distribution="k3s", has_nvidia_operator=False)),
            "skip",
            "",
            "container.toolkit",
        ),
    },
    "container.no_cgroups": {
        "false": (serving(), "pass", "", "false"),
        "true under a rootful engine": (
            serving(toolkit_config=config(no_cgroups=True)),
            "warn",
            "",
            "Docker runs as root",
        ),
        "true for a rootless one": (
            serving(ROOTLESS, toolkit_config=config(no_cgroups=True)),
            "pass",
            "",
            "rootless",
        ),
        "true, and who runs the engine was not read": (
            serving(docker(is_rootless=None), toolkit_config=config(no_cgroups=True)),
            "unknown",
            "",
            "not read",
        ),
        "no configuration": (without_toolkit(BARE_DOCKER), "skip", "", "no configuration"),
        "the configuration was not read": (CLOSED_CONFIG, "unknown", "", "needs root"),
    },
    "container.rootless": {
        "rootful": (serving(), "skip", "", "no rootless"),
        "by CDI": (serving(docker(is_rootless=True)), "pass", "", "CDI"),
        "by no-cgroups": (
            serving(ROOTLESS, toolkit_config=config(no_cgroups=True)),
            "pass",
            "",
            "no-cgroups",
        ),
        "closed": (serving(ROOTLESS), "warn", "", "`no-cgroups = false`"),
        "does not say": (serving(ROOTLESS, toolkit_config=config(no_cgroups=None)), "unknown", "", "not say"),
    },
    "container.snap": {
        "packages": (serving(), "pass", "", "/usr/bin/docker"),
        "a snap": (serving(SNAP), "warn", "", "/snap/bin/docker"),
        "a snap with the runtime inside": (
            serving(docker(path="/snap/bin/docker", is_snap=True)),
            "pass",
            "",
            "inside",
        ),
        "not read": (serving(docker(is_snap=None, runtimes=None)), "unknown", "", "not read"),
        "no Docker": (serving(PODMAN), "skip", "", "no Docker"),
    },
    "container.toolkit_mode": {
        "auto": (serving(), "pass", CONFIG, "auto"),
        "cdi with a specification": (serving(toolkit_config=config(mode="cdi")), "pass", CONFIG, "cdi"),
        "cdi without one": (
            serving(toolkit_config=config(mode="cdi"), cdi_specs=()),
            "warn",
            CONFIG,
            "no spec",
        ),
        "csv": (serving(toolkit_config=config(mode="csv")), "warn", CONFIG, "no Jetson"),
        "csv on Jetson": (
            put(jetson(), "containers.toolkit_config", config(mode="csv")),
            "pass",
            CONFIG,
            "csv",
        ),
        "a word of the future": (serving(toolkit_config=config(mode="teleport")), "unknown", CONFIG, "newer"),
        "specifications not read": (
            without(serving(toolkit_config=config(mode="cdi")), ["containers.cdi_specs"]),
            "unknown",
            CONFIG,
            "not read",
        ),
        "unreadable": (
            serving(toolkit_config=config(mode=None, fault="it is no TOML")),
            "warn",
            CONFIG,
            "TOML",
        ),
        "none set": (serving(toolkit_config=config(mode=None)), "skip", "", "no mode"),
        "an ldconfig of the host's": (
            serving(toolkit_config=config(ldconfig="@/sbin/ldconfig", ldconfig_there=("/sbin/ldconfig",))),
            "pass",
            CONFIG,
            "auto",
        ),
        "an ldconfig that this host does not have": (
            serving(toolkit_config=config(ldconfig="@/opt/glibc/sbin/ldconfig", ldconfig_there=())),
            "warn",
            CONFIG,
            "it is not on this host",
        ),
        "an ldconfig by its other name, which a newer toolkit finds": (
            serving(
                toolkit_config=config(ldconfig="@/sbin/ldconfig.real", ldconfig_there=("/sbin/ldconfig",))
            ),
            "pass",
            CONFIG,
            "auto",
        ),
        "an ldconfig of the image, which a newer toolkit refuses": (
            serving(toolkit_config=config(ldconfig="/usr/sbin/ldconfig")),
            "warn",
            CONFIG,
            "without `@`: toolkit 1.20.0 refuses it",
        ),
        "an ldconfig of the image, which an older toolkit takes": (
            serving(toolkit_config=config(ldconfig="/usr/sbin/ldconfig"), toolkit_version=Dotted("1.17.2")),
            "pass",
            CONFIG,
            "auto",
        ),
        "an ldconfig of the image, allowed by its feature": (
            serving(toolkit_config=config(ldconfig="/usr/sbin/ldconfig", allows_ldconfig_of_image=True)),
            "pass",
            CONFIG,
            "auto",
        ),
        "no configuration": (without_toolkit(), "skip", "", "no configuration"),
        "the root of a driver container that has gone": (
            serving(toolkit_config=config(root="/run/nvidia/driver")),
            "warn",
            CONFIG,
            "none is there",
        ),
        "the root of a driver container": (
            put(
                serving(toolkit_config=config(root="/run/nvidia/driver")),
                "driver.container_root",
                "/run/nvidia/driver",
            ),
            "pass",
            CONFIG,
            "auto",
        ),
    },
    "container.toolkit_parts": {
        "even": (driver_packages_of(*EVEN), "pass", "", "3 packages"),
        "odd": (driver_packages_of(*ODD), "warn", "", "libnvidia-container-tools 1.17.8"),
        "by other means": (serving(), "skip", "", "not installed from packages"),
        "packages not read": (without(serving(), ["packages"], "timeout"), "unknown", "", "in time"),
    },
    "container.toolkit_advisory": {
        "newest": (serving(), "pass", "", "1.20.0"),
        "named by bulletins": (
            serving(toolkit_version=Dotted("1.17.3")),
            "pass",
            "",
            "3 bulletin(s) mended in 1.19.1",
        ),
        "not known": (
            without(serving(), ["containers.toolkit_version"], "timeout"),
            "unknown",
            "",
            "in time",
        ),
        "not asked": (without(serving(), ["containers.toolkit_version"]), "skip", "", "not asked"),
        "not installed": (without_toolkit(), "skip", "", "not installed"),
        "there, and its release is told by nothing": (
            put(serving(), "containers.toolkit_version", NOT_THERE),
            "unknown",
            "",
            "nothing tells its release",
        ),
    },
    "container.driver_double_managed": {
        "packages alone": (serving(), "pass", "", ""),
        "a driver container alone": (put(MANAGED, "packages", packages_of()), "pass", "", ""),
        "both": (MANAGED, "warn", "", "/run/nvidia/driver"),
        "packages not asked": (without(MANAGED, ["packages"]), "skip", "", "not asked"),
        "packages not read": (without(MANAGED, ["packages"], "timeout"), "unknown", "", "in time"),
        "Jetson": (jetson(), "skip", "", "JetPack"),
    },
    "container.wsl_driver": {
        "no WSL2": (serving(), "skip", "", "not WSL2"),
        "clean": (in_wsl2(), "pass", "", ""),
        "packages of Linux": (STRAY, "warn", "", "libnvidia-compute-535"),
        "a library of Linux": (
            put(in_wsl2(), "driver.libraries", (library("libnvidia-ml.so.1"),)),
            "warn",
            "",
            "libnvidia-ml",
        ),
        "nothing was read": (without(in_wsl2(), ["packages", "driver.libraries"]), "unknown", "", "not read"),
    },
}
ROWS = [(check, name) for check, rows in TABLE.items() for name in rows]


@pytest.mark.parametrize(("check", "name"), ROWS)
def test_check(check: str, name: str) -> None:
    host, status, subject, words = TABLE[check][name]
    expect(host, check, status, subject, words)


@pytest.mark.parametrize("check", [c for c in TABLE if findings(DENIED, c)[0].status == "unknown"])
@pytest.mark.parametrize("reason", ["denied", "timeout", "unreadable", "failed"])
def test_engines_that_could_not_be_read_are_unknown(check: str, reason: AbsentReason) -> None:
    expect(without(serving(), ["containers.engines"], reason), check, "unknown")


def test_a_serving_host_is_ready_without_warnings() -> None:
    report = answer(serving())
    assert (report.verdict, report.causes, report.advice) == ("ready", (), ()), wrong(serving())


@pytest.mark.parametrize(
    "host",
    [
        serving(docker(), other("containerd"), PODMAN),
        serving(PODMAN),
        without_toolkit(PODMAN),
        without_toolkit(other("containerd")),
        node(),
        OF_OPERATOR,
        put(serving(), "containers.char_links", False),  # noqa: FBT003 - a fact, not a switch
        serving(selinux="enforcing"),
        serving(toolkit_version=Dotted("1.19.0")),
        serving(docker(runtimes=("runc",), configured_runtimes=(), runtime_paths={})),
        beside_a_driver_container(),
    ],
    ids=[
        "three engines",
        "Podman",
        "Podman alone",
        "containerd alone",
        "node",
        "operator",
        "CDI without links",
        "SELinux",
        "an older toolkit",
        "CDI alone",
        "a driver container",
    ],
)
def test_what_is_in_order_warns_of_nothing(host: Host) -> None:
    warned = [f.id for f in answer(host).findings if f.status == "warn" and f.area == "container"]
    assert warned == []


# --- when containers are the goal -----------------------------------------------------------------


def judged(host: Host, goal: str) -> Any:
    return judge(host, matrix(), parse_goal(goal))


@pytest.mark.parametrize(
    ("host", "check", "cause"),
    [
        (without_toolkit(BARE_DOCKER), "container.toolkit", "container.toolkit_not_configured"),
        (serving(BARE_DOCKER), "container.runtime_registered", "container.toolkit_not_configured"),
        (serving(SNAP), "container.snap", "container.docker_snap"),
        (
            serving(toolkit_config=config(no_cgroups=True)),
            "container.no_cgroups",
            "container.no_cgroups_misconfig",
        ),
    ],
)
def test_a_goal_in_a_container_fails_where_no_container_gets_a_gpu(
    host: Host, check: str, cause: str
) -> None:
    report = judged(host, "delivery=container")
    mine = [f for f in report.findings if f.id == check]
    assert [(f.status, f.cause) for f in mine] == [("fail", cause)]
    assert report.verdict == "not_ready"
    assert judged(host, "present").verdict == "ready"


def test_a_bulletin_is_a_warning_for_who_hardens() -> None:
    host = serving(toolkit_version=Dotted("1.17.3"))
    hardened = judged(host, "policy=harden")
    mine = [f for f in hardened.findings if f.id == "container.toolkit_advisory"]
    assert [(f.status, f.wanted, f.cause) for f in mine] == [
        ("warn", "1.19.1 or newer", "container.toolkit_outdated")
    ]
    assert "CVE-2025-23359" in " ".join(mine[0].why)
    assert [a.id for a in judged(host, "present").advice] == []


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        serving(toolkit_config=config(ldconfig="@/sbin/ldconfig.real")),
        serving(
            toolkit_config=config(ldconfig="@/sbin/ldconfig.real", ldconfig_there=("/sbin/ldconfig",)),
            toolkit_version=Dotted("1.13.5"),
        ),
        put(
            serving(toolkit_config=config(ldconfig="/usr/sbin/ldconfig")),
            "containers.toolkit_version",
            NOT_THERE,
        ),
    ],
    ids=["nobody looked", "an older toolkit, and its other name alone", "release not told"],
)
def test_an_ldconfig_that_nobody_can_judge_is_said_and_warns_of_nothing(host: Host) -> None:
    expect(host, "container.toolkit_mode", "pass", CONFIG, why="is not known")
    # A text that speaks of it is not ruled out by what nobody read.
    assert evaluate("toolkit_mode_unfit", case_of(host)).holds is None


def test_a_runtime_that_waits_for_a_restart_is_said_to() -> None:
    host = serving(docker(runtimes=("runc",), configured_runtimes=("nvidia",), cdi_enabled=False))
    expect(host, "container.runtime_registered", "warn", why="has not been restarted")


def test_a_default_runtime_that_is_gone_stops_every_container() -> None:
    host = without_toolkit(docker(default_runtime="nvidia"))
    expect(host, "container.runtime_binary", "warn", "docker", why="no container starts at all")


def test_the_remedy_for_a_snap_is_not_to_install_the_toolkit() -> None:
    advice = {a.id for a in answer(serving(SNAP)).advice}
    assert "container.docker_snap" in advice
    assert "container.toolkit_not_configured" not in advice


def test_a_linux_driver_in_wsl_is_named_before_a_missing_adapter() -> None:
    broken = reports(STRAY, error="Driver Not Loaded", error_code=9, gpus=(), driver_version=None)
    report = answer(put(broken, "cuda.probe", unloadable_probe()))
    assert [c.id for c in report.causes] == ["container.wsl_linux_driver_shadow"]


def test_docker_beside_a_node_without_the_toolkit_is_one_cause() -> None:
    host = without_toolkit(
        BARE_DOCKER, K3S, kubernetes=Kubernetes(distribution="k3s", has_nvidia_operator=False)
    )
    expect(host, "container.toolkit", "warn", found="docker, k3s is here")
    mine = {a.id for a in answer(host).advice if a.id.startswith("container.")}
    assert mine == {"container.toolkit_not_configured"}


def test_packages_that_are_no_driver_do_not_manage_one() -> None:
    host = having(MANAGED, {"packages": packages_of(package("nvidia-container-toolkit"))})
    expect(host, "container.driver_double_managed", "pass")
