"""What breaks in the field, injected: each run ends with a cause that is named, and the next one completes."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from tests.lab import product
from tests.lab.capsules import packages
from tests.lab.controller import play
from tests.lab.systems import SYSTEM_FACTS
from tests.lab.test_provision import is_installed, ran

UBUNTU, ROCKY = "ubuntu-24.04", "rocky-9"
BOTH = pytest.mark.parametrize("system", [UBUNTU, ROCKY])


@pytest.fixture
def scene(make, lab, variables, core):
    """A host, its plan, and how to run it: `go()` gives the outcome."""

    class Scene:
        def __init__(self, system, *, boot=True):
            self.host = make(system, "H100", "H100", boot=boot)
            self.plan = variables(f"{system}-h100-580-open")

        def go(self, playbook="site.yml", **how):
            return play(lab, {self.host.name: self.plan}, playbook, core=core, **how)

        def fails_with(self, *words, **how):
            """A run that ends in a failure whose text has each of these."""
            outcome = self.go(**how)
            assert outcome.code != 0
            said = outcome.failures()
            for word in words:
                assert re.search(word, said, re.IGNORECASE), f"`{word}` is not in:\n{said or outcome.said}"
            return outcome

        def completes(self):
            ran(self.go())
            is_installed(self.host, self.plan)

    return Scene


@pytest.mark.slice
def test_a_mirror_that_dies_during_the_download(scene, server):
    here = scene(UBUNTU)
    before = packages(here.host)
    server.faults["*libnvidia-compute-580_*"] = "cut"
    here.fails_with("libnvidia-compute-580|fetch|download|connection")
    kept = packages(here.host)
    assert not [n for n in kept if n.startswith("libnvidia-compute")]
    assert before.items() <= kept.items()
    server.faults.clear()
    here.completes()


def test_a_mirror_that_is_gone(scene, server):
    here = scene(ROCKY)
    server.faults["developer.download.nvidia.com/*/repodata/*"] = "error"
    here.fails_with("developer.download.nvidia.com|repo|503")
    server.faults.clear()
    here.completes()


@BOTH
def test_a_repository_signed_by_a_stranger(scene, lab, server, tmp_path, system):
    """The right key on the host, and another's signature on the index."""
    here = scene(system)
    pattern = "ubuntu2404/x86_64/InRelease" if system == UBUNTU else "rhel9/x86_64/repodata/repomd.xml.asc"
    source = next(
        p
        for folder in server.folders
        for p in folder.glob(f"developer.download.nvidia.com/compute/cuda/repos/{pattern}")
    )
    top = next(folder for folder in server.folders if folder in source.parents)
    target = tmp_path / source.relative_to(top)
    target.parent.mkdir(parents=True)
    with lab.authority.signing() as environment:
        signed = source.with_name("Release") if system == UBUNTU else source.with_suffix("")
        how = ["--clearsign"] if system == UBUNTU else ["--armor", "--detach-sign"]
        subprocess.run(
            ["gpg", "--batch", "--yes", "--local-user", "stranger@example.invalid", *how, "-o", str(target), str(signed)],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
    server.overlay = tmp_path
    here.fails_with("sign|gpg|key")
    assert not [n for n in packages(here.host) if "nvidia" in n]
    server.overlay = None
    here.completes()


@pytest.mark.slice
def test_a_key_that_is_not_the_one_that_was_planned(scene, lab, server, tmp_path):
    """What the key's address gives has another fingerprint: nothing is trusted."""
    here = scene(ROCKY)
    target = tmp_path / "developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/D42D0685.pub"
    target.parent.mkdir(parents=True)
    target.write_bytes(lab.authority.public_key("stranger").read_bytes())
    server.overlay = tmp_path
    here.fails_with("fingerprint", lab.authority.fingerprint("cuda"))
    assert here.host.ssh("ls /etc/yum.repos.d/mopt-cuda.repo", check=False).returncode != 0
    server.overlay = None
    here.completes()


def test_another_process_holds_the_package_lock(scene):
    here = scene(UBUNTU)
    # As unattended-upgrades does: the front end's lock, for longer than a run waits.
    here.host.ssh(
        'nohup python3 -c \'import fcntl, time; h = open("/var/lib/dpkg/lock-frontend", "w"); fcntl.lockf(h, fcntl.LOCK_EX); '
        "time.sleep(3600)' >/dev/null 2>&1 & echo $! >/run/holder"
    )
    here.plan |= {"packages_lock_timeout_s": 3}
    here.fails_with("lock")
    here.host.ssh("kill $(cat /run/holder)")
    here.completes()


def test_a_dpkg_that_was_interrupted(scene):
    """Half-configured packages of others: named, and not repaired by force."""
    here = scene(UBUNTU)
    here.host.ssh(
        "mkdir -p /tmp/b/DEBIAN && printf 'Package: broken\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.invalid>\\n"
        "Description: x\\n' >/tmp/b/DEBIAN/control && printf '#!/bin/sh\\n[ -e /run/heal ]\\n' >/tmp/b/DEBIAN/postinst && "
        "chmod 755 /tmp/b/DEBIAN/postinst && dpkg-deb --build /tmp/b /tmp/broken.deb >/dev/null"
    )
    assert here.host.ssh("dpkg -i /tmp/broken.deb", check=False).returncode != 0
    here.fails_with("broken")
    here.host.ssh("touch /run/heal && dpkg --configure -a")
    here.completes()


def test_a_disk_that_is_full(scene):
    here = scene(ROCKY, boot=False)
    here.host.write("etc/systemd/system/small.service", SMALL)
    wants = here.host.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "small.service").symlink_to("../small.service")
    here.host.boot()
    here.host.ssh(
        "systemctl start small; dd if=/dev/zero of=/usr/lib64/fill bs=1M count=64 2>/dev/null || true"
    )
    here.fails_with("space|disk|full")
    here.host.ssh("rm /usr/lib64/fill")
    here.completes()


#: /usr/lib64, where the driver's libraries go, on a file system that holds two megabytes.
SMALL = """[Unit]
Description=a small file system for the driver's libraries
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/mount -t tmpfs -o size=2m,mode=755 small /usr/lib64
"""


def test_the_running_kernels_headers_are_gone_from_the_mirror(scene, server):
    """Rocky's mirrors drop what is old; the running kernel is."""
    here = scene(ROCKY)
    kernel = SYSTEM_FACTS[ROCKY].kernels[0]
    server.faults[f"*/kernel-devel-{kernel}.rpm"] = "missing"
    here.fails_with("kernel-devel")
    server.faults.clear()
    here.completes()


@BOTH
def test_a_module_that_does_not_build(scene, system):
    """The packages of Rocky say nothing; the run does."""
    here = scene(system)
    here.host.write("opt/lab/dkms-fail", "*\n")
    here.fails_with("dkms|module|make.log")
    assert product.check(here.host)["causes"][0]["id"] == "driver.dkms_build_failed"
    (here.host.root / "opt/lab/dkms-fail").unlink()
    here.completes()


def test_the_link_is_cut_in_the_driver_step(scene, lab, core):
    """The package run is detached from the connection: it ends well without it, and the next run finds it done."""
    here = scene(UBUNTU)
    # A build that takes its time.
    slow = '#!/bin/sh\ncase "$*" in *build*) sleep 8;; esac\nexec /usr/sbin/dkms.true "$@"\n'
    here.host.ssh(
        "apt-get update -qq && apt-get install -y -qq dkms && mv /usr/sbin/dkms /usr/sbin/dkms.true"
    )
    here.host.write("usr/sbin/dkms", slow, 0o755)
    here.host.ssh(
        'nohup sh -c \'until pgrep -f dkms.build >/dev/null; do sleep 0.2; done; pkill -f "sshd: admin"; '
        "iptables -V >/dev/null 2>&1; true' >/dev/null 2>&1 &"
    )
    outcome = here.go()
    if outcome.code == 0:
        pytest.fail("the link was not cut in time: nothing is shown")
    assert (
        "unreachable" in {e["status"] for e in outcome.events} or "connection" in outcome.failures().lower()
    )
    end = time.monotonic() + 60
    while (
        time.monotonic() < end
        and here.host.ssh("pgrep -x apt-get || pgrep -x dpkg", check=False).returncode == 0
    ):
        time.sleep(0.5)
    assert here.host.say("dpkg --audit") == ""
    here.host.ssh("mv /usr/sbin/dkms.true /usr/sbin/dkms")
    here.completes()
