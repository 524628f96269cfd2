"""The traps of the vendors' repositories: each springs on the naive way, and a plan passes it by.

The naive half runs the command that guides and scripts give, on the true apt and dnf. The other half is what
the lowered variables do about it, on the same host.
"""

from __future__ import annotations

import pytest

from tests.lab.guests import add_cuda, install_by_hand
from tests.lab.systems import SYSTEM_FACTS

UBUNTU, ROCKY = "ubuntu-24.04", "rocky-9"


def version_of(host, package: str) -> str:
    if host.is_rocky:
        return host.say(f"rpm -q --qf '%{{VERSION}}' {package}")
    return host.say(f"dpkg-query -W -f '${{Version}}' {package}")


def simulated(host, *words: str) -> str:
    """What apt would do, or says instead."""
    done = host.ssh(f"apt-get -s install -q --no-install-recommends {' '.join(words)}", check=False)
    return done.stdout + done.stderr


@pytest.fixture
def ubuntu(make):
    host = make(UBUNTU)
    add_cuda(host)
    return host


@pytest.fixture
def rocky(make):
    host = make(ROCKY)
    add_cuda(host)
    return host


@pytest.mark.slice
def test_the_branch_leaves_the_names_after_580(ubuntu):
    assert "Unable to locate package nvidia-open-590" in simulated(ubuntu, "nvidia-open-590")
    install_by_hand(ubuntu, "nvidia-driver-pinning-590")
    assert "Inst nvidia-open (590." in simulated(ubuntu, "nvidia-open")


@pytest.mark.slice
def test_a_pin_works_only_from_an_earlier_transaction(ubuntu):
    both = simulated(ubuntu, "nvidia-driver-pinning-595.71.05", "nvidia-open")
    assert "Inst nvidia-open (595.71.05" not in both
    install_by_hand(ubuntu, "nvidia-driver-pinning-595.71.05")
    assert "Inst nvidia-open (595.71.05" in simulated(ubuntu, "nvidia-open")


def test_the_fabric_manager_loses_its_suffix_a_branch_earlier(ubuntu):
    """580: the driver's names have the branch, the fabric's have not; Ubuntu's archive has the other name."""
    said = ubuntu.say("apt-cache policy nvidia-fabricmanager-580")
    assert "developer.download.nvidia.com" not in said
    assert "archive.ubuntu.com" in said
    assert "Inst nvidia-fabricmanager (580.126.20-1" in simulated(ubuntu, "nvidia-fabricmanager=580.126.20-1")


@pytest.mark.slice
def test_the_fabric_manager_drifts_from_its_driver(ubuntu):
    install_by_hand(
        ubuntu, "nvidia-headless-580-open=580.126.20-1ubuntu1", *exact(ubuntu, "580.126.20-1ubuntu1")
    )
    drifted = simulated(ubuntu, "nvidia-fabricmanager")
    assert "Inst nvidia-fabricmanager (610." in drifted
    install_by_hand(ubuntu, "nvidia-driver-pinning-580.126.20")
    assert "Inst nvidia-fabricmanager (580.126.20-1" in simulated(ubuntu, "nvidia-fabricmanager")


def exact(host, version: str) -> list[str]:
    names = "nvidia-headless-no-dkms-580-open nvidia-dkms-580-open nvidia-kernel-source-580-open nvidia-kernel-common-580"
    names += " nvidia-firmware-580 nvidia-compute-utils-580 libnvidia-compute-580 libnvidia-gpucomp-580 libnvidia-cfg1-580"
    return [f"{n}={version}" for n in names.split()]


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


def test_one_name_has_two_origins(ubuntu):
    said = ubuntu.say(
        "apt-cache policy nvidia-fabricmanager-580 nvidia-container-toolkit nvidia-firmware-580-server-580.173.02"
    )
    assert "archive.ubuntu.com" in said
    # The preference of 600 makes NVIDIA's repository win whatever both carry.
    assert "600 https://developer.download.nvidia.com" in ubuntu.say("apt-cache policy libnvidia-compute-580")


def test_what_is_proprietary_ends_before_620(ubuntu):
    """The newest user space has no proprietary modules: without a pin the old metapackages cannot be resolved."""
    assert "unmet dependencies" in simulated(
        ubuntu, "cuda-drivers"
    ) or "Inst cuda-drivers (620" not in simulated(ubuntu, "cuda-drivers")
    install_by_hand(ubuntu, "nvidia-driver-pinning-595.71.05")
    assert "Inst nvidia-headless (595.71.05" in simulated(ubuntu, "nvidia-headless")


@pytest.mark.slice
def test_the_cuda_metapackage_brings_a_driver(ubuntu):
    install_by_hand(
        ubuntu, "nvidia-headless-580-open=580.126.20-1ubuntu1", *exact(ubuntu, "580.126.20-1ubuntu1")
    )
    # A driver of 610 is drawn in: the one that is here goes, or nothing can be resolved any more.
    swapped = simulated(ubuntu, "cuda-13-4")
    assert "Remv nvidia-headless-580-open" in swapped or "nvidia-open (>= 610.43.02)" in swapped
    kept = simulated(ubuntu, "cuda-toolkit-13-0=13.0.2-1")
    assert "Inst cuda-toolkit-13-0 (13.0.2-1" in kept
    assert not [
        line
        for line in kept.splitlines()
        if line.startswith(("Inst", "Remv")) and "nvidia-" in line.split()[1]
    ]


def test_one_name_of_nccl_serves_every_cuda(ubuntu):
    assert "Inst libnccl2 (2.30.4-1+cuda13.2" in simulated(ubuntu, "libnccl2")
    assert "Inst libnccl2 (2.21.5-1+cuda12.4" in simulated(ubuntu, "libnccl2=2.21.5-1+cuda12.4")


def test_a_tensorrt_pinned_in_part_floats(ubuntu):
    wanted = "10.13.3.9-1+cuda13.0"
    alone = simulated(ubuntu, f"libnvinfer10={wanted}", "libnvinfer-bin")
    assert f"Inst libnvinfer-bin ({wanted}" not in alone
    whole = [
        f"{n}={wanted}"
        for n in ("libnvinfer10", "libnvinfer-plugin10", "libnvonnxparsers10", "libnvinfer-bin")
    ]
    assert f"Inst libnvinfer-bin ({wanted}" in simulated(ubuntu, *whole)


def test_the_container_toolkit_is_four_packages_of_one_version(ubuntu):
    alone = simulated(ubuntu, "nvidia-container-toolkit=1.19.0-1")
    assert "unmet dependencies" in alone or "E: Unable to correct problems" in alone
    names = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    assert "Inst nvidia-container-toolkit (1.19.0-1" in simulated(ubuntu, *(f"{n}=1.19.0-1" for n in names))


def test_nvlink5_takes_the_newest_fabric_manager(ubuntu):
    said = simulated(ubuntu, "nvlink5-580", "nvidia-headless-580-open")
    assert "Inst nvidia-fabricmanager (610." in said or "unmet dependencies" in said
    install_by_hand(ubuntu, "nvidia-driver-pinning-580.159.04")
    assert "Inst nvidia-fabricmanager (610." not in simulated(
        ubuntu, "nvlink5-580", "nvidia-headless-580-open"
    )


def test_a_headless_driver_has_no_nvidia_smi(ubuntu):
    install_by_hand(ubuntu, "nvidia-headless-580-open")
    assert ubuntu.ssh("command -v nvidia-smi", check=False).returncode != 0
    install_by_hand(ubuntu, "nvidia-utils-580")
    assert ubuntu.ssh("command -v nvidia-smi", check=False).returncode == 0


def test_dcgm_4_conflicts_with_the_old_package(ubuntu):
    install_by_hand(ubuntu, "datacenter-gpu-manager")
    said = simulated(ubuntu, "datacenter-gpu-manager-4-cuda13")
    assert "Remv datacenter-gpu-manager " in said, "the old one has to go in the same transaction"


def test_the_default_stream_is_proprietary(rocky):
    rocky.ssh("dnf -y -q install kernel-devel-$(uname -r)")
    rocky.ssh("dnf -y -q module install nvidia-driver")
    assert rocky.ssh("rpm -q kmod-nvidia-latest-dkms", check=False).returncode == 0
    assert rocky.ssh("rpm -q kmod-nvidia-open-dkms", check=False).returncode != 0


@pytest.mark.slice
def test_without_a_stream_the_open_driver_is_filtered_out(rocky):
    done = rocky.ssh("dnf -y install nvidia-open", check=False)
    assert done.returncode != 0
    assert "modular filtering" in done.stdout + done.stderr
    rocky.ssh("dnf -y -q module enable nvidia-driver:580-open && dnf -y -q install nvidia-open")
    assert version_of(rocky, "kmod-nvidia-open-dkms").startswith("580.")


def test_the_builders_repository_is_off(make):
    """The full driver needs what only CRB has; a fresh Rocky has it switched off."""
    host = make(ROCKY)
    add_cuda(host)
    host.ssh("sed -i '/^\\[crb\\]/,/^$/s/enabled=1/enabled=0/' /etc/yum.repos.d/rocky.repo")
    host.ssh("dnf -y -q module enable nvidia-driver:580-open")
    done = host.ssh("dnf -y install nvidia-open", check=False)
    assert done.returncode != 0
    assert "nothing provides egl-x11" in done.stdout + done.stderr


def test_a_stream_must_be_reset_before_another(rocky):
    rocky.ssh("dnf -y -q module enable nvidia-driver:580-open")
    refused = rocky.ssh("dnf -y module enable nvidia-driver:595-open", check=False)
    assert refused.returncode != 0
    assert "switch" in refused.stdout + refused.stderr
    rocky.ssh("dnf -y -q module reset nvidia-driver && dnf -y -q module enable nvidia-driver:595-open")


def test_the_fabric_manager_is_outside_of_the_module(rocky):
    rocky.ssh("dnf -y -q module enable nvidia-driver:580-open && dnf -y -q install nvidia-fabricmanager")
    assert version_of(rocky, "nvidia-fabricmanager").startswith("610.")
    rocky.ssh("dnf -y -q install nvidia-fabricmanager-580.126.20-1")
    assert version_of(rocky, "nvidia-fabricmanager") == "580.126.20"


@pytest.mark.slice
def test_an_exact_driver_takes_a_newer_modprobe(rocky):
    rocky.ssh("dnf -y -q module enable nvidia-driver:580-open")
    rocky.ssh("dnf -y -q install nvidia-driver-cuda-3:580.105.08 kmod-nvidia-open-dkms-3:580.105.08")
    assert version_of(rocky, "nvidia-modprobe") != "580.105.08"
    rocky.ssh("dnf -y -q install nvidia-modprobe-3:580.105.08")
    assert version_of(rocky, "nvidia-modprobe") == "580.105.08"


def test_an_epoch_is_part_of_a_version(rocky):
    """The driver has epoch 3, DCGM 1, the fabric manager none: an order by version alone is wrong."""
    said = rocky.say(
        "dnf -q repoquery --qf '%{name} %{epoch}' nvidia-modprobe datacenter-gpu-manager-4-core nvidia-fabricmanager | sort -u"
    )
    assert set(said.splitlines()) == {
        "nvidia-modprobe 3",
        "datacenter-gpu-manager-4-core 1",
        "nvidia-fabricmanager 0",
    }


def test_the_rpm_hides_a_build_that_failed(rocky):
    rocky.write("opt/lab/dkms-fail", "*\n")
    rocky.ssh("dnf -y -q module enable nvidia-driver:580-open && dnf -y -q install kernel-devel-$(uname -r)")
    assert rocky.ssh("dnf -y install nvidia-open").returncode == 0
    assert rocky.ssh("modinfo nvidia", check=False).returncode != 0
    assert "added" in rocky.say("dkms status")


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
