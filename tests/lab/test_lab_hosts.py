"""The lab itself: what its hosts show must be what true ones show, or the tests on them prove nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import product
from tests.lab.fakegpu.plant import secure_boot
from tests.lab.guests import add_cuda, install_by_hand
from tests.lab.namespace import HIERARCHIES, INSIDE, PREFIX
from tests.lab.places import TREE
from tests.lab.systems import SYSTEM_FACTS

BOTH = pytest.mark.parametrize("system", ["ubuntu-24.04", "rocky-9"])


def driver_set(system: str, version: str) -> list[str]:
    """The packages of an open driver, each at its version."""
    branch = version.partition(".")[0]
    if system.startswith("ubuntu"):
        revision = {"580.126.20": "1ubuntu1", "580.159.04": "1ubuntu1"}[version]
        suffixed = f"nvidia-headless-{branch}-open nvidia-headless-no-dkms-{branch}-open nvidia-utils-{branch} nvidia-dkms-{branch}-open"
        suffixed += f" nvidia-kernel-source-{branch}-open nvidia-kernel-common-{branch} nvidia-firmware-{branch} libnvidia-gpucomp-{branch}"
        suffixed += f" nvidia-compute-utils-{branch} libnvidia-compute-{branch} libnvidia-cfg1-{branch}"
        return [f"{n}={version}-{revision}" for n in suffixed.split()]
    names = "nvidia-driver-cuda nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg libnvidia-gpucomp nvidia-kmod-common"
    return [
        f"{n}-3:{version}"
        for n in f"{names} nvidia-modprobe nvidia-persistenced kmod-nvidia-open-dkms".split()
    ]


def headers(system: str) -> str:
    kernel = SYSTEM_FACTS[system].kernels[0]
    return f"kernel-devel-{kernel}" if system.startswith("rocky") else f"linux-headers-{kernel}"


def install_driver(host, version="580.126.20") -> None:
    add_cuda(host)
    if host.is_rocky:
        host.ssh("dnf -y -q module enable nvidia-driver:580-open")
    install_by_hand(host, headers(host.system))
    install_by_hand(host, *driver_set(host.system, version))


@BOTH
def test_a_bare_host_boots_its_own_system_and_kernel(make, system):
    host = make(system, "H100")
    facts = SYSTEM_FACTS[system]
    assert host.say("systemctl is-system-running --wait") == "running"
    assert host.say("uname -r; cat /proc/sys/kernel/osrelease").split() == [facts.kernels[0]] * 2
    assert host.say(". /etc/os-release; echo $ID-$VERSION_ID").startswith(system.replace("-9", "-9."))
    assert "[10de:2330]" in host.say("lspci -nn")
    assert "nouveau" in host.say("lsmod")
    assert product.check(host)["verdict"] == "not_ready"


@BOTH
def test_no_route_leads_out(make, system):
    host = make(system)
    assert (
        "unreachable"
        in host.ssh("ping -c1 -W1 192.0.2.1 2>&1 || ip route get 192.0.2.1 2>&1; echo unreachable").stdout
    )
    assert host.ssh("curl -sS --max-time 3 http://192.0.2.1/", check=False).returncode != 0


@BOTH
def test_an_upgrade_is_a_mismatch_until_a_reboot(make, system):
    host = make(system, "H100", "H100")
    install_driver(host)
    host.reboot()
    ready = product.check(host)
    assert (ready["verdict"], ready["exit"]) == ("ready", 0)
    install_by_hand(
        host, *driver_set(system, "580.159.04"), "--allow-downgrades" if not host.is_rocky else ""
    )
    smi = host.ssh("nvidia-smi", check=False)
    assert smi.returncode == 18
    assert "Driver/library version mismatch" in smi.stdout
    assert host.say("cat /sys/module/nvidia/version") == "580.126.20"
    sick = product.check(host)
    assert sick["verdict"] == "not_ready"
    assert sick["causes"][0]["id"] == "driver.userspace_kernel_mismatch"
    host.reboot()
    assert host.say("cat /sys/module/nvidia/version") == "580.159.04"
    assert product.check(host)["verdict"] == "ready"


@BOTH
def test_packages_succeed_without_a_module_where_headers_are_missing(make, system):
    """The vendor's packages exit 0: what is on disk must be looked at."""
    host = make(system, "H100")
    add_cuda(host)
    if host.is_rocky:
        host.ssh("dnf -y -q module enable nvidia-driver:580-open")
        # dkms of EPEL wants some kernel-devel: the newest, which is another kernel's.
    said = install_by_hand(host, *driver_set(system, "580.126.20"))
    kernel = SYSTEM_FACTS[system].kernels[0]
    assert "skipped since the kernel headers" in said
    assert host.ssh(f"modinfo -k {kernel} nvidia", check=False).returncode != 0
    assert "added" in host.say("dkms status")


@BOTH
def test_a_failed_dkms_build_leaves_its_reason(make, system):
    host = make(system, "H100")
    host.write("opt/lab/dkms-fail", "*\n")
    add_cuda(host)
    if host.is_rocky:
        host.ssh("dnf -y -q module enable nvidia-driver:580-open")
    install_by_hand(host, headers(system))
    said = install_by_hand(host, *driver_set(system, "580.126.20"), check=False)
    assert "Bad return status for module build" in said or host.is_rocky
    assert "too few arguments" in host.say("cat /var/lib/dkms/nvidia/*/build/make.log")
    if host.is_rocky:
        assert "Complete!" in said  # the rpm hides it
    else:
        assert "nvidia-dkms-580-open" in host.say("dpkg --audit")
    assert product.check(host)["causes"][0]["id"] == "driver.dkms_build_failed"


@BOTH
def test_secure_boot_refuses_a_module_whose_key_is_unknown(make, lab, system):
    host = make(system, "H100", boot=False)
    secure_boot(host.root, is_on=True)
    host.boot()
    assert host.say("mokutil --sb-state") == "SecureBoot enabled"
    install_driver(host)
    host.reboot()
    refused = host.ssh("modprobe nvidia", check=False)
    assert refused.returncode == 1
    assert "Key was rejected by service" in refused.stderr
    assert product.check(host)["causes"][0]["id"] == "driver.module_signature_rejected"
    host.write("opt/lab/mok/enrolled", "lab Secure Boot Module Signature key\n")
    host.reboot()
    assert product.check(host)["verdict"] == "ready"


def test_a_kernel_that_is_installed_runs_after_the_reboot(make):
    host = make("ubuntu-24.04", "H100")
    install_driver(host)
    host.ssh("apt-get install -y -qq linux-image-generic linux-headers-generic")
    newer = SYSTEM_FACTS["ubuntu-24.04"].kernels[1]
    assert host.say("uname -r") != newer
    host.reboot()
    assert host.say("uname -r") == newer
    assert product.check(host)["verdict"] == "ready"


@BOTH
def test_a_flipped_byte_is_refused(make, server, tmp_path, system):
    host = make(system)
    add_cuda(host)
    package = "libnvidia-cfg1-580=580.126.20-1ubuntu1" if not host.is_rocky else "libnvidia-nscq-580.126.20"
    pattern = "libnvidia-cfg1-580_580.126.20*.deb" if not host.is_rocky else "libnvidia-nscq-580.126.20*.rpm"
    source = next(p for folder in server.folders for p in folder.rglob(pattern))
    top = next(folder for folder in server.folders if folder in source.parents)
    target = tmp_path / source.relative_to(top)
    target.parent.mkdir(parents=True)
    blob = bytearray(source.read_bytes())
    blob[-40] ^= 1
    target.write_bytes(blob)
    server.overlay = tmp_path
    done = host.ssh(f"{'dnf' if host.is_rocky else 'apt-get'} install -y {package}", check=False)
    assert done.returncode != 0
    server.overlay = None
    host.ssh(f"{'dnf clean packages -q; dnf' if host.is_rocky else 'apt-get'} install -y {package}")


def test_a_session_that_is_killed_leaves_nothing(make):
    """By -9, with a host running: no process, no control group, no mount."""
    make("ubuntu-24.04", boot=False)  # whose layers are there before the clock starts
    groups = lambda: {p for top in HIERARCHIES for p in Path(top).glob(f"{PREFIX}*")}  # noqa: E731
    mounts = lambda: Path("/proc/mounts").read_text().count("lab")  # noqa: E731
    known, mounted = groups(), mounts()
    argv = [sys.executable, "-m", "tests.lab", "up", "k=ubuntu-24.04", "--command", "echo up; sleep 300"]
    environment = {k: v for k, v in os.environ.items() if k != INSIDE}
    session = subprocess.Popen(argv, cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    assert session.stdout.readline() == "up\n"
    assert groups() - known
    session.send_signal(signal.SIGKILL)
    session.wait()
    session.stdout.close()
    end = time.monotonic() + 5
    while time.monotonic() < end and groups() - known:
        time.sleep(0.05)
    assert groups() == known
    assert mounts() == mounted
    running = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [c for c in running if b"systemd-nspawn" in c and b"\0k\0" in c]
