"""The check of automatic updates: may the driver's libraries be replaced under running work?"""

from __future__ import annotations

import pytest

from doctor.core.finding import Status
from doctor.core.host import Absent, Host, PackageChange
from tests.core.hosts import (
    NOT_THERE,
    REASONS,
    answer,
    driver_packages,
    expect,
    healthy,
    in_container,
    in_wsl2,
    known_of,
    no_driver,
    package,
    packages_of,
    put,
    without,
)

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
