"""dpkg and rpm: packages, holds, history, automatic updates."""

from __future__ import annotations

import pytest

from doctor.core.host import NOT_COLLECTED, Absent, Known, Packages, Unit
from doctor.facts.aptconf import parse_apt_conf
from doctor.facts.packages import read_packages
from tests.facts.evidence import evidence

DPKG = ("dpkg-query", "-W", "-f=x", "nvidia*")
RPM = ("rpm", "-qa", "--qf", "x", "nvidia*")
NVIDIA = "cudatools <cudatools@nvidia.com>"
DPKG_ROWS = (
    f"nvidia-driver-580-open\t580.95.05-0ubuntu1\tamd64\thi \t{NVIDIA}\n"
    f"nvidia-dkms-580-open:amd64\t580.95.05-0ubuntu1\tamd64\tiF \t{NVIDIA}\n"
    "libnvidia-old\t1.0\tamd64\trc \tx\n"
    "nvidia-unknown\t\t\tun \t\n"
    "libcurl4\t8.5\tamd64\tii \tx\n"
)
RPM_ROWS = (
    "nvidia-driver-cuda\t3:580.95.05-1.el9\tx86_64\tinstalled\tNVIDIA Corporation\n"
    "dkms\t(none):3.2.2-1.el9\tnoarch\tinstalled\t(none)\n"
)


def packages(files=None, commands=None, stats=None, units=NOT_COLLECTED, **kwargs) -> Packages:
    fact = read_packages(evidence(files, commands or {DPKG: (0, DPKG_ROWS)}, stats, **kwargs), units)
    assert isinstance(fact, Known), fact
    return fact.value


def rpm_host(files=None, units=NOT_COLLECTED, **kwargs) -> Packages:
    return packages(
        files, {RPM: (0, RPM_ROWS)}, units=units, absent={"command:dpkg-query": "missing"}, **kwargs
    )


def timers(*rows: Unit) -> Known[tuple[Unit, ...]]:
    return Known(value=rows, origin="command:systemctl-show")


def timer(name: str, load: str = "loaded", active: str = "active", enabled: str = "enabled") -> Unit:
    return Unit(name=name, load=load, active=active, enabled=enabled)


def test_dpkg():
    value = packages()
    assert value.manager == "dpkg"
    assert [(p.name, p.version, p.architecture, p.state, p.origin) for p in value.installed] == [
        ("nvidia-driver-580-open", "580.95.05-0ubuntu1", "amd64", "installed", NVIDIA),
        ("nvidia-dkms-580-open", "580.95.05-0ubuntu1", "amd64", "half-configured", NVIDIA),
    ]
    assert value.holds.value == ("nvidia-driver-580-open",)


def test_a_pattern_without_a_match_is_no_failure():
    assert packages(commands={DPKG: (1, DPKG_ROWS, "dpkg-query: no packages found matching x\n")}).installed
    assert packages(commands={DPKG: (1, "", "dpkg-query: no packages found matching x\n")}).installed == ()
    broken = read_packages(evidence(commands={DPKG: (2, "", "dpkg-query: error\n")}), NOT_COLLECTED)
    assert isinstance(broken, Absent)


def test_rpm():
    locks = "# Added lock\nnvidia-driver-3:580.95.05-1.el9.*\n!nvidia-driver-3:590*\n\nkmod-nvidia-*  # why\n"
    value = rpm_host({"/etc/dnf/plugins/versionlock.list": locks})
    assert value.manager == "rpm"
    assert [(p.name, p.version, p.architecture, p.origin) for p in value.installed] == [
        ("nvidia-driver-cuda", "3:580.95.05-1.el9", "x86_64", "NVIDIA Corporation"),
        ("dkms", "3.2.2-1.el9", "noarch", ""),
    ]
    assert value.holds.value == ("nvidia-driver-3:580.95.05-1.el9.*", "kmod-nvidia-*")
    # dnf writes no such flag: a missing one says nothing.
    assert rpm_host(stats={"/run/reboot-required": None}).reboot_required.reason == "not_collected"


def test_the_manager_that_knows_packages_is_the_hosts_own():
    assert packages(commands={DPKG: (0, DPKG_ROWS), RPM: (0, "")}).manager == "dpkg"
    assert packages(commands={DPKG: (0, ""), RPM: (0, RPM_ROWS)}).manager == "rpm"


def test_no_manager():
    absent = {"command:dpkg-query": "missing", "command:rpm-qa": "missing"}
    assert read_packages(evidence(absent=absent), NOT_COLLECTED).reason == "not_installed"
    assert read_packages(evidence(), NOT_COLLECTED).reason == "not_collected"


@pytest.mark.parametrize(("said", "expected"), [({}, True), (None, False)])
def test_reboot_required(said, expected):
    assert packages(stats={"/run/reboot-required": said}).reboot_required.value is expected


HISTORY = """
Start-Date: 2026-10-17  09:12:40
Commandline: apt-get install -y nvidia-driver-580-open
Requested-By: admin (1000)
Install: nvidia-driver-580-open:amd64 (580.159.03-0ubuntu1), libfoo:amd64 (1.0, automatic)
End-Date: 2026-10-17  09:13:00

Start-Date: 2026-10-20  06:00:00
Commandline: apt-get install vim
Install: vim:amd64 (2:9.1)
End-Date: 2026-10-20  06:00:01

Start-Date: 2026-11-29  06:41:09
Commandline: /usr/bin/unattended-upgrade
Upgrade: libnvidia-compute-580:amd64 (580.159.03-0ubuntu1, 580.173.02-0ubuntu1), tzdata:all (1, 2)
Remove: cuda-compat-12-9:amd64 (575.57.08-0ubuntu1)
End-Date: 2026-11-29  06:41:20
"""


def test_apt_history():
    newest, oldest = packages({"/var/log/apt/history.log": HISTORY}).changes.value
    assert (newest.when, newest.command) == ("2026-11-29 06:41:09", "/usr/bin/unattended-upgrade")
    assert set(newest.names) == {
        "libnvidia-compute-580 580.159.03-0ubuntu1 -> 580.173.02-0ubuntu1",
        "cuda-compat-12-9 575.57.08-0ubuntu1 -> none",
    }
    assert oldest.names == ("nvidia-driver-580-open none -> 580.159.03-0ubuntu1",)
    assert packages(absent={"file:/var/log/apt/history.log": "denied"}).changes.reason == "denied"


DNF_LOG = """2026-10-20T09:21:43+0000 INFO --- logging initialized ---
2026-10-20T09:21:44+0000 SUBDEBUG Upgrade: nvidia-driver-cuda-3:580.95.05-1.el9.x86_64
2026-10-20T09:21:45+0000 SUBDEBUG Installed: kmod-nvidia-open-dkms-3:580.95.05-1.el9.noarch
2026-10-20T09:21:46+0000 SUBDEBUG Upgraded: nvidia-driver-cuda-3:575.57.08-1.el9.x86_64
2026-10-20T09:21:46+0000 SUBDEBUG Upgraded: bash-5.1-1.el9.x86_64
2026-11-01T10:00:00+0000 SUBDEBUG Erase: cuda-compat-12-9-3:575.57.08-1.el9.x86_64
"""


def test_dnf_history():
    newest, oldest = rpm_host({"/var/log/dnf.rpm.log": DNF_LOG}).changes.value
    assert newest.names == ("cuda-compat-12-9 3:575.57.08-1.el9 -> none",)
    assert oldest.when == "2026-10-20T09:21:44+0000"
    assert oldest.names == (
        "nvidia-driver-cuda 3:575.57.08-1.el9 -> 3:580.95.05-1.el9",
        "kmod-nvidia-open-dkms none -> 3:580.95.05-1.el9",
    )


# --- automatic updates

ON = 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
FENCED = """// what is left alone
Unattended-Upgrade::Package-Blacklist {
    "^nvidia-";   // driver
    "libnvidia-"
    /* "commented"; */
    # "gone";
    ;
};
"""
AUTO, FIFTY = "/etc/apt/apt.conf.d/20auto-upgrades", "/etc/apt/apt.conf.d/50unattended-upgrades"


@pytest.mark.parametrize(
    ("files", "units", "expected"),
    [
        ({AUTO: ON}, NOT_COLLECTED, True),
        ({AUTO: ON.replace('Upgrade "1"', 'Upgrade "0"')}, NOT_COLLECTED, False),
        ({FIFTY: FENCED}, NOT_COLLECTED, False),
        (
            {AUTO: ON, "/etc/apt/apt.conf.d/99off": "APT { Periodic { Unattended-Upgrade 0; }; };"},
            NOT_COLLECTED,
            False,
        ),
        ({AUTO: ON, "/etc/apt/apt.conf.d/10enable": 'APT::Periodic::Enable "0";'}, NOT_COLLECTED, False),
        (
            {AUTO: ON, "/etc/apt/apt.conf.d/99x.dpkg-old": 'APT::Periodic::Unattended-Upgrade "0";'},
            NOT_COLLECTED,
            True,
        ),
        ({AUTO: ON}, timers(timer("apt-daily-upgrade.timer")), True),
        ({AUTO: ON}, timers(timer("apt-daily-upgrade.timer", load="masked", active="inactive")), False),
        ({AUTO: ON}, timers(timer("apt-daily-upgrade.timer", active="inactive", enabled="disabled")), False),
        (
            {AUTO: ON},
            timers(timer("unattended-upgrades.service", load="not-found", active="inactive")),
            False,
        ),
    ],
)
def test_unattended_upgrades(files, units, expected):
    assert packages(files, units=units).automatic_updates.value is expected


def test_exclusions_of_unattended_upgrades():
    value = packages({AUTO: ON, FIFTY: FENCED})
    assert value.automatic_update_exclusions.value == ("^nvidia-", "libnvidia-")
    assert packages().automatic_update_exclusions.reason == "not_collected"
    assert packages().automatic_updates.reason == "not_collected"


DNF_AUTO = (
    "[commands]\nupgrade_type = default\napply_updates = {}\n[base]\nexclude = nvidia* kmod-nvidia*, cuda*\n"
)
PLAIN, INSTALL = "dnf-automatic.timer", "dnf-automatic-install.timer"


@pytest.mark.parametrize(
    ("applies", "units", "expected"),
    [
        ("yes", timers(timer(PLAIN)), True),
        ("no", timers(timer(PLAIN)), False),
        ("yes", timers(timer(PLAIN, active="inactive", enabled="disabled")), False),
        ("no", timers(timer(INSTALL)), True),
    ],
)
def test_dnf_automatic(applies, units, expected):
    value = rpm_host({"/etc/dnf/automatic.conf": DNF_AUTO.format(applies)}, units)
    assert value.automatic_updates.value is expected
    assert value.automatic_update_exclusions.value == ("nvidia*", "kmod-nvidia*", "cuda*")


def test_dnf_automatic_unknown_and_not_there():
    assert (
        rpm_host({"/etc/dnf/automatic.conf": DNF_AUTO.format("yes")}).automatic_updates.reason
        == "not_collected"
    )
    absent = {"command:dpkg-query": "missing", "file:/etc/dnf/automatic.conf": "missing"}
    value = packages(commands={RPM: (0, RPM_ROWS)}, absent=absent)
    assert value.automatic_updates.value is False
    assert value.automatic_update_exclusions.reason == "not_installed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('A::B "1"; a::b "2";', {"a::b": ["1", "2"]}),
        ('A { B { C "x"; }; D "y"; };', {"a::b::c": ["x"], "a::d": ["y"]}),
        ('L { "one"; "two"; }; #clear L;\nL { "three"; };', {"l": ["three"]}),
        ('L:: "one"; L:: "two";', {"l": ["one", "two"]}),
        ('A "unclosed', {}),
        ("}}}};;;{{{", {}),
        ("", {}),
    ],
)
def test_apt_conf(text, expected):
    assert parse_apt_conf([text]) == expected
