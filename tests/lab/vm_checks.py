"""Secure Boot for real: the kernel's own refusal of a module that dkms built, and what the doctor says of it.

Run by `make lab-vm`; not collected with the others, whose namespaces have no package registry.
"""

from __future__ import annotations

import json

import pytest

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


def test_the_doctor_reads_the_same_state(machine):
    machine.bring_product()
    # An emulated processor takes its time: 32 s and more.
    done = machine.ssh("mopt-doctor check --timeout 200 --format json", check=False)
    assert done.returncode in (0, 1, 3), done.stderr
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    told = json.dumps(report["host"]).lower()
    assert '"secure_boot"' in told, sorted(report["host"])
