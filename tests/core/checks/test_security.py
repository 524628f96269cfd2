"""Checks of what could change or open the host: updates, unsigned sources, bulletins, nodes, keys."""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.goal import parse_goal
from doctor.core.host import Absent, DeviceNode, Host, PackageChange
from doctor.core.judge import judge
from doctor.core.versions import Dotted
from tests.core.hosts import (
    H100,
    NOT_THERE,
    REASONS,
    RTX_5090,
    answer,
    devices,
    driver_packages,
    expect,
    healthy,
    in_container,
    in_wsl2,
    known_of,
    matrix,
    no_driver,
    package,
    packages_of,
    put,
    without,
)
from tests.core.pairs_machine import entry, sources

ON = {"automatic_updates": known_of(value=True)}
UNREAD = Absent(reason="denied")


def updating(**fields: object) -> Host:
    return put(healthy(), "packages", driver_packages(**{**ON, **fields}))


UPDATES: dict[str, tuple[Host, Status, str]] = {
    "off": (healthy(), "pass", "nothing updates by itself"),
    "on, nothing fences the driver": (updating(), "warn", "nothing excludes or holds the driver"),
    "on, excluded": (
        updating(automatic_update_exclusions=known_of(("libnvidia-", "nvidia-"))),
        "pass",
        "excluded",
    ),
    "on, held": (updating(holds=known_of(("nvidia-driver-580-open",))), "pass", "held"),
    "on, locked with an epoch": (
        updating(holds=known_of(("3:nvidia-driver-580.178.04-1.el9.*",))),
        "pass",
        "held",
    ),
    "on, only the container toolkit is held": (
        updating(holds=known_of(("nvidia-container-toolkit", "libnvidia-container1"))),
        "warn",
        "nothing excludes",
    ),
    "on, no version locks exist": (updating(holds=NOT_THERE), "warn", "nothing excludes"),
    "on, holds not read": (updating(holds=UNREAD), "unknown", "not read"),
    "on, exclusions not read": (updating(automatic_update_exclusions=UNREAD), "unknown", "not read"),
    "not read": (updating(automatic_updates=UNREAD), "unknown", "not read"),
    "the driver comes from elsewhere": (
        put(healthy(), "packages", packages_of(package("nvidia-container-toolkit"), **ON)),
        "skip",
        "not come from packages",
    ),
    "no package manager": (put(healthy(), "packages", NOT_THERE), "skip", "not come from packages"),
    "in a container": (in_container(), "skip", "container"),
    "under WSL2": (in_wsl2(), "skip", "Windows"),
    "no GPU": (put(put(no_driver(), "pci", ()), "packages", driver_packages(**ON)), "skip", "no NVIDIA GPU"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_automatic_updates(name: str) -> None:
    host, status, found = UPDATES[name]
    expect(host, "security.automatic_updates", status, "", found)


@pytest.mark.parametrize("reason", REASONS)
def test_packages_not_read(reason: str) -> None:
    expect(without(healthy(), ["packages"], reason), "security.automatic_updates", "unknown")  # type: ignore[arg-type]


def test_an_update_that_ran_is_quoted() -> None:
    change = PackageChange(
        when="2026-11-29 06:12", command="/usr/bin/unattended-upgrade", names=("libnvidia 1 -> 2",)
    )
    host = updating(changes=known_of((change,)))
    expect(host, "security.automatic_updates", "warn", why="2026-11-29 06:12")


def test_it_is_advice_and_no_reason_for_a_verdict() -> None:
    report = answer(updating())
    assert report.verdict == "ready"
    assert report.causes == ()
    assert [c.id for c in report.advice] == ["policy.driver_auto_upgrade_unfenced"]


# --- sources, bulletins, nodes, keys --------------------------------------------------------------

MODERN = put(healthy(), "driver.kernel_version", Dotted("580.178.04"))

MORE: dict[str, tuple[str, Host, Status, str, str]] = {
    "signed": (
        "security.unverified_repositories",
        sources(entry(checks_signature=True)),
        "pass",
        "",
        "no entry",
    ),
    "file does not say": ("security.unverified_repositories", sources(entry()), "pass", "", "no entry"),
    "trusted=yes": (
        "security.unverified_repositories",
        sources(entry(checks_signature=False)),
        "warn",
        "/etc/apt/sources.list.d/cuda.list",
        "without a signature",
    ),
    "a stranger's without a signature": (
        "security.unverified_repositories",
        sources(entry(uri="https://repo.example.org/debian", checks_signature=False)),
        "pass",
        "",
        "no entry",
    ),
    "one that is switched off": (
        "security.unverified_repositories",
        sources(entry(checks_signature=False, is_enabled=False)),
        "pass",
        "",
        "no entry",
    ),
    "no bulletin": ("security.driver_advisory", MODERN, "pass", "", "none for 580.178.04"),
    "bulletins": (
        "security.driver_advisory",
        put(healthy(), "driver.kernel_version", Dotted("580.95.05")),
        "pass",
        "",
        "open bulletin",
    ),
    "a data-center card is mended earlier": (
        "security.driver_advisory",
        put(devices(healthy(), device_id=H100), "driver.kernel_version", Dotted("580.159.04")),
        "pass",
        "",
        "none for 580.159.04",
    ),
    "a GeForce card is mended later": (
        "security.driver_advisory",
        put(devices(healthy(), device_id=RTX_5090), "driver.kernel_version", Dotted("580.159.04")),
        "pass",
        "",
        "one open bulletin 5861",
    ),
    "a branch that got no correction": (
        "security.driver_advisory",
        put(healthy(), "driver.kernel_version", Dotted("525.60.13")),
        "pass",
        "",
        "525.60.13 has",
    ),
    "root's nodes": ("security.device_nodes", healthy(), "pass", "", "mode 0666"),
    "no nodes": ("security.device_nodes", put(healthy(), "driver.device_nodes", ()), "pass", "", "no nodes"),
    "a user's node": (
        "security.device_nodes",
        put(
            healthy(),
            "driver.device_nodes",
            (DeviceNode(path="/dev/nvidia0", mode="0666", owner="eve:users"),),
        ),
        "warn",
        "/dev/nvidia0",
        "eve",
    ),
    "owners not told": (
        "security.device_nodes",
        put(healthy(), "driver.device_nodes", (DeviceNode(path="/dev/nvidia0", mode="0666", owner=""),)),
        "skip",
        "",
        "not told",
    ),
    "no key waits": ("security.pending_keys", put(healthy(), "machine.pending_keys", ()), "pass", "", "none"),
    "a key waits": (
        "security.pending_keys",
        put(healthy(), "machine.pending_keys", ("CN=dkms",)),
        "pass",
        "CN=dkms",
        "waits",
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_more(name: str) -> None:
    check_id, host, status, subject, words = MORE[name]
    expect(host, check_id, status, subject, words)


@pytest.mark.parametrize(
    ("check_id", "fact"),
    [
        ("security.unverified_repositories", "machine.repositories"),
        ("security.driver_advisory", "driver.kernel_version"),
        ("security.device_nodes", "driver.device_nodes"),
        ("security.pending_keys", "machine.pending_keys"),
    ],
)
def test_without_its_fact_it_is_not_known(check_id: str, fact: str) -> None:
    expect(without(healthy(), [fact], "denied"), check_id, "unknown", "")


def test_where_they_do_not_apply() -> None:
    expect(in_container(), "security.unverified_repositories", "skip", "")
    expect(in_container(), "security.pending_keys", "skip", "")
    expect(in_wsl2(), "security.driver_advisory", "skip", "")
    expect(in_wsl2(), "security.device_nodes", "skip", "")


def test_an_open_bulletin_is_a_warning_for_who_hardens() -> None:
    """As the toolkit's are: the policy asks for it, and nobody else is warned of what is a note."""
    host = put(healthy(), "driver.kernel_version", Dotted("580.95.05"))
    report = judge(host, matrix(), parse_goal("policy=harden"))
    (mine,) = [f for f in report.findings if f.id == "security.driver_advisory"]
    assert (mine.status, mine.wanted.endswith("or newer")) == ("warn", True)
    assert {f.status for f in answer(host).findings if f.id == "security.driver_advisory"} == {"pass"}
