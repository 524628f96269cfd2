"""The machine around the GPUs: processors, NUMA, clock, limits, locks, keys, the kernel's log of it."""

from __future__ import annotations

import pytest

from doctor.core.host_machine import LockHolder, Machine, NumaNode, OomKill
from doctor.facts.machine import read_machine
from tests.facts.evidence import evidence

DMESG = ("dmesg",)
JOURNAL = ("journalctl", "-k", "-b", "0")
CHASSIS = "/sys/class/dmi/id/chassis_type"


def read(files=None, commands=None, stats=None, **kwargs) -> Machine:
    return read_machine(evidence(files, commands, stats, **kwargs))


def told(**fields: object) -> Machine:
    """What the witness `machine` says."""
    return read(documents={"machine": fields})


@pytest.mark.parametrize(
    ("number", "kind"),
    [("10", "laptop"), ("31", "laptop"), ("3", "desktop"), ("23", "server"), ("1", "other")],
)
def test_chassis(number, kind):
    assert read({CHASSIS: f"{number}\n"}).chassis.value == kind


def test_no_chassis():
    assert read({CHASSIS: "Rack\n"}).chassis.reason == "unreadable"
    assert read(absent={f"file:{CHASSIS}": "missing"}).chassis.reason == "not_installed"


def test_governors():
    assert told(governors={"performance": 255, "powersave": 1}).governors.value == {
        "performance": 255,
        "powersave": 1,
    }
    assert told(governors={}).governors.reason == "not_installed"
    assert told().governors.reason == "not_collected"
    files = {f"/sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": "powersave\n" for n in range(3)}
    assert read(files).governors.value == {"powersave": 3}


def test_numa():
    top = "/sys/devices/system/node"
    files = {
        f"{top}/node0/cpulist": "0-31,64-95\n",
        f"{top}/node0/meminfo": "Node 0 MemTotal:       131862224 kB\nNode 0 MemFree: 1 kB\n",
        f"{top}/node10/cpulist": "\n",
        "/proc/sys/kernel/numa_balancing": "1\n",
    }
    found = read(files)
    assert found.numa_nodes.value == (
        NumaNode(index=0, cpus="0-31,64-95", memory_bytes=131862224 * 1024),
        NumaNode(index=10, cpus=""),
    )
    assert found.numa_balancing.value is True
    assert read({"/proc/sys/kernel/numa_balancing": "0\n"}).numa_balancing.value is False
    assert read(stats={top: None}).numa_nodes.reason == "not_installed"


def test_small_files():
    files = {
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/proc/sys/vm/swappiness": "10\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    }
    found = read(files)
    assert (found.transparent_hugepages.value, found.swappiness.value, found.clocksource.value) == (
        "madvise",
        10,
        "tsc",
    )
    odd = read({"/sys/kernel/mm/transparent_hugepage/enabled": "always never\n"})
    assert odd.transparent_hugepages.reason == "unreadable"


def test_clock():
    assert told(clock={"synchronised": True, "status": 0x2001}).clock_synchronised.value is True
    assert told(clock={"synchronised": False}).clock_synchronised.value is False
    assert told(clock={"error": "Operation not permitted"}).clock_synchronised.reason == "failed"
    show = {("timedatectl", "show", "-p", "NTPSynchronized"): (0, "NTPSynchronized=yes\n")}
    assert read(commands=show).clock_synchronised.value is True
    assert (
        read(commands={("timedatectl",): (0, "System clock synchronized: no\n")}).clock_synchronised.value
        is False
    )
    assert read().clock_synchronised.reason == "not_collected"


def test_the_least_limit_of_the_groups_counts():
    top = "/sys/fs/cgroup"
    files = {
        f"{top}/a/memory.max": "max\n",
        f"{top}/a/b/memory.max": "8589934592\n",
        f"{top}/a/b/c/memory.max": "9663676416\n",
    }
    assert (
        read(files, absent={f"file:{top}/memory.max": "missing"}).cgroup_memory_limit_bytes.value == 8 * 2**30
    )
    unlimited = read({f"{top}/a/memory.max": "max\n"}, absent={f"file:{top}/memory.max": "missing"})
    assert unlimited.cgroup_memory_limit_bytes.reason == "not_installed"
    first = {f"{top}/memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert read(first).cgroup_memory_limit_bytes.reason == "not_installed"
    assert read().cgroup_memory_limit_bytes.reason == "not_collected"


def test_locks():
    rows = [
        {"lock": "/var/lib/dpkg/lock-frontend", "pid": 4242, "process_name": "unattended-upgr"},
        {"lock": "/var/lib/dnf/rpmdb_lock.pid", "pid": 7, "process_name": "dnf"},
        {
            "lock": "/var/lib/dnf/rpmdb_lock.pid",
            "pid": 8,
            "process_name": "sshd",
        },  # the number went to another
    ]
    assert told(package_locks=rows).package_locks.value == (
        LockHolder(lock="/var/lib/dpkg/lock-frontend", process="unattended-upgr", pid=4242),
        LockHolder(lock="/var/lib/dnf/rpmdb_lock.pid", process="dnf", pid=7),
    )
    assert told(package_locks=[]).package_locks.value == ()
    assert told().package_locks.reason == "not_collected"


ENROLLED = """[key 1]
SHA1 Fingerprint: 76:a0:92:06:58:00:bf:37:69:01:c3:72:cd:55:a9:0e:1f:de:d2:e0
Certificate:
    Data:
        Issuer: C=GB, O=Canonical Ltd., CN=Canonical Ltd. Master Certificate Authority
        Subject: C=GB, O=Canonical Ltd., CN=Canonical Ltd. Master Certificate Authority
        Subject Public Key Info:

[key 2]
        Subject: CN=node7 Secure Boot Module Signature key
"""


def test_keys():
    found = read(
        commands={
            ("mokutil", "--list-enrolled"): (0, ENROLLED),
            ("mokutil", "--list-new"): (0, "MokNew is empty\n"),
        }
    )
    assert [key.rpartition("CN=")[2] for key in found.enrolled_keys.value] == [
        "Canonical Ltd. Master Certificate Authority",
        "node7 Secure Boot Module Signature key",
    ]
    assert found.pending_keys.value == ()


def test_keys_that_nobody_could_list():
    unsupported = {
        ("mokutil", "--list-enrolled"): (1, "", "EFI variables are not supported on this system\n")
    }
    assert read(commands=unsupported).enrolled_keys.reason == "not_installed"
    failed = {("mokutil", "--list-enrolled"): (255, "", "Failed to get MokListRT: 5\n")}
    assert read(commands=failed).enrolled_keys.reason == "failed"
    assert read().enrolled_keys.reason == "not_collected"


def test_without_mokutil_nobody_looked_for_keys():
    from doctor.core.evidence import Evidence, Item, Meta

    def absent(detail: str) -> str:
        item = Item(
            key="command:mokutil-list-enrolled",
            status="missing",
            argv=("mokutil", "--list-enrolled"),
            detail=detail,
        )
        return read_machine(Evidence(Meta(items=(item,)), {})).enrolled_keys.reason

    assert absent("not found") == "not_collected"
    assert absent("not asked: /sys/firmware/efi is not there") == "not_installed"


# --- the kernel's log -----------------------------------------------------------------------------

OOM = (
    "[ 100.0] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    "[ 100.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0-1,"
    "oom_memcg=/kubepods/pod7,task_memcg=/kubepods/pod7/c1,task=pt_main_thread,pid=4242,uid=0\n"
    "[ 100.2] Memory cgroup out of memory: Killed process 4242 (pt_main_thread) total-vm:9kB, anon-rss:1kB\n"
    "[ 200.1] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/user.slice,task=cc1plus,pid=77,uid=1000\n"
    "[ 200.2] Out of memory: Killed process 77 (cc1plus) total-vm:9kB\n"
)
OLD_OOM = (
    "[ 5.0] Out of memory: Kill process 1234 (python) score 900 or sacrifice child\n"
    "[ 5.1] Killed process 1234 (python) total-vm:100kB, anon-rss:1kB\n"
    "[ 6.0] Memory cgroup out of memory: Kill process 99 (a b) score 1 or sacrifice child\n"
)


def test_oom_kills_newest_first():
    assert read(commands={DMESG: (0, OOM)}).oom_kills.value == (
        OomKill(process="cc1plus", constraint="CONSTRAINT_NONE"),
        OomKill(process="pt_main_thread", constraint="CONSTRAINT_MEMCG", memory_cgroup="/kubepods/pod7"),
    )


def test_oom_kills_of_old_kernels_count_once():
    assert {(k.process, k.constraint) for k in read(commands={DMESG: (0, OLD_OOM)}).oom_kills.value} == {
        ("python", ""),
        ("a b", "CONSTRAINT_MEMCG"),
    }


def test_two_logs_of_one_boot_are_one():
    both = read(commands={DMESG: (0, OOM[:300]), JOURNAL: (0, OOM)})
    assert len(both.oom_kills.value) == 2
    assert read(commands={DMESG: (0, "[ 0.0] Linux version 6.8\n")}).oom_kills.value == ()
    assert read(commands={DMESG: (0, "")}).oom_kills.reason == "unreadable"
    assert read(absent={"command:dmesg": "denied"}).oom_kills.reason == "denied"


def test_a_part_of_a_log_proves_only_what_it_holds():
    from doctor.core.evidence import Evidence, Item, Meta

    def of(text: str, detail: str) -> Machine:
        """A log of which the item says that it was cut."""
        item = Item(key="command:dmesg", status="truncated", argv=("dmesg",), path="d", detail=detail)
        return read_machine(Evidence(Meta(items=(item,)), {"d": text.encode()}))

    searched = "only the lines that the report's script looked for"
    silent = of("[ 1.0] NVRM: loading\n", searched)
    assert silent.oom_kills.reason == silent.pcie_errors.reason == "unreadable"
    assert len(of(OOM, searched).oom_kills.value) == 2
    newest = of("[ 1.0] NVRM: loading\n", "last 524288 bytes kept")
    assert (newest.oom_kills.value, newest.pcie_errors.value) == ((), {})


AER = """[ 1.0] pcieport 0000:00:01.0: AER: Enabled with IRQ 26
[ 9.0] pcieport 0000:00:01.0: AER: Multiple Correctable error message received from 0000:01:00.0
[ 9.0] nvidia 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
[ 9.0] nvidia 0000:01:00.0:   device [10de:2684] error status/mask=00000001/0000a000
[ 9.1] nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer
[ 9.2] pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
"""


def test_pcie_errors_by_device():
    assert read(commands={DMESG: (0, AER)}).pcie_errors.value == {"0000:01:00.0": 2, "0000:00:01.0": 1}
    heard = "[ 1.0] pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0\n" * 3
    assert read(commands={JOURNAL: (0, heard)}).pcie_errors.value == {"0000:01:00.0": 3}
    assert read(commands={DMESG: (0, "[ 1.0] x\n")}).pcie_errors.value == {}
    assert read().pcie_errors.reason == "not_collected"
