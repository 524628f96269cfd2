"""Operating system, place, resources, units."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.core.host import Absent, Known
from doctor.facts.place import read_platform, read_virtualisation
from doctor.facts.resources import read_resources
from doctor.facts.system import read_system, utc
from tests.facts.evidence import evidence

ROCKY = """NAME="Rocky Linux"
VERSION="9.6 (Blue Onyx)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.6"
PRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"
"""
CPU_GUEST = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu hypervisor lahf_lm\n"
CPU_METAL = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu lahf_lm\n"
DISTRO = {"id": "ubuntu", "version": "24.04", "name": "Ubuntu", "codename": "noble", "like": "debian"}


@pytest.mark.parametrize(
    ("files", "documents", "expected"),
    [
        (
            {"/etc/os-release": ROCKY},
            {},
            ("rocky", "9.6", "Rocky Linux 9.6 (Blue Onyx)", ("rhel", "centos", "fedora")),
        ),
        (
            {"/usr/lib/os-release": ROCKY},
            {},
            ("rocky", "9.6", "Rocky Linux 9.6 (Blue Onyx)", ("rhel", "centos", "fedora")),
        ),
        ({"/etc/os-release": "ID=arch\nNAME='Arch \\$ Linux'\n"}, {}, ("arch", "", "Arch $ Linux", ())),
        ({}, {"distro": DISTRO}, ("ubuntu", "24.04", "Ubuntu 24.04", ("debian",))),
        (
            {"/etc/os-release": "nonsense"},
            {"distro": DISTRO},
            ("ubuntu", "24.04", "Ubuntu 24.04", ("debian",)),
        ),
        (
            {"/etc/redhat-release": "CentOS Linux release 7.9.2009 (Core)\n"},
            {},
            ("centos", "7.9.2009", "CentOS Linux release 7.9.2009 (Core)", ()),
        ),
        (
            {"/etc/redhat-release": "Red Hat Enterprise Linux release 9.4 (Plow)\n"},
            {},
            ("rhel", "9.4", "Red Hat Enterprise Linux release 9.4 (Plow)", ()),
        ),
        ({"/etc/debian_version": "12.11\n"}, {}, ("debian", "12", "Debian 12.11", ())),
    ],
)
def test_os(files, documents, expected):
    fact = read_system(evidence(files, documents=documents)).os
    assert isinstance(fact, Known)
    assert (fact.value.id, fact.value.version, fact.value.pretty_name, fact.value.id_like) == expected


def test_os_of_ubuntu_is_not_told_by_its_debian_version():
    fact = read_system(evidence({"/etc/debian_version": "trixie/sid\n"})).os
    assert isinstance(fact, Absent)


@pytest.mark.parametrize(
    ("built", "kind", "name"),
    [
        (evidence(commands={("systemd-detect-virt",): (1, "none\n")}), "bare_metal", ""),
        (evidence(commands={("systemd-detect-virt",): (0, "kvm\n")}), "vm", "kvm"),
        (evidence(commands={("systemd-detect-virt",): (0, "docker\n")}), "container", "docker"),
        (evidence(commands={("systemd-detect-virt",): (0, "lxc\n")}), "container", "lxc"),
        (evidence(commands={("systemd-detect-virt",): (0, "wsl\n")}), "wsl2", "wsl"),
        (evidence({"/proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n"}), "wsl2", "wsl"),
        (
            evidence(
                {"/proc/sys/kernel/osrelease": "5.15.0-microsoft\n"}, stats={"/dev/dxg": {"kind": "char"}}
            ),
            "wsl2",
            "wsl",
        ),
        (evidence(stats={"/.dockerenv": {}}), "container", "docker"),
        (evidence(stats={"/run/.containerenv": {}}), "container", "podman"),
        (evidence({"/run/systemd/container": "systemd-nspawn\n"}), "container", "systemd-nspawn"),
        (evidence({"/proc/1/cgroup": "0::/kubepods/besteffort/pod1/abc\n"}), "container", "kubernetes"),
        (evidence({"/proc/1/cgroup": "12:devices:/docker/abc\n"}), "container", "docker"),
        (evidence({"/proc/cpuinfo": CPU_GUEST}), "vm", ""),
        (evidence({"/proc/cpuinfo": CPU_METAL}), "bare_metal", ""),
        (
            evidence({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/proc/cpuinfo": CPU_GUEST}),
            "vm",
            "amazon",
        ),
        (
            evidence(
                {
                    "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                    "/sys/class/dmi/id/product_name": "p4d.metal\n",
                    "/proc/cpuinfo": CPU_METAL,
                }
            ),
            "bare_metal",
            "",
        ),
    ],
)
def test_place(built, kind, name):
    fact = read_virtualisation(built)
    assert isinstance(fact, Known)
    assert (fact.value.kind, fact.value.name) == (kind, name)


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (evidence(stats={"/etc/nv_tegra_release": {}, "/etc/dgx-release": None}), "jetson"),
        (evidence({"/proc/sys/kernel/osrelease": "5.15.148-tegra\n"}), "jetson"),
        (evidence(commands={("uname", "-a"): (0, "Linux box 6.8.12-tegra #1 SMP aarch64\n")}), "jetson"),
        (
            evidence(commands={("nvidia-smi",): (0, "|   0  Orin (nvgpu)   N/A  | N/A   N/A | N/A |\n")}),
            "jetson",
        ),
        (evidence(stats={"/etc/nv_tegra_release": None, "/etc/dgx-release": {}}), "dgx_os"),
        (evidence(stats={"/etc/nv_tegra_release": None, "/etc/dgx-release": None}), ""),
        (evidence(stats={"/etc/dgx-release": None}), "not_collected"),
        (evidence({"/proc/sys/kernel/osrelease": "6.8.0-1027-nvidia-64k\n"}), "not_collected"),
    ],
)
def test_platform(built, expected):
    fact = read_platform(built)
    assert (fact.value if isinstance(fact, Known) else fact.reason) == expected


def test_place_is_unknown_when_nothing_tells():
    # An Arm processor shows no hypervisor flag, on metal or not.
    for built in (evidence(), evidence({"/proc/cpuinfo": "CPU implementer\t: 0x41\n"})):
        fact = read_virtualisation(built)
        assert isinstance(fact, Absent)
        assert fact.reason == "not_collected"


@pytest.mark.parametrize(("mode", "is_guest"), [(0, False), (1, False), (2, True), (3, None), ("2", None)])
def test_vgpu_guest(mode, is_guest):
    built = evidence(
        commands={("systemd-detect-virt",): (0, "kvm\n")},
        nvml={"count": 1, "gpus": [{"index": 0, "virtualization_mode": mode}]},
    )
    assert read_virtualisation(built).value.vgpu_guest is is_guest


@pytest.mark.parametrize(
    ("uname", "files", "expected"),
    [
        ("Linux n 6.8.0 #1 SMP x86_64 x86_64 x86_64 GNU/Linux\n", {}, "x86_64"),
        ("Linux n 6.8.0-1-nvidia-64k #1 SMP aarch64 aarch64 aarch64 GNU/Linux\n", {}, "aarch64"),
        ("Linux n 6.8.0 #1 SMP ppc64le GNU/Linux\n", {}, "ppc64le"),
        ("", {"/proc/sys/kernel/osrelease": "5.14.0-570.el9.aarch64\n"}, "aarch64"),
        ("", {"/proc/cpuinfo": "processor : 0\nCPU implementer\t: 0x41\n"}, "aarch64"),
        ("", {"/proc/cpuinfo": CPU_METAL}, "x86_64"),
    ],
)
def test_architecture(uname, files, expected):
    commands = {("uname", "-a"): (0, uname)} if uname else {}
    assert read_system(evidence(files, commands)).architecture.value == expected


@given(st.integers(0, 99_999_999_999))
def test_utc_agrees_with_the_calendar(seconds):
    expected = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=seconds)
    assert utc(seconds) == expected.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def test_boot_time():
    assert read_system(
        evidence({"/proc/stat": "cpu 1 2\nbtime 1760770920\nprocesses 1\n"})
    ).boot_time.value == ("2025-10-18T07:02:00Z")
    fact = read_system(evidence({"/proc/stat": "cpu 1 2\n"})).boot_time
    assert (fact.reason, fact.detail) == ("unreadable", "it has no `btime` line")


SHOW = ("systemctl", "show", "a.service", "b.timer", "--property=Id,LoadState")


def test_units():
    text = (
        "Id=a.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nUnitFileState=enabled\nResult=exit-code\n"
        "\nId=b.timer\nLoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState=\n"
    )
    first, second = read_system(evidence(commands={SHOW: (0, text)})).units.value
    assert (first.name, first.load, first.active, first.sub, first.enabled, first.result) == (
        "a.service",
        "loaded",
        "failed",
        "failed",
        "enabled",
        "exit-code",
    )
    assert (second.name, second.load, second.enabled, second.result) == ("b.timer", "not-found", "", "")


def test_no_systemd_is_knowledge_and_a_failing_one_is_not():
    said = "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    assert read_system(evidence(commands={SHOW: (1, "", said)})).units.reason == "not_installed"
    assert read_system(evidence(commands={SHOW: (1, "", "Connection timed out\n")})).units.reason == "failed"
    assert read_system(evidence()).units.reason == "not_collected"


def test_resources_by_psutil():
    doc = {
        "memory": {"total": 1000, "available": 600},
        "swap": {"total": 5},
        "cpu_count": 4,
        "filesystems": [
            {"path": "/", "total": 10, "free": 3, "kind": "ext4"},
            {"path": "/x", "total": "many"},
            7,
        ],
        "limits": {"memlock": [-1, -1], "nofile": [1024], "as": "no"},
    }
    value = read_resources(evidence(documents={"resources": doc})).value
    assert (value.memory_bytes, value.memory_available_bytes, value.swap_bytes, value.cpu_count) == (
        1000,
        600,
        5,
        4,
    )
    assert [(f.path, f.free_bytes, f.kind) for f in value.filesystems] == [("/", 3, "ext4")]
    assert [(limit.name, limit.soft, limit.hard) for limit in value.limits] == [("memlock", -1, -1)]


def test_resources_by_proc():
    limits = "Limit   Soft Limit  Hard Limit  Units\nMax locked memory   8388608    unlimited   bytes\n"
    files = {
        "/proc/meminfo": "MemTotal:       2048 kB\nMemAvailable:   1024 kB\nSwapTotal:  0 kB\n",
        "/proc/self/limits": limits,
        "/proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\n",
    }
    value = read_resources(evidence(files)).value
    assert (value.memory_bytes, value.memory_available_bytes, value.cpu_count) == (
        2048 * 1024,
        1024 * 1024,
        2,
    )
    assert [(limit.name, limit.soft, limit.hard) for limit in value.limits] == [("memlock", 8388608, -1)]


def test_environment_and_hostname():
    built = evidence(
        commands={("uname", "-a"): (0, "Linux node7 6.8.0 #1 SMP x86_64 GNU/Linux")},
        env={"LD_LIBRARY_PATH": "/opt/x"},
        absent={"env:CUDA_HOME": "missing"},
    )
    system = read_system(built)
    assert system.environment == {"LD_LIBRARY_PATH": "/opt/x"}
    assert system.hostname.value == "node7"
