"""Where packages come from: entries that conflict, keys, locks, streams, a reboot that is due."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import Absent, Host
from doctor.core.host_machine import LockHolder, ModuleStream
from tests.core.hosts import (
    answer,
    driver_packages,
    expect,
    healthy,
    in_container,
    known_of,
    no_driver,
    put,
    without,
)
from tests.core.pairs_machine import CUDA, KEYRING, OLDER, entry, sources

CONFLICT = sources(entry(), entry(OLDER, signed_by=""))
HELD = LockHolder(lock="/var/lib/dpkg/lock-frontend", process="unattended-upgr", pid=7)


def stream(name: str, state: str = "enabled", module: str = "nvidia-driver") -> Host:
    return put(healthy(), "machine.module_streams", (ModuleStream(module=module, stream=name, state=state),))


CASES: dict[str, tuple[str, Host, Status, str, str]] = {
    "one entry": ("system.repositories", sources(entry()), "pass", "", "1 read"),
    "no entry": ("system.repositories", sources(), "pass", "", "none"),
    "two keys for one repository": (
        "system.repositories",
        CONFLICT,
        "warn",
        f"{CUDA.removeprefix('https://')} /",
        "Signed-By",
    ),
    "the same entry twice": ("system.repositories", sources(entry(), entry(OLDER)), "pass", "", "2 read"),
    "keys there": ("system.repository_keys", sources(entry(key_present=True)), "pass", "", "is there"),
    "no key named": ("system.repository_keys", sources(entry(signed_by="")), "skip", "", "no entry names"),
    "key missing": (
        "system.repository_keys",
        sources(entry(key_present=False)),
        "warn",
        "/etc/apt/sources.list.d/cuda.list",
        KEYRING,
    ),
    "key of a stranger missing": (
        "system.repository_keys",
        sources(entry(uri="https://repo.example.org/debian", key_present=False)),
        "pass",
        "",
        "",
    ),
    "free": ("system.package_lock", put(healthy(), "machine.package_locks", ()), "pass", "", "nobody"),
    "held": (
        "system.package_lock",
        put(healthy(), "machine.package_locks", (HELD,)),
        "pass",
        "",
        "unattended-upgr",
    ),
    "no stream": (
        "system.module_stream",
        put(healthy(), "machine.module_streams", ()),
        "pass",
        "",
        "no stream",
    ),
    "stream of the branch": ("system.module_stream", stream("580-open"), "pass", "580-open", "580-open"),
    "stream of another branch": (
        "system.module_stream",
        stream("570-dkms"),
        "warn",
        "570-dkms",
        "driver R580",
    ),
    "stream that follows the newest": (
        "system.module_stream",
        stream("open-dkms"),
        "pass",
        "open-dkms",
        "open-dkms",
    ),
    "stream that is off": ("system.module_stream", stream("570-dkms", "disabled"), "pass", "", "no stream"),
    "stream of another module": (
        "system.module_stream",
        stream("10", module="postgresql"),
        "pass",
        "",
        "no stream",
    ),
    "no dnf": ("system.module_stream", healthy(), "skip", "", "no streams here"),
    "a stream, and no driver yet": (
        "system.module_stream",
        put(no_driver(), "machine.module_streams", stream("580-open").machine.module_streams),
        "skip",
        "580-open",
        "no driver yet",
    ),
    "a stream, and the driver was not read": (
        "system.module_stream",
        without(
            stream("580-open"),
            ["driver.kernel_version", "driver.userspace_version", "kernel.installed"],
            "denied",
        ),
        "unknown",
        "580-open",
        "needs root",
    ),
    "the mark was not asked for": (
        "system.reboot_required",
        put(healthy(), "packages", driver_packages(reboot_required=Absent(reason="not_collected"))),
        "skip",
        "",
        "not asked",
    ),
    "the mark could not be read": (
        "system.reboot_required",
        put(healthy(), "packages", driver_packages(reboot_required=Absent(reason="denied"))),
        "unknown",
        "",
        "needs root",
    ),
    "no reboot due": ("system.reboot_required", healthy(), "pass", "", "none is due"),
    "a reboot due": (
        "system.reboot_required",
        put(healthy(), "packages", driver_packages(reboot_required=known_of(value=True))),
        "pass",
        "",
        "a reboot is due",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    check_id, host, status, subject, words = CASES[name]
    expect(host, check_id, status, subject, words)


NEEDED = {
    "system.repositories": "machine.repositories",
    "system.repository_keys": "machine.repositories",
    "system.package_lock": "machine.package_locks",
    "system.module_stream": "machine.module_streams",
    "system.reboot_required": "packages",
}


@pytest.mark.parametrize("check_id", NEEDED)
def test_without_its_fact_it_is_not_known(check_id: str) -> None:
    expect(without(healthy(), [NEEDED[check_id]], "denied"), check_id, "unknown", "")


@pytest.mark.parametrize("check_id", NEEDED)
def test_it_does_not_apply_inside_a_container(check_id: str) -> None:
    expect(in_container(), check_id, "skip", "")


def test_apt_that_reads_nothing_is_advice_and_no_verdict() -> None:
    report = answer(CONFLICT)
    assert (report.verdict, [a.id for a in report.advice]) == ("ready", ["prov.repo_duplicate_entry"])
    remedy = report.advice[0].remedy
    assert remedy is not None
    assert "keyring package" in remedy.summary
