"""Secure Boot for real: the kernel's own refusal of a module that dkms built, and what the doctor says of it.

Run by `make lab-vm`; not collected with the others, whose namespaces have no package registry.
"""

from __future__ import annotations

import base64

import pytest

from doctor.evidence.open import open_evidence
from doctor.facts.read import read_host
from tests.lab.vm import Machine, ensure_image

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def image():
    return ensure_image()


@pytest.fixture(scope="module", params=[True, False], ids=["secure-boot-on", "secure-boot-off"])
def machine(request, image):
    with Machine(image, secure_boot=request.param) as machine:
        yield machine


def test_the_firmwares_state_is_read(machine):
    word = "enabled" if machine.secure_boot else "disabled"
    assert f"SecureBoot {word}" in machine.ssh("mokutil --sb-state").stdout


def test_a_module_of_dkms_loads_only_without_secure_boot(machine):
    assert "installed" in machine.ssh("dkms status").stdout
    done = machine.ssh("modprobe labhello", check=False)
    if machine.secure_boot:
        assert done.returncode != 0
        assert "Key was rejected by service" in done.stderr
        assert "integrity" in machine.ssh("cat /sys/kernel/security/lockdown").stdout.partition("]")[0]
    else:
        assert done.returncode == 0
        assert "labhello" in machine.ssh("lsmod").stdout


def test_the_doctor_reads_the_same_state(machine, tmp_path):
    machine.bring_product()
    # An emulated processor takes its time: 32 s and more.
    machine.ssh("mopt-doctor collect --timeout 200 -o /root/bundle.tar.gz", check=False)
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(base64.b64decode(machine.ssh("base64 /root/bundle.tar.gz").stdout))
    host = read_host(open_evidence(bundle))
    assert host.kernel.secure_boot.value == ("enabled" if machine.secure_boot else "disabled")
    assert host.kernel.release.value == machine.ssh("uname -r").stdout.strip()
