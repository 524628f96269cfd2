"""Engine environments on lab hosts, and what a run refuses before it changes anything: whose host it is, Secure Boot, no Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.lab import product
from tests.lab.capsules import packages
from tests.lab.controller import play
from tests.lab.fakegpu.plant import secure_boot
from tests.lab.guests import hold_gpu, install_by_hand
from tests.lab.places import TREE
from tests.lab.test_provision import is_installed, ran, unchanged
from tests.playbooks.wheels import lock, make_wheel

UBUNTU, ROCKY = "ubuntu-24.04", "rocky-9"
BOTH = pytest.mark.parametrize("system", [UBUNTU, ROCKY])


@pytest.fixture
def scene(make, lab, variables, core):
    """A host, its plan by name, and how to run it."""

    class Scene:
        def __init__(self, system, name="", *cards, boot=True):
            self.host = make(system, *(cards or ("H100", "H100")), boot=boot)
            self.plan = variables(name or f"{system}-h100-580-open")

        def go(self, playbook="site.yml", **how):
            return play(lab, {self.host.name: self.plan}, playbook, core=core, **how)

        def fails_with(self, *words, **how):
            outcome = self.go(**how)
            assert outcome.code != 0, outcome.said
            said = outcome.failures()
            for word in words:
                assert re.search(word, said, re.IGNORECASE), f"`{word}` is not in:\n{said or outcome.said}"
            return outcome

        def stage(self, name):
            return next(s for s in self.plan["mopt_stages"] if s["id"] == name)

        def only(self, *names):
            """Stages that are not named have nothing to do: what they do is shown elsewhere."""
            self.plan["mopt_stages"] = [s for s in self.plan["mopt_stages"] if s["id"] in names]

    return Scene


# --- environments -----------------------------------------------------------------------------------


def test_an_environment_from_a_wheelhouse_with_hashes(scene, tmp_path):
    """No index is asked, the hashes of the lock hold, the descriptor says where, and the undo takes only what was made."""
    here = scene(UBUNTU, "ubuntu-24.04-l40s-580-vllm", "L40S", "L40S")
    here.only("preflight", "engine")
    engine = make_wheel(tmp_path / "wheels", "vllm", "0.33.0", needs=("helper",))
    helper = make_wheel(tmp_path / "wheels", "helper", "2.1")
    (environment,) = here.stage("engine")["environments"]
    # The guest's Python is Debian's 3.11.
    environment |= {
        "python": "3.11",
        "wheelhouse": "/srv/wheels",
        "requirements": lock(engine, helper),
        "import_timeout_s": 120,
    }
    theirs = f"{environment['path']}@aaaaaaaaaaaa"
    here.host.ssh(f"mkdir -p {theirs} && touch {theirs}/precious")

    here.fails_with("/srv/wheels")
    here.host.copy_in(engine, "/srv/wheels/" + engine.name)
    here.fails_with("helper")
    here.host.copy_in(
        make_wheel(tmp_path / "other", "helper", "2.1", seed="changed on the way"),
        "/srv/wheels/" + helper.name,
    )
    here.fails_with("hash", "helper", "There is no environment")
    here.host.copy_in(helper, "/srv/wheels/" + helper.name)

    dry = ran(here.go(check=True))
    assert dry.tasks("changed") == ["environments : Environments"]
    assert here.host.ssh(f"ls {environment['path']}", check=False).returncode != 0
    ran(here.go())
    told = json.loads(here.host.say(f"cat {environment['descriptor']}"))
    assert {key: told[key] for key in ("engine", "version", "kind", "hashes")} == {
        "engine": "vllm", "version": "0.33.0", "kind": "venv", "hashes": "planned",
    }  # fmt: skip
    assert (
        here.host.ssh(
            f"{told['python']} -c 'import vllm, helper; print(vllm.__version__)'", user="admin"
        ).stdout.strip()
        == "0.33.0"
    )
    unchanged(here.go(), [here.host])
    unchanged(here.go(check=True), [here.host])

    ran(here.go("rollback.yml"))
    left = here.host.say(f"ls -d {environment['path']}* {environment['descriptor']} 2>/dev/null; true")
    assert left.split() == [theirs]
    assert here.host.say(f"ls {theirs}") == "precious"


def test_a_python_that_the_host_does_not_have_is_named(scene):
    here = scene(ROCKY, "ubuntu-24.04-l40s-580-vllm", "L40S", "L40S")
    here.plan["mopt_target"] |= {"os": "rocky-9", "manager": "dnf"}
    here.only("preflight", "engine")
    here.fails_with("no Python 3.12 on this host", "delivery=container")


# --- drain ------------------------------------------------------------------------------------------


@BOTH
def test_drain_asks_a_hook_names_who_is_there_and_ends_nobody(scene, tmp_path, system):
    here = scene(system)
    log, hook = tmp_path / "log", tmp_path / "drain"
    hook.write_text(f'#!/bin/sh\necho "$0 $*" >>{log}\n')
    hook.chmod(0o755)
    here.plan |= {"drain_hook": [str(hook), "down"], "drain_undo_hook": [str(hook), "up"]}
    ran(here.go())
    name = here.host.name
    assert log.read_text().splitlines() == [f"{hook} down {name}", f"{hook} up {name}"]
    # Nothing to do, nobody is disturbed.
    unchanged(here.go(), [here.host])
    assert len(log.read_text().splitlines()) == 2

    user = hold_gpu(here.host, 1)
    before = packages(here.host)
    here.plan["drain_hook"] = ["/bin/false"]
    here.fails_with("non-zero return code", playbook="rollback.yml")
    here.plan["drain_hook"] = [str(hook), "down"]
    here.fails_with(rf"python3 \(pid {user}, root: /dev/nvidia1\)", playbook="rollback.yml")
    assert here.host.ssh(f"kill -0 {user}", check=False).returncode == 0
    assert packages(here.host) == before
    here.host.ssh(f"kill {user}")


# --- Secure Boot ------------------------------------------------------------------------------------


@BOTH
def test_secure_boot_without_an_enrolled_key_stops_before_the_driver(scene, plan, tmp_path, system):
    here = scene(system, boot=False)
    secure_boot(here.host.root, is_on=True)
    here.host.boot()
    before = packages(here.host)
    # A plan that was made by name knows nothing of it.
    here.fails_with("driver.module_signature_rejected", "Secure Boot is on", "Nothing was changed")
    assert packages(here.host) == before

    bundle = product.collect(here.host, tmp_path / "bundle.tar.gz")
    here.plan = plan(bundle, "driver==580.126.20,kernel-modules==open", "--origin", "nvidia")
    here.fails_with(
        "driver.module_signature_rejected",
        "mokutil --import",
        *(["--origin canonical"] if system == UBUNTU else []),
    )
    assert packages(here.host) == before
    assert here.host.say("cat /opt/lab/mok/enrolled") == "", "no key was enrolled behind anybody's back"


# --- whose host it is -------------------------------------------------------------------------------

#: What is put on a host, and the cause; a plan made by name finds it there, one made from a bundle has it already.
DEB = "mkdir -p /tmp/p/DEBIAN && printf 'Package: {name}\\nVersion: {version}\\nArchitecture: all\\nMaintainer: x <x@example.invalid>\\nDescription: x\\n' >/tmp/p/DEBIAN/control && dpkg-deb --build /tmp/p /tmp/p.deb >/dev/null && dpkg -i /tmp/p.deb >/dev/null"
LIBRARY = "cp /bin/true {0}/libcuda.so.580.126.20"
SIGNS = {
    UBUNTU: {
        "a .run file": (LIBRARY.format("/usr/lib/x86_64-linux-gnu"), "rm /usr/lib/x86_64-linux-gnu/libcuda.so.*", "driver.mixed_install_sources"),
        "the graphics PPA": (DEB.format(name="libnvidia-compute-580", version="580.95.05-0ubuntu0~gpu24.04.1"), "dpkg -P libnvidia-compute-580", "plan.foreign_driver"),
        "DGX OS": ("echo DGX_NAME=DGX >/etc/dgx-release", "rm /etc/dgx-release", "plan.dgx_os"),
        "Jetson": ("echo R36 >/etc/nv_tegra_release", "rm /etc/nv_tegra_release", "plan.jetson"),
        "a driver container": (
            "mkdir -p /run/nvidia/driver/usr/lib/x86_64-linux-gnu && touch /run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20",
            "rm -r /run/nvidia/driver", "container.driver_double_managed",
        ),
        "the GPU Operator": ("mkdir -p /run/nvidia/validations && touch /run/nvidia/validations/driver-ready", "rm -r /run/nvidia/validations", "container.driver_double_managed"),
        "a vGPU guest": (
            "printf '#!/bin/sh\\necho \"    GPU Virtualization Mode\"; echo \"        Virtualization Mode               : VGPU\"\\n' >/usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi",
            "rm /usr/bin/nvidia-smi", "vgpu.wrong_driver_type",
        ),
    },
    ROCKY: {
        "a .run file": (LIBRARY.format("/usr/lib64"), "rm /usr/lib64/libcuda.so.*", "driver.mixed_install_sources"),
        "ELRepo": ("rpm -i --nodeps /root/nvidia-x11-drv.rpm", "rpm -e nvidia-x11-drv", "plan.foreign_driver"),
        "RPM Fusion": ("rpm -i --nodeps /root/akmod-nvidia.rpm", "rpm -e akmod-nvidia", "plan.foreign_driver"),
    },
}  # fmt: skip


@BOTH
def test_a_host_that_is_somebody_elses_is_refused_where_it_stands(scene, tmp_path, system):
    """Each sign on the same host in turn, met by a plan that was made by name; without one the same plan goes on."""
    here = scene(system)
    for name, version in (("nvidia-x11-drv", "580.95.05-1.el9.elrepo"), ("akmod-nvidia", "580.95.05-1.el9")):
        if system == ROCKY:
            here.host.copy_in(rpm_of(tmp_path, name, version), f"/root/{name}.rpm")
    for title, (put, away, cause) in SIGNS[system].items():
        here.host.ssh(put)
        before = packages(here.host)
        outcome = here.fails_with(re.escape(cause), "Nothing was changed", "Way out")
        assert outcome.changed(here.host.name) == 0, title
        assert packages(here.host) == before, title
        here.host.ssh(away)
    outcome = ran(here.go(check=True))
    assert not outcome.failures()


def rpm_of(folder: Path, name: str, version: str) -> Path:
    """An empty package."""
    from tests.lab.base import run

    number, _, release = version.partition("-")
    spec = folder / f"{name}.spec"
    spec.write_text(
        f"Name: {name}\nVersion: {number}\nRelease: {release}\nSummary: x\nLicense: x\nBuildArch: noarch\nAutoReqProv: no\n"
        "%description\nx\n%files\n"
    )
    run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {folder}/top", "--define", f"_rpmdir {folder}", "--define",
        "_rpmfilename %{NAME}.rpm", spec)  # fmt: skip
    return folder / f"{name}.rpm"


#: Recorded hosts that no lab host can be made into.
RECORDED = {
    "wsl2-healthy": "container.wsl_linux_driver_shadow",
    "jetson-orin": "plan.jetson",
    "vgpu-host-slices": "plan.vgpu_host",
    "driver-container": "container.driver_double_managed",
    "mixed-sources": "driver.mixed_install_sources",
}


def test_what_a_plan_refuses_the_playbook_refuses_with_its_cause(scene, plan):
    here = scene(UBUNTU)
    before = packages(here.host)
    for name, cause in RECORDED.items():
        here.plan = plan(TREE / "tests/hosts" / name, "driver==580.126.20")
        assert cause in [one["cause"] for one in here.plan["mopt_refusals"]], name
        outcome = here.fails_with(re.escape(cause), "Way out")
        assert outcome.changed(here.host.name) == 0
    assert packages(here.host) == before


# --- sites ------------------------------------------------------------------------------------------


@BOTH
def test_a_host_that_reaches_only_the_sites_mirror(scene, server, plan, tmp_path, system):
    """No vendor's name resolves; repositories and their keys come from the mirror, by options of the plan."""
    here = scene(system, "", "L40S", "L40S")
    hosts = [line for line in here.host.read("etc/hosts").splitlines() if "nvidia" not in line]
    here.host.write("etc/hosts", "\n".join(hosts) + "\n")
    assert (
        here.host.ssh("curl -sS --max-time 5 https://developer.download.nvidia.com/", check=False).returncode
        != 0
    )
    place = "ubuntu2404" if system == UBUNTU else "rhel9"
    key = "3bf863cc.pub" if system == UBUNTU else "D42D0685.pub"
    mirrored(
        server,
        tmp_path,
        f"developer.download.nvidia.com/compute/cuda/repos/{place}/x86_64",
        "mirror.example.test/cuda",
    )
    bundle = product.collect(here.host, tmp_path / "bundle.tar.gz")
    url = "https://mirror.example.test/cuda"
    options = [
        "--origin",
        "airgap",
        "--mirror",
        f"cuda={url}/",
        "--key",
        f"cuda={url}/{key}#{server.authority.fingerprint('cuda')}",
    ]
    if system == ROCKY:
        for name, where in (
            ("epel", "dl.fedoraproject.org/pub/epel/9/Everything/x86_64"),
            ("crb", "dl.rockylinux.org/pub/rocky/9/CRB/x86_64/os"),
        ):
            options += ["--mirror", f"{name}=https://{where}/"]
    here.plan = plan(bundle, "driver==580.126.20,kernel-modules==open", *options)
    assert not here.plan["mopt_refusals"], here.plan["mopt_refusals"]
    server.requests.clear()
    ran(here.go())
    assert not [
        r for r in server.requests if r.startswith(("developer.download.nvidia.com", "nvidia.github.io"))
    ]
    assert [r for r in server.requests if r.startswith("mirror.example.test/")]
    is_installed(here.host, here.plan)
    unchanged(here.go(), [here.host])


def mirrored(server, folder, source: str, target: str) -> None:
    """The vendor's folder under the mirror's name, as links."""
    top = next(top for top in server.folders if (top / source).is_dir())
    place = folder / "mirror" / target
    place.parent.mkdir(parents=True)
    place.symlink_to(top / source, target_is_directory=True)
    server.overlay = folder / "mirror"


@BOTH
def test_automatic_updates_pass_the_stack_by_and_stay_switched_on(scene, system):
    """Newer packages are there, of the driver and of others: what updates by itself moves the others alone."""
    here = scene(system)
    tool = "unattended-upgrades" if system == UBUNTU else "dnf-automatic"
    here.host.ssh("apt-get update -qq" if system == UBUNTU else "true")
    install_by_hand(here.host, tool)
    before = packages(here.host)[tool]
    ran(here.go())
    driver = {n: v for n, v in packages(here.host).items() if "nvidia" in n}
    assert packages(here.host)[tool] == before
    if system == UBUNTU:
        fenced = here.host.say(
            "apt-config dump Unattended-Upgrade::Package-Blacklist --format '%v%n'"
        ).split()
        # unattended-upgrades takes each for a pattern at the start of a name.
        assert not [n for n in driver if not any(re.match(word, n) for word in fenced)]
        here.host.ssh("DEBIAN_FRONTEND=noninteractive apt-get -y -q dist-upgrade")
    else:
        offered = here.host.say(
            "dnf -q repoquery --disableexcludes=all --upgrades --disableplugin=versionlock 2>/dev/null; true"
        )
        assert "nvidia" in offered, "nothing newer is offered: nothing is shown"
        here.host.ssh("dnf -y -q upgrade")
    assert {n: v for n, v in packages(here.host).items() if n in driver} == driver
    ready = product.check(here.host)
    assert ready["verdict"] == "ready", ready["causes"]


# --- a host without a Python --------------------------------------------------------------------------

#: Rocky 8 as it is installed: dnf's own Python under another name, and none that modules run under.
HIDE = (
    "mkdir -p /usr/libexec/own && mv /usr/bin/python3.11 /usr/libexec/own/python3.11 && rm -f /usr/bin/python3 /usr/libexec/platform-python && "
    "ln -s own/python3.11 /usr/libexec/platform-python && for f in /usr/bin/dnf /usr/bin/dnf-3; do [ -f $f ] && "
    "sed -i '1s|.*|#!/usr/libexec/platform-python|' $f; done; true"
)
BRING = "#!/bin/sh\n# What `dnf install python3.12` leaves.\nln -s /usr/libexec/own/python3.11 /usr/bin/python3.11\n"


def test_a_host_without_a_python_gets_the_one_that_is_named(scene):
    here = scene(ROCKY)
    here.only("preflight", "repositories")
    here.host.write("usr/local/sbin/bring-python", BRING, 0o755)
    here.host.ssh(HIDE)
    assert here.host.ssh("command -v python3 python3.11", check=False).returncode != 0
    here.fails_with("No Python among", "bootstrap_install")
    assert here.host.ssh("ls /etc/yum.repos.d/mopt-cuda.repo", check=False).returncode != 0
    here.plan["bootstrap_install"] = ["/usr/local/sbin/bring-python"]
    outcome = ran(here.go())
    assert "bootstrap : Install the one that is named" in outcome.tasks("changed")
    unchanged(here.go(), [here.host])
