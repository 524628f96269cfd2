"""The traps of the vendors' repositories: each springs on the naive way, and a plan passes it by.

The naive half gives the command of guides and scripts to the true apt and dnf. The other half lets the program
of the role carry out the plan's own transaction on the same host. README.md lists which trap is where.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab import deb
from tests.lab.authority import user_id
from tests.lab.fakegpu.build import ensure_libraries
from tests.lab.graph import deb_stubs
from tests.lab.guests import add_cuda, add_repositories, install_by_hand
from tests.lab.payload import entries, scripts
from tests.lab.systems import SYSTEM_FACTS
from tests.lab.transactions import bring, carry_out, transactions

UBUNTU, ROCKY = "ubuntu-24.04", "rocky-9"
STREAM = "dnf -y -q module enable nvidia-driver:580-open"


def version_of(host, package: str) -> str:
    if host.is_rocky:
        return host.say(f"rpm -q --qf '%{{VERSION}}' {package}")
    return host.say(f"dpkg-query -W -f '${{Version}}' {package}")


def simulated(host, *words: str) -> str:
    """What the package manager would do, or says instead."""
    tool = "dnf --assumeno" if host.is_rocky else "apt-get -s -q --no-install-recommends"
    done = host.ssh(f"{tool} install {' '.join(words)}", check=False)
    return done.stdout + done.stderr


def foreseen(host, transaction) -> dict[str, str]:
    """Name to version of what the plan's transaction would bring; it fails where that is not the plan."""
    answer = carry_out(host, transaction, "simulate")
    assert not answer["failed"], answer["failed"]
    assert not answer["deviations"], answer["deviations"]
    return {change["name"]: change["after"] for change in answer["changes"]}


def of(plan, package: str):
    """The transaction of a plan that installs this package."""
    return next(t for t in transactions(plan) if package in {p["name"] for p in t["install"]})


def at(transaction, version: str):
    """The same set at another version."""
    return {**transaction, "install": [{**p, "version": version} for p in transaction["install"]]}


@pytest.fixture
def plan(variables):
    """A whole stack on driver 580.126.20, for each system."""
    return {system: variables(f"{system}-h100-580-stack") for system in (UBUNTU, ROCKY)}


@pytest.fixture
def ubuntu(make, plan):
    host = make(UBUNTU)
    add_repositories(host, plan[UBUNTU])
    return host


@pytest.fixture
def rocky(make, plan):
    host = make(ROCKY)
    add_repositories(host, plan[ROCKY])
    return host


# --- Ubuntu -----------------------------------------------------------------------------------------


def test_the_branch_leaves_the_names_after_580(ubuntu, variables):
    assert "Unable to locate package nvidia-open-595" in simulated(ubuntu, "nvidia-open-595")
    brought = bring(ubuntu, variables("ubuntu-24.04-h100-595-open"), "driver")
    assert brought["nvidia-headless-open"] == "595.71.05-1ubuntu1"


@pytest.mark.slice
def test_a_pin_works_only_from_an_earlier_transaction(ubuntu, variables):
    both = simulated(ubuntu, "nvidia-driver-pinning-595.71.05", "nvidia-open")
    assert "Inst nvidia-open (" in both
    assert "Inst nvidia-open (595.71.05" not in both
    newer = variables("ubuntu-24.04-h100-595-open")
    first, second = transactions(newer, "driver")
    assert [p["name"] for p in first["install"]] == ["nvidia-driver-pinning-595.71.05"]
    brought = bring(ubuntu, newer, "driver")
    wrong = {n: v for n, v in brought.items() if "nvidia" in n and not v.startswith("595.71.05")}
    assert not wrong
    assert brought.keys() >= {p["name"] for p in second["install"]}


def test_the_fabric_manager_loses_its_suffix_a_branch_earlier(ubuntu, plan):
    """580: the driver's names have the branch, the fabric's have not; Ubuntu's archive has the other name."""
    said = ubuntu.say("apt-cache policy nvidia-fabricmanager-580")
    assert "developer.download.nvidia.com" not in said
    assert "archive.ubuntu.com" in said
    brought = foreseen(ubuntu, of(plan[UBUNTU], "nvidia-fabricmanager"))
    assert brought["nvidia-fabricmanager"] == "580.126.20-1"


def exact(version: str) -> list[str]:
    names = "nvidia-headless-580-open nvidia-headless-no-dkms-580-open nvidia-dkms-580-open nvidia-kernel-source-580-open"
    names += " nvidia-kernel-common-580 nvidia-firmware-580 nvidia-compute-utils-580 libnvidia-compute-580"
    names += " libnvidia-gpucomp-580 libnvidia-cfg1-580"
    return [f"{n}={version}" for n in names.split()]


def test_the_fabric_manager_drifts_from_its_driver(ubuntu, plan):
    install_by_hand(ubuntu, *exact("580.126.20-1ubuntu1"))
    assert "Inst nvidia-fabricmanager (610." in simulated(ubuntu, "nvidia-fabricmanager")
    brought = foreseen(ubuntu, of(plan[UBUNTU], "nvidia-fabricmanager"))
    assert brought["nvidia-fabricmanager"] == "580.126.20-1"


def test_a_fabric_manager_of_another_version_refuses_to_run(make):
    host = make(UBUNTU, "H100", "H100")
    add_cuda(host)
    install_by_hand(
        host, f"linux-headers-{SYSTEM_FACTS[UBUNTU].kernels[0]}", "nvidia-driver-pinning-580.126.20"
    )
    install_by_hand(host, "nvidia-headless-580-open")
    host.reboot()
    install_by_hand(host, "nvidia-fabricmanager=610.43.02-1")
    host.ssh("systemctl start nvidia-fabricmanager; sleep 0.3")
    assert host.ssh("systemctl is-active nvidia-fabricmanager", check=False).stdout.strip() == "failed"
    assert "don't match with driver version 580.126.20" in host.say("cat /var/log/fabricmanager.log")
    install_by_hand(host, "--allow-downgrades nvidia-fabricmanager=580.126.20-1")
    host.ssh("systemctl restart nvidia-fabricmanager; sleep 0.3")
    assert host.say("systemctl is-active nvidia-fabricmanager") == "active"


@pytest.fixture
def newer_twin(lab, session_server, tmp_path):
    """Ubuntu's archive with a later build of a package that NVIDIA's repository carries under the same name."""
    stubs, facts, libraries = deb_stubs(UBUNTU), SYSTEM_FACTS[UBUNTU], ensure_libraries()
    known = next(s for s in stubs if s.name == "libnvidia-compute-580")
    kept = {k: v for k, v in known.relations.items() if k != "depends"}
    version = "580.999.01-0ubuntu0.24.04.1"
    twin = replace(known, version=version, repository="archive", relations=kept)
    shelf = [deb.build(s, entries(s, facts, libraries), scripts(s, facts))
             for s in (*stubs, twin) if s.repository == "archive"]  # fmt: skip
    with lab.authority.signing() as environment:
        deb.archive_layout(
            tmp_path / "archive.ubuntu.com/ubuntu", shelf, facts.code, environment, user_id("system")
        )
    session_server.overlay = tmp_path
    yield version
    session_server.overlay = None


def test_one_name_has_two_origins(newer_twin, ubuntu, plan):
    """Without the preference the later build wins, whoever's it is, and its companions are of the other origin."""
    assert f"Inst libnvidia-compute-580 ({newer_twin}" not in simulated(ubuntu, "libnvidia-compute-580")
    ubuntu.ssh("rm /etc/apt/preferences.d/mopt-cuda")
    assert f"Inst libnvidia-compute-580 ({newer_twin}" in simulated(ubuntu, "libnvidia-compute-580")
    add_repositories(ubuntu, plan[UBUNTU])
    brought = bring(ubuntu, plan[UBUNTU], "driver")
    assert {v for n, v in brought.items() if n.startswith("libnvidia-")} == {"580.126.20-1ubuntu1"}


@pytest.mark.parametrize("name", ["cuda-drivers", "nvidia-driver", "nvidia-dkms", "nvidia-headless"])
def test_what_is_proprietary_ends_before_620(ubuntu, variables, name):
    """The newest user space has no proprietary modules: without a pin the old names cannot be resolved."""
    assert "unmet dependencies" in simulated(ubuntu, name)
    brought = bring(ubuntu, variables("ubuntu-24.04-l40s-580-proprietary"), "driver")
    assert brought["nvidia-dkms-580"] == "580.126.20-1ubuntu1"


@pytest.mark.slice
def test_the_cuda_metapackage_brings_a_driver(ubuntu, plan):
    install_by_hand(ubuntu, *exact("580.126.20-1ubuntu1"))
    # A driver of 610 is drawn in: the one that is here goes, or nothing can be resolved any more.
    swapped = simulated(ubuntu, "cuda-13-4")
    assert "Remv nvidia-headless-580-open" in swapped or "nvidia-open (>= 610.43.02)" in swapped
    brought = foreseen(ubuntu, of(plan[UBUNTU], "cuda-toolkit-13-0"))
    assert brought["cuda-toolkit-13-0"] == "13.0.2-1"
    assert not [n for n in brought if "nvidia-" in n]


def test_one_name_of_nccl_serves_every_cuda(ubuntu, plan):
    assert "+cuda13.2" in simulated(ubuntu, "libnccl2").partition("Inst libnccl2 (")[2].partition(" ")[0]
    brought = foreseen(ubuntu, of(plan[UBUNTU], "libnccl2"))
    assert {brought["libnccl2"], brought["libnccl-dev"]} == {"2.28.9-1+cuda13.0"}


def test_a_tensorrt_pinned_in_part_floats(ubuntu, plan):
    wanted = "10.13.3.9-1+cuda13.0"
    assert f"Inst libnvinfer-bin ({wanted}" not in simulated(
        ubuntu, f"libnvinfer10={wanted}", "libnvinfer-bin"
    )
    brought = foreseen(ubuntu, of(plan[UBUNTU], "libnvinfer10"))
    assert {v for n, v in brought.items() if n.startswith(("libnvinfer", "tensorrt"))} == {wanted}


def test_the_container_toolkit_is_four_packages_of_one_version(ubuntu, plan):
    alone = simulated(ubuntu, "nvidia-container-toolkit=1.19.0-1")
    assert "unmet dependencies" in alone or "E: Unable to correct problems" in alone
    brought = foreseen(ubuntu, at(of(plan[UBUNTU], "nvidia-container-toolkit"), "1.19.0-1"))
    assert len(brought) == 4
    assert set(brought.values()) == {"1.19.0-1"}


def test_nvlink5_takes_the_newest_fabric_manager(ubuntu, variables):
    said = simulated(ubuntu, "nvlink5-580", "nvidia-headless-580-open")
    assert "Inst nvidia-fabricmanager (610." in said or "unmet dependencies" in said
    brought = bring(ubuntu, variables("ubuntu-24.04-b200-595-open"), "driver", "fabric")
    assert brought["nvidia-fabricmanager"] == "595.71.05-1"
    assert brought.keys() >= {"nvlsm", "libnvsdm"}


def test_a_headless_driver_has_no_nvidia_smi(ubuntu, plan):
    install_by_hand(ubuntu, *exact("580.126.20-1ubuntu1"))
    assert ubuntu.ssh("command -v nvidia-smi", check=False).returncode != 0
    bring(ubuntu, plan[UBUNTU], "driver")
    assert ubuntu.ssh("command -v nvidia-smi", check=False).returncode == 0


def test_dcgm_4_conflicts_with_the_old_package(ubuntu):
    install_by_hand(ubuntu, "datacenter-gpu-manager")
    said = simulated(ubuntu, "datacenter-gpu-manager-4-cuda13")
    assert "Remv datacenter-gpu-manager " in said, "the old one has to go in the same transaction"


# --- Rocky ------------------------------------------------------------------------------------------


def test_the_default_stream_is_proprietary(rocky, plan):
    done = rocky.ssh("dnf --assumeno module install nvidia-driver", check=False)
    assert "kmod-nvidia-latest-dkms" in done.stdout
    assert "kmod-nvidia-open-dkms" not in done.stdout
    rocky.ssh(STREAM)
    bring(rocky, plan[ROCKY], "kernel")
    brought = foreseen(rocky, of(plan[ROCKY], "nvidia-driver-cuda"))
    assert brought["kmod-nvidia-open-dkms"] == "3:580.126.20-1.el9"
    assert "kmod-nvidia-latest-dkms" not in brought


@pytest.mark.slice
def test_without_a_stream_the_open_driver_is_filtered_out(rocky, plan):
    assert "modular filtering" in simulated(rocky, "nvidia-open")
    assert plan[ROCKY]["mopt_stages"][3]["streams"] == [{"module": "nvidia-driver", "stream": "580-open"}]
    rocky.ssh(STREAM)
    bring(rocky, plan[ROCKY], "kernel")
    assert foreseen(rocky, of(plan[ROCKY], "nvidia-driver-cuda")).keys() >= {
        "kmod-nvidia-open-dkms",
        "libnvidia-ml",
    }


def test_the_builders_repository_is_off(make, plan):
    """The full driver needs what only CRB has; a fresh Rocky has it switched off."""
    host = make(ROCKY)
    add_cuda(host)
    host.ssh("sed -i '/^\\[crb\\]/,/^$/s/enabled=1/enabled=0/' /etc/yum.repos.d/rocky.repo")
    host.ssh(STREAM)
    assert "nothing provides egl-x11" in simulated(host, "nvidia-open")
    add_repositories(host, plan[ROCKY])
    assert "nothing provides" not in simulated(host, "nvidia-open")


def test_a_stream_must_be_reset_before_another(rocky):
    """The role resets first: test_branches.py goes from 580 to 595 by it."""
    rocky.ssh(STREAM)
    refused = rocky.ssh("dnf -y module enable nvidia-driver:595-open", check=False)
    assert refused.returncode != 0
    assert "switch" in refused.stdout + refused.stderr
    rocky.ssh("dnf -y -q module reset nvidia-driver && dnf -y -q module enable nvidia-driver:595-open")


def test_the_fabric_manager_is_outside_of_the_module(rocky, plan):
    rocky.ssh(STREAM)
    assert "610." in simulated(rocky, "nvidia-fabricmanager")
    brought = foreseen(rocky, of(plan[ROCKY], "nvidia-fabricmanager"))
    assert brought["nvidia-fabricmanager"] == "580.126.20-1"


@pytest.mark.slice
def test_an_exact_driver_takes_a_newer_modprobe(rocky, plan):
    rocky.ssh(STREAM)
    old = "3:580.105.08-1.el9"
    said = simulated(rocky, f"nvidia-driver-cuda-{old} kmod-nvidia-open-dkms-{old}")
    line = next(line for line in said.splitlines() if line.split()[:1] == ["nvidia-modprobe"])
    assert old not in line
    bring(rocky, plan[ROCKY], "kernel")
    brought = foreseen(rocky, at(of(plan[ROCKY], "nvidia-modprobe"), old))
    assert brought["nvidia-modprobe"] == old


def test_an_epoch_is_part_of_a_version(rocky, plan):
    """The driver has epoch 3, DCGM 1, the fabric manager none: a version without it is another one."""
    said = rocky.say(
        "dnf -q repoquery --qf '%{name} %{epoch}' nvidia-modprobe datacenter-gpu-manager-4-core nvidia-fabricmanager | sort -u"
    )
    assert set(said.splitlines()) == {
        "nvidia-modprobe 3",
        "datacenter-gpu-manager-4-core 1",
        "nvidia-fabricmanager 0",
    }
    # By rpm's own order 595 without an epoch is older than 580 with one.
    order = "import rpm; print(rpm.labelCompare(('0', '595.71.05', '1.el9'), ('3', '580.126.20', '1.el9')))"
    assert rocky.say(f'python3 -c "{order}"') == "-1"
    rocky.ssh(STREAM)
    brought = foreseen(rocky, of(plan[ROCKY], "datacenter-gpu-manager-4-core"))
    assert brought["datacenter-gpu-manager-4-core"] == "1:4.6.0-1"


def test_the_rpm_hides_a_build_that_failed(rocky, plan):
    """dnf ends well without a module. The run does not: test_failures.py, `test_a_module_that_does_not_build`."""
    rocky.write("opt/lab/dkms-fail", "*\n")
    rocky.ssh(f"{STREAM} && dnf -y -q install kernel-devel-$(uname -r)")
    assert rocky.ssh("dnf -y install nvidia-open").returncode == 0
    assert rocky.ssh("modinfo nvidia", check=False).returncode != 0
    assert "added" in rocky.say("dkms status")
    checks = {c["kind"] for s in plan[ROCKY]["mopt_stages"] for c in s["verify"]}
    assert "module_on_disk" in checks


def test_a_question_about_a_key_that_nobody_answers_spoils_the_cache(make):
    """A first contact without -y and without a terminal: the signature is right and dnf says it is bad, for good."""
    host = make(ROCKY)
    host.write(
        "etc/yum.repos.d/cuda.repo",
        "[cuda]\nname=cuda\nbaseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/\ngpgcheck=1\n"
        "repo_gpgcheck=1\ngpgkey=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/D42D0685.pub\n",
    )
    first = host.ssh("dnf makecache </dev/null", check=False)
    assert first.returncode != 0
    host.ssh("dnf clean all -q; dnf -y makecache")
