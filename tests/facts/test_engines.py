"""Container engines: which are there, their runtimes, and faults of their configuration."""

from __future__ import annotations

import json

import pytest

from doctor.core.host import NOT_COLLECTED, Known, Package, Packages
from doctor.core.host_container import ContainerEngine
from doctor.facts.engines import package_version, read_engines
from tests.facts.evidence import evidence

RUNTIME = "/usr/bin/nvidia-container-runtime"
DAEMON = json.dumps(
    {
        "default-runtime": "nvidia",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "features": {"cdi": True},
        "cdi-spec-dirs": ["/etc/cdi"],
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
    },
    indent=4,
)
WORD = {
    "pid_file": "/run/docker.pid",
    "ServerVersion": "28.5.1",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin"],
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
}
ABSENT = dict.fromkeys(
    [
        *("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/bin/containerd", "/usr/local/bin/containerd"),
        *("/usr/bin/podman", "/usr/bin/crio", "/usr/local/bin/crio", "/usr/local/bin/k3s"),
        *("/usr/local/bin/rke2", "/opt/rke2/bin/rke2", "/snap/bin/docker", "/run/docker.sock"),
    ]
)


def installed(**versions: str) -> Known[Packages]:
    rows = tuple(Package(name=name.replace("_", "-"), version=v) for name, v in versions.items())
    return Known(value=Packages(manager="dpkg", installed=rows), origin="command:dpkg-query")


def engines(files=None, stats=None, packages=NOT_COLLECTED, **kwargs) -> tuple[ContainerEngine, ...]:
    fact = read_engines(evidence(files, stats=stats, **kwargs), packages)
    assert isinstance(fact, Known), fact
    return fact.value


def one(files=None, stats=None, packages=NOT_COLLECTED, **kwargs) -> ContainerEngine:
    (engine,) = engines(files, stats, packages, **kwargs)
    return engine


def test_docker_by_its_configuration():
    engine = one(
        {"/etc/docker/daemon.json": DAEMON},
        {**ABSENT, "/usr/bin/dockerd": {}, "/usr/bin/docker": {}},
        installed(**{"docker.io": "28.2.2-0ubuntu1~24.04.1"}),
    )
    assert (engine.name, engine.path, engine.is_snap) == ("docker", "/usr/bin/docker", False)
    assert str(engine.version) == "28.2.2"
    assert engine.runtimes == engine.configured_runtimes == ("nvidia",)
    assert engine.runtime_paths == {"nvidia": "nvidia-container-runtime"}
    assert (engine.default_runtime, engine.cgroup_driver) == ("nvidia", "cgroupfs")
    assert (engine.cdi_enabled, engine.cdi_dirs) == (True, ("/etc/cdi",))
    assert (engine.config_path, engine.config_fault) == ("/etc/docker/daemon.json", "")
    assert engine.is_rootless is None


def test_what_the_daemon_says_goes_before_what_the_file_says():
    engine = one({"/etc/docker/daemon.json": DAEMON}, {"/usr/bin/dockerd": {}}, documents={"docker": WORD})
    assert engine.runtimes == ("io.containerd.runc.v2", "runc")
    assert engine.configured_runtimes == ("nvidia",)
    assert (engine.default_runtime, engine.cgroup_driver, str(engine.version)) == (
        "runc",
        "systemd",
        "28.5.1",
    )
    assert engine.is_rootless is False
    assert (engine.cdi_enabled, engine.cdi_dirs) == (True, ("/etc/cdi", "/var/run/cdi"))


def test_a_daemon_without_cdi_and_a_rootless_one():
    word = {k: v for k, v in WORD.items() if k != "CDISpecDirs"} | {"SecurityOptions": ["name=rootless"]}
    engine = one(stats={"/usr/bin/dockerd": {}}, documents={"docker": word})
    assert (engine.cdi_enabled, engine.cdi_dirs, engine.is_rootless) == (False, None, True)


def test_a_docker_that_only_users_run():
    stats = {**ABSENT, "/usr/bin/dockerd": {}, "/run/user/1000/docker.sock": {"kind": "socket"}}
    assert one(stats=stats).is_rootless is True
    assert one(stats={**stats, "/run/docker.sock": {"kind": "socket"}}).is_rootless is None


def test_the_snap_of_docker():
    stats = {**ABSENT, "/snap/bin/docker": "/usr/bin/snap"}
    word = {**WORD, "pid_file": "/run/snap.docker/docker.pid"}
    engine = one({"/var/snap/docker/current/config/daemon.json": "{}"}, stats, documents={"docker": word})
    assert (engine.path, engine.is_snap, str(engine.version)) == ("/snap/bin/docker", True, "28.5.1")
    assert engine.config_path == "/var/snap/docker/current/config/daemon.json"
    both = engines(
        {"/etc/docker/daemon.json": DAEMON}, {**stats, "/usr/bin/dockerd": {}}, documents={"docker": word}
    )
    assert [(e.is_snap, e.default_runtime) for e in both] == [(False, "nvidia"), (True, "runc")]


def test_a_client_alone_is_no_engine():
    assert engines(stats={**ABSENT, "/usr/bin/docker": {}}) == ()


def test_a_configuration_that_was_left_behind_is_no_engine():
    assert engines({"/etc/docker/daemon.json": DAEMON}, ABSENT) == ()
    assert one({"/etc/docker/daemon.json": DAEMON}).name == "docker"  # a tree made by hand has no `stat:`


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty, which is no JSON"),
        ('{\n  "runtimes": {\n    "nvidia": {"path": "x"},\n  }\n}\n', "line 4: no JSON"),
        ('{"runtimes": ["nvidia"]}', "`runtimes` is no object of names"),
        ("[]", "no JSON object"),
        ('{"a": 1', "no JSON"),
    ],
)
def test_a_broken_daemon_json(text, fault):
    engine = one({"/etc/docker/daemon.json": text}, {"/usr/bin/dockerd": {}})
    assert fault in engine.config_fault
    assert engine.config_path == "/etc/docker/daemon.json"
    assert engine.runtimes is None


def test_no_daemon_json_configures_nothing():
    engine = one(stats={"/usr/bin/dockerd": {}}, absent={"file:/etc/docker/daemon.json": "missing"})
    assert (engine.runtimes, engine.configured_runtimes, engine.config_path) == ((), (), "")
    unread = one(stats={"/usr/bin/dockerd": {}}, absent={"file:/etc/docker/daemon.json": "denied"})
    assert unread.runtimes is None


CONTAINERD_2 = """version = 2
disabled_plugins = ["cri"]
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
CONTAINERD_3 = f"""version = 3
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'nvidia'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
        runtime_type = 'io.containerd.runc.v2'
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
          SystemdCgroup = false
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
          BinaryName = '{RUNTIME}'
"""
DROP_IN = f"""version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "{RUNTIME}"
"""


def test_containerd_with_the_older_form():
    engine = one(
        {"/etc/containerd/config.toml": CONTAINERD_2}, packages=installed(**{"containerd.io": "1.7.28-1"})
    )
    assert (engine.name, str(engine.version)) == ("containerd", "1.7.28")
    assert (engine.runtimes, engine.default_runtime) == (("runc",), "runc")
    assert (engine.cgroup_driver, engine.cdi_enabled, engine.disabled_plugins) == ("systemd", False, ("cri",))


def test_containerd_with_the_newer_form():
    engine = one({"/etc/containerd/config.toml": CONTAINERD_3}, {"/usr/bin/containerd": {}})
    assert engine.runtimes == ("runc", "nvidia")
    assert engine.runtime_paths == {"nvidia": RUNTIME}
    assert (engine.default_runtime, engine.cgroup_driver) == ("nvidia", "cgroupfs")
    assert (engine.cdi_enabled, engine.cdi_dirs) == (True, ("/etc/cdi", "/var/run/cdi"))


def test_a_drop_in_counts_where_the_main_file_imports_it():
    files = {"/etc/containerd/config.toml": CONTAINERD_2, "/etc/containerd/conf.d/99-nvidia.toml": DROP_IN}
    engine = one(files)
    assert (engine.runtimes, engine.default_runtime) == (("runc", "nvidia"), "nvidia")
    files["/etc/containerd/config.toml"] = CONTAINERD_2.replace("imports", "#imports")
    engine = one(files)
    assert (engine.runtimes, engine.default_runtime) == (("runc",), "runc")


def test_a_broken_containerd_configuration():
    twice = CONTAINERD_2 + '[plugins."io.containerd.grpc.v1.cri".containerd]\n'
    engine = one({"/etc/containerd/config.toml": twice})
    assert engine.config_fault == "line 10: table `plugins.io.containerd.grpc.v1.cri.containerd` stands twice"


@pytest.mark.parametrize("name", ["k3s", "rke2"])
def test_the_containerd_of_k3s_and_rke2(name):
    path = f"/var/lib/rancher/{name}/agent/etc/containerd/config.toml"
    stats = {**ABSENT, f"/usr/local/bin/{name}": {}}
    engine = one({path: CONTAINERD_3, f"{path}.tmpl": '{{ template "base" . }}'}, stats)
    assert (engine.name, engine.path, engine.config_path) == (name, f"/usr/local/bin/{name}", path)
    assert (engine.runtimes, engine.config_fault) == (("runc", "nvidia"), "")
    assert one(stats=stats).runtimes is None


def test_podman_and_crio():
    podman = (
        '[engine]\nruntime = "crun"\n[engine.runtimes]\n'
        'nvidia = [\n  "/usr/bin/nvidia-container-runtime",\n]\n'
    )
    crio = (
        f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{RUNTIME}"\n'
        '[crio.runtime]\ndefault_runtime = "nvidia"\n'
    )
    files = {
        "/etc/containers/containers.conf": podman,
        "/etc/crio/crio.conf": '[crio.runtime]\ncgroup_manager = "systemd"\ndefault_runtime = "crun"\n',
        "/etc/crio/crio.conf.d/99-nvidia.conf": crio,
    }
    rows = installed(podman="4:5.4.0-1.el9", **{"cri-o": "1.32.1-1"})
    first, second = engines(files, {"/usr/bin/podman": {}, "/usr/bin/crio": {}}, rows)
    assert (first.name, str(first.version), first.default_runtime) == ("podman", "5.4.0", "crun")
    assert first.runtime_paths == {"nvidia": RUNTIME}
    assert (second.name, second.default_runtime, second.cgroup_driver) == ("crio", "nvidia", "systemd")
    assert (second.runtimes, second.runtime_paths) == (("nvidia",), {"nvidia": RUNTIME})


def test_none_there_and_none_asked():
    assert engines(stats=ABSENT) == ()
    assert read_engines(evidence(), installed(**{"docker-ce": "28"})).reason == "not_collected"


def test_versions_of_packages():
    rows = installed(a="5:28.1.1-1~ubuntu.24.04~noble", b="v2.0.4-1", c="unknown")
    assert [str(package_version(rows, (name,))) for name in "abc"] == ["28.1.1", "2.0.4", "None"]
    assert package_version(NOT_COLLECTED, ("a",)) is None
