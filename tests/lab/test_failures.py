"""What breaks in the field, injected: each run ends with a cause that is named, and the next one completes.

A cause is named where the text that the operator sees has its id, and `mopt-doctor explain` has a page of it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab import product, rpm
from tests.lab.authority import user_id
from tests.lab.capsules import packages
from tests.lab.controller import play
from tests.lab.graph_rpm import module_streams, rpm_stubs
from tests.lab.systems import SYSTEM_FACTS
from tests.lab.test_provision import driver_of, planned, ran

UBUNTU, ROCKY = "ubuntu-24.04", "rocky-9"
BOTH = pytest.mark.parametrize("system", [UBUNTU, ROCKY])
CUDA = "developer.download.nvidia.com/compute/cuda/repos"


def explain(*arguments: str) -> str:
    """What `mopt-doctor explain` answers, on the controller."""
    done = product.here("explain", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def scene(make, lab, variables, core):
    """A host, its plan, and how to run it: `go()` gives the outcome."""

    class Scene:
        def __init__(self, system, *, boot=True):
            self.host = make(system, "H100", "H100", boot=boot)
            self.plan = variables(f"{system}-h100-580-open")

        def go(self, playbook="site.yml", **how):
            return play(lab, {self.host.name: self.plan}, playbook, core=core, **how)

        def fails_with(self, cause, *words):
            """A run that ends in a failure which names this cause, and whose text has each of these."""
            outcome = self.go()
            said = outcome.failures()
            assert outcome.code != 0, outcome.said
            assert f"{cause}: " in said, said or outcome.said
            assert explain(cause).startswith(f"# {cause}\n")
            for word in words:
                assert word in said, said
            return outcome

        def completes(self):
            ran(self.go())
            here = packages(self.host)
            for package, version in planned(self.plan).items():
                assert package in here, f"{package} of the plan is not installed"
                assert not version or here[package] == version, (package, here[package], version)
            assert self.host.say("cat /sys/module/nvidia/version") == driver_of(self.plan)
            report = product.check(self.host)
            assert (report["verdict"], report["exit"]) == ("ready", 0), report["causes"]

    return Scene


def served(server, place: str) -> tuple[Path, Path]:
    """The folder below which a vendor's file is served, and the file."""
    top = next(folder for folder in server.folders if (folder / place).exists())
    return top, top / place


@pytest.mark.slice
def test_a_mirror_that_dies_during_the_download(scene, server):
    here = scene(UBUNTU)
    before = packages(here.host)
    server.faults["*libnvidia-compute-580_*"] = "cut"
    here.fails_with("prov.mirror_unreachable", "libnvidia-compute-580")
    kept = packages(here.host)
    assert not [n for n in kept if n.startswith("libnvidia-compute")]
    assert before.items() <= kept.items()
    server.faults.clear()
    here.completes()


@BOTH
def test_a_mirror_that_is_gone(scene, server, system):
    here = scene(system)
    server.faults["developer.download.nvidia.com/*/repodata/*"] = "error"
    server.faults["developer.download.nvidia.com/*Release"] = "error"
    here.fails_with(
        "prov.mirror_unreachable", "developer.download.nvidia.com" if system == UBUNTU else "mopt-cuda"
    )
    server.faults.clear()
    here.completes()


def test_an_index_signed_by_a_stranger(scene, lab, server, tmp_path):
    """The right key on the host, and another's signature on the index, which is what apt checks."""
    here = scene(UBUNTU)
    top, release = served(server, f"{CUDA}/ubuntu2404/x86_64/Release")
    target = tmp_path / release.relative_to(top).with_name("InRelease")
    target.parent.mkdir(parents=True)
    with lab.authority.signing() as environment:
        subprocess.run(
            ["gpg", "--batch", "--yes", "--local-user", user_id("stranger"), "--clearsign", "-o", str(target), str(release)],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
    server.overlay = tmp_path
    here.fails_with("prov.repo_key", "developer.download.nvidia.com")
    assert not [n for n in packages(here.host) if "nvidia" in n]
    server.overlay = None
    here.completes()


def test_a_package_signed_by_a_stranger(scene, lab, server, tmp_path):
    """An index that is right, and in it a package with another's signature, which is what dnf checks."""
    here = scene(ROCKY)
    top, cuda = served(server, f"{CUDA}/rhel9/x86_64")
    folder = tmp_path / cuda.relative_to(top)
    shutil.copytree(cuda, folder)
    facts = SYSTEM_FACTS[ROCKY]
    with lab.authority.signing() as environment:
        rpm.sign([next(folder.glob("nvidia-driver-cuda-580.126.20-*"))], environment, user_id("stranger"))
        rpm.index(
            folder, environment, user_id("cuda"), module_streams(facts, rpm_stubs(ROCKY)), "latest-dkms"
        )
    server.overlay = tmp_path
    before = packages(here.host)
    here.fails_with("prov.repo_key", "nvidia-driver-cuda")
    assert not [n for n in packages(here.host).keys() - before.keys() if "nvidia" in n]
    server.overlay = None
    here.completes()


@pytest.mark.slice
def test_a_key_that_is_not_the_one_that_was_planned(scene, lab, server, tmp_path):
    """What the key's address gives has another fingerprint: nothing is trusted."""
    here = scene(ROCKY)
    target = tmp_path / f"{CUDA}/rhel9/x86_64/D42D0685.pub"
    target.parent.mkdir(parents=True)
    target.write_bytes(lab.authority.public_key("stranger").read_bytes())
    server.overlay = tmp_path
    here.fails_with("prov.repo_key", "fingerprint", lab.authority.fingerprint("cuda"))
    assert here.host.ssh("ls /etc/yum.repos.d/mopt-cuda.repo", check=False).returncode != 0
    server.overlay = None
    here.completes()


#: Holds a lock as a package manager does, for longer than a run waits: dpkg's front end, dnf's own transaction lock.
HOLDERS = {
    UBUNTU: 'h = open("/var/lib/dpkg/lock-frontend", "w"); fcntl.lockf(h, fcntl.LOCK_EX)',
    ROCKY: 'import dnf.lock; dnf.lock.build_rpmdb_lock("/var/lib/dnf", True).__enter__()',
}


@BOTH
def test_another_process_holds_the_package_lock(scene, system):
    here = scene(system)
    here.host.write("root/hold.py", f"import fcntl, time\n{HOLDERS[system]}\ntime.sleep(3600)\n")
    here.host.ssh("systemd-run --quiet --unit=holder /usr/bin/python3 /root/hold.py; sleep 2")
    assert here.host.say("systemctl is-active holder") == "active"
    here.plan |= {"packages_lock_timeout_s": 3}
    here.fails_with("prov.package_lock")
    here.host.ssh("systemctl stop holder")
    here.plan.pop("packages_lock_timeout_s")
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
    here.fails_with("prov.packages_half_configured", "broken")
    here.host.ssh("touch /run/heal && dpkg --configure -a")
    here.completes()


#: Where a package manager needs room first, on a file system of its own that outlives the guest's reboots.
SMALL = {UBUNTU: "var/cache/apt/archives", ROCKY: "usr/src"}


@BOTH
def test_a_disk_that_is_full(scene, system):
    here = scene(system, boot=False)
    place = here.host.root / SMALL[system]
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=755", "small", place], check=True)
    here.host.boot()
    fill = f"/{SMALL[system]}/fill"
    here.host.ssh(f"dd if=/dev/zero of={fill} bs=64k 2>/dev/null || true")
    here.fails_with("prov.disk_full")
    here.host.ssh(f"rm {fill}")
    here.completes()


def test_the_running_kernels_headers_are_gone_from_the_mirror(scene, lab, server, tmp_path):
    """Rocky's mirrors drop what is old; the running kernel is. dnf would call it a package that does not exist."""
    here = scene(ROCKY)
    top, appstream = served(server, "dl.rockylinux.org/pub/rocky/9/AppStream/x86_64/os")
    folder = tmp_path / appstream.relative_to(top)
    shutil.copytree(appstream, folder)
    kernel = SYSTEM_FACTS[ROCKY].kernels[0]
    for name in ("kernel-devel", "kernel-devel-matched"):
        (folder / f"{name}-{kernel}.rpm").unlink()
    with lab.authority.signing() as environment:
        rpm.index(folder, environment, user_id("system"))
    server.overlay = tmp_path
    here.fails_with("driver.headers_missing", f"kernel-devel-{kernel.removesuffix('.x86_64')}")
    server.overlay = None
    here.completes()


@BOTH
def test_a_module_that_does_not_build(scene, system):
    """The packages of Rocky say nothing; the run does."""
    here = scene(system)
    here.host.write("opt/lab/dkms-fail", "*\n")
    here.fails_with("driver.dkms_build_failed")
    assert product.check(here.host)["causes"][0]["id"] == "driver.dkms_build_failed"
    (here.host.root / "opt/lab/dkms-fail").unlink()
    here.completes()


#: The driver's build itself cuts the link, once, and then takes its time.
CUT = """#!/bin/sh
exec 3>&1 >/dev/null 2>&1
case "$*" in *build*|*autoinstall*)
  if ls -d /usr/src/nvidia-* && mkdir /var/tmp/cut; then pkill -KILL -f '^sshd: admin'; sleep 8; fi;;
esac
exec /usr/sbin/dkms.true "$@" >&3 2>&3
"""


def test_the_link_is_cut_in_the_driver_step(scene):
    """The package run is apart from the connection: it ends well without it, and the next run finds it done."""
    here = scene(UBUNTU)
    here.host.ssh(
        "apt-get update -qq && apt-get install -y -qq dkms && mv /usr/sbin/dkms /usr/sbin/dkms.true"
    )
    here.host.write("usr/sbin/dkms", CUT, 0o755)
    outcome = here.go()
    assert outcome.code != 0, "the link was not cut: nothing is shown"
    assert outcome.tasks("unreachable"), outcome.failures()
    assert json.loads(explain("--json", outcome.failures()))["causes"][0]["id"] == "prov.link_lost"
    units = "systemctl list-units --no-legend --state=active,activating 'mopt-transaction-*'"
    end = time.monotonic() + 300
    while time.monotonic() < end and here.host.say(units):
        time.sleep(0.5)
    assert here.host.say("dpkg --audit") == ""
    assert "nvidia-dkms-580-open" in packages(here.host)
    assert here.host.say("modinfo -F version nvidia") == driver_of(here.plan), "what was built after the cut"
    here.host.ssh("mv /usr/sbin/dkms.true /usr/sbin/dkms")
    here.completes()
