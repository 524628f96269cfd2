"""Container engines on lab hosts: wired beside what a site has there already, CDI of the driver that runs, and drain before all that."""

from __future__ import annotations

import copy
import json
import re

import pytest

from tests.lab import product
from tests.lab.controller import play
from tests.lab.guests import hold_gpu, install_by_hand
from tests.lab.test_provision import ran, unchanged

UBUNTU, ROCKY = "ubuntu-24.04", "rocky-9"

DAEMON = '{"log-driver": "journald", "runtimes": {"own": {"path": "/opt/own"}}}\n'
CONTAINERD = {
    "v2": """# the site's own
version = 2

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
""",
    "v3": """version = 3

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
""",
    "v1": "root = '/var/lib/containerd'\n",
}
CRIO = '[crio.runtime]\ndefault_runtime = "crun"\n\n[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n'
#: Specifications of toolkit 1.19 and newer are read from 5.1 on.
PODMAN = "#!/bin/sh\necho podman version 5.4.0\n"
UNIT = "[Unit]\nDescription=crio\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

DRIVER = "driver==580.126.20,kernel-modules==open"


@pytest.fixture
def scene(make, lab, plan, core, tmp_path):
    """A host, planned from what it is, and played."""

    class Scene:
        def __init__(self, system, *cards):
            self.host = make(system, *(cards or ("L40S", "L40S")))
            self.plan = None

        def planned(self, goal, *arguments):
            bundle = product.collect(self.host, tmp_path / "bundle.tar.gz")
            self.plan = plan(bundle, goal, *arguments)
            assert not self.plan["mopt_refusals"], self.plan["mopt_refusals"]
            return self.plan

        def stage(self, name):
            return next(s for s in self.plan["mopt_stages"] if s["id"] == name)

        def go(self, playbook="site.yml", **how):
            return play(lab, {self.host.name: self.plan}, playbook, core=core, **how)

        def fails_with(self, *words, **how):
            outcome = self.go(**how)
            assert outcome.code != 0, outcome.said
            said = outcome.failures()
            for word in words:
                assert re.search(word, said, re.IGNORECASE), f"`{word}` is not in:\n{said or outcome.said}"
            return outcome

        def repeats(self):
            unchanged(self.go(), [self.host])
            unchanged(self.go(check=True), [self.host])

        def pid(self, unit):
            return self.host.say(f"systemctl show -p MainPID --value {unit}")

        def runtimes(self, engine):
            """What the engine loaded when it started."""
            return json.loads(self.host.say(f"cat /run/lab/{engine}.runtimes"))

    return Scene


def with_engines(host) -> None:
    """Docker, containerd with a configuration of its own, CRI-O and Podman, as a site has them."""
    host.ssh("apt-get update -qq")
    install_by_hand(host, "docker.io", "containerd", "podman")
    host.write("usr/bin/podman", PODMAN, 0o755)
    host.write("etc/docker/daemon.json", DAEMON)
    host.write("etc/containerd/config.toml", CONTAINERD["v2"])
    host.write("etc/crio/crio.conf", CRIO)
    host.write("usr/bin/crio", "#!/bin/sh\necho crio version 1.31.0\n", 0o755)
    host.write("etc/systemd/system/crio.service", UNIT)
    # Guides of some years ago left these.
    host.write("etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n")
    host.write("usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}\n")
    host.ssh("systemctl daemon-reload; systemctl enable -q --now docker containerd crio")


def files_of(host) -> dict[str, str]:
    """Everything below the engines' folders."""
    names = host.say(
        "find /etc/docker /etc/containerd /etc/crio /etc/cdi /usr/share/containers -type f 2>/dev/null; true"
    )
    return {name: host.read(name) for name in names.split()}


def test_every_engine_of_a_site_is_wired_and_brought_back(scene):
    here = scene(UBUNTU)
    with_engines(here.host)
    before = files_of(here.host)
    plan = here.planned(f"{DRIVER},container-toolkit==1.20.0")
    assert {one["engine"] for one in here.stage("container")["containers"]} == {
        "docker",
        "containerd",
        "crio",
        "podman",
    }

    docker = here.pid("docker")
    ran(here.go())
    assert here.pid("docker") != docker
    assert here.runtimes("docker") == {"own": "/opt/own", "nvidia": "nvidia-container-runtime"}
    assert json.loads(here.host.read("etc/docker/daemon.json"))["log-driver"] == "journald"
    assert here.runtimes("containerd") == {"runc": "", "nvidia": "/usr/bin/nvidia-container-runtime"}
    assert "SystemdCgroup = true" in here.host.read("etc/containerd/conf.d/99-nvidia.toml")
    assert here.host.read("etc/crio/crio.conf") == CRIO
    assert "nvidia-container-runtime" in here.host.read("etc/crio/crio.conf.d/99-nvidia.toml")
    spec = here.host.say("cat /var/run/cdi/nvidia.yaml")
    assert "/dev/nvidia0" in spec
    assert "/dev/nvidia1" in spec
    assert "libcuda.so.580.126.20" in spec
    assert (
        here.host.ssh("ls /etc/cdi/nvidia.yaml /usr/share/containers/oci/hooks.d/*", check=False).returncode
        != 0
    )
    ready = product.check(here.host)
    assert ready["verdict"] == "ready", ready["causes"]
    here.repeats()

    never_restarted_into_a_fault(here)
    drained_before_a_restart(here)

    # A new driver, the toolkit stays: what podman reads follows, though nobody asked for it.
    here.planned("driver==580.159.04,kernel-modules==open")
    ran(here.go())
    assert "libcuda.so.580.159.04" in here.host.say("cat /var/run/cdi/nvidia.yaml")
    here.repeats()
    # Nor does it outlive a file that somebody wrote again from an old template.
    here.host.ssh("sed -i 's/580.159.04/580.126.20/' /var/run/cdi/nvidia.yaml")
    outcome = ran(here.go())
    assert outcome.tasks("changed") == ["containers : Wire"]
    assert "libcuda.so.580.159.04" in here.host.say("cat /var/run/cdi/nvidia.yaml")

    ran(here.go("rollback.yml"))
    here.plan = plan
    ran(here.go("rollback.yml"))
    assert files_of(here.host) == before


def never_restarted_into_a_fault(here) -> None:
    """A daemon.json that Docker could not read either, and one that parses and that the daemon would refuse."""
    merged, docker = here.host.read("etc/docker/daemon.json"), here.pid("docker")
    for text, words in (('{"log-driver": }', "daemon.json"), ('{"no-such-option": true}', "no-such-option")):
        here.host.write("etc/docker/daemon.json", text)
        here.fails_with("container.engine_config_unreadable", words)
        assert here.host.read("etc/docker/daemon.json") == text
        assert here.pid("docker") == docker
    here.host.write("etc/docker/daemon.json", merged)


def drained_before_a_restart(here) -> None:
    """Docker's restart ends what runs in its containers: whoever uses a GPU is asked about first, and nobody is ended."""
    merged = here.host.read("etc/docker/daemon.json")
    here.host.write("etc/docker/daemon.json", DAEMON)
    user = hold_gpu(here.host, 0)
    docker = here.pid("docker")
    dry = ran(here.go(check=True))
    assert "drain : Say who would stand in the way" in dry.tasks("ok")
    here.fails_with(rf"python3 \(pid {user}, root: /dev/nvidia0\)", "none of them is ended", "drain_hook")
    assert here.host.ssh(f"kill -0 {user}", check=False).returncode == 0
    assert here.pid("docker") == docker
    assert here.host.read("etc/docker/daemon.json") == DAEMON
    here.host.ssh(f"kill {user}")
    ran(here.go())
    assert here.host.read("etc/docker/daemon.json") == merged


def test_containerd_reads_what_was_written_whatever_version_its_file_has(scene):
    """The tool writes a file beside a configuration of version 1, too, and containerd never reads that one."""
    here = scene(UBUNTU)
    here.host.ssh("apt-get update -qq")
    install_by_hand(here.host, "containerd")
    here.host.write("etc/containerd/config.toml", CONTAINERD["v3"])
    here.planned(f"{DRIVER},container-toolkit==1.20.0")
    first = copy.deepcopy(here.plan)
    for version in ("v3", "v1"):
        here.host.ssh("rm -rf /etc/containerd/conf.d")
        here.host.write("etc/containerd/config.toml", CONTAINERD[version])
        here.plan = first
        ran(here.go())
        assert here.runtimes("containerd")["nvidia"] == "/usr/bin/nvidia-container-runtime", version
        here.repeats()

    here.host.write("etc/containerd/config.toml", "version = \n")
    here.fails_with("container.engine_config_unreadable")


def test_podman_on_a_toolkit_that_writes_nothing_by_itself(scene):
    """Before 1.18 no unit writes the file at a boot: it lies where it lasts, until the newer toolkit takes over."""
    here = scene(ROCKY)
    install_by_hand(here.host, "podman")
    here.host.write("usr/bin/podman", PODMAN, 0o755)
    here.planned(f"{DRIVER},container-toolkit==1.17.8")
    ran(here.go())
    here.host.reboot()
    assert "libcuda.so.580.126.20" in here.host.say("cat /etc/cdi/nvidia.yaml")
    here.repeats()

    here.planned(f"{DRIVER},container-toolkit==1.20.0")
    ran(here.go())
    assert here.host.ssh("ls /etc/cdi/nvidia.yaml", check=False).returncode != 0
    here.host.reboot()
    assert "libcuda.so.580.126.20" in here.host.say("cat /var/run/cdi/nvidia.yaml")
    ready = product.check(here.host)
    assert ready["verdict"] == "ready", ready["causes"]
    here.repeats()
    ran(here.go("rollback.yml"))
    assert "libcuda.so.580.126.20" in here.host.say("cat /etc/cdi/nvidia.yaml")
