"""The machine around the GPUs: memory, kills, limits, processors, NUMA, clock."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.core.finding import Status
from doctor.core.host import Host, Resources
from doctor.core.host_machine import NumaNode, OomKill
from tests.core.hosts import (
    FIRST,
    GIB,
    NOT_THERE,
    SECOND,
    answer,
    device,
    expect,
    having,
    healthy,
    in_container,
    placed,
    put,
    reports,
    without,
)

NO_GPU = having(
    reports(put(healthy(), "pci", ()), gpus=()), {"driver.nvml": NOT_THERE, "driver.smi": NOT_THERE}
)


def machine(**facts: Any) -> Host:
    return having(healthy(), {f"machine.{name}": value for name, value in facts.items()})


def resources(free_gib: int, total_gib: int = 512) -> Host:
    value = Resources(memory_bytes=total_gib * GIB, memory_available_bytes=free_gib * GIB)
    return put(healthy(), "system.resources", value)


KILLS = (
    OomKill(process="vllm", constraint="CONSTRAINT_MEMCG"),
    OomKill(process="vllm"),
    OomKill(process="cc1"),
)
NODES = (NumaNode(index=0, cpus="0-31"), NumaNode(index=1, cpus="32-63"))

CASES: dict[str, tuple[str, Host, Status, str, str]] = {
    "memory free": ("system.memory", healthy(), "pass", "", "500 of 512 GiB"),
    "memory short": ("system.memory", resources(2), "warn", "", "2 of 512 GiB"),
    "little of a small machine": ("system.memory", resources(3, 16), "pass", "", "3 of 16 GiB"),
    "memory not told": (
        "system.memory",
        put(healthy(), "system.resources", Resources(memory_bytes=0, memory_available_bytes=0)),
        "skip",
        "",
        "",
    ),
    "no kill": ("system.oom_kills", machine(oom_kills=()), "pass", "", "none in this boot"),
    "kills": (
        "system.oom_kills",
        machine(oom_kills=KILLS),
        "pass",
        "",
        "`vllm` was killed 2 times, `cc1` was killed",
    ),
    "no limit": ("system.cgroup_limit", machine(cgroup_memory_limit_bytes=NOT_THERE), "pass", "", "no limit"),
    "a limit": ("system.cgroup_limit", machine(cgroup_memory_limit_bytes=64 * GIB), "pass", "", "64.0 GiB"),
    "a limit above the machine": (
        "system.cgroup_limit",
        machine(cgroup_memory_limit_bytes=2048 * GIB),
        "pass",
        "",
        "more than the machine",
    ),
    "a small limit": (
        "system.cgroup_limit",
        machine(cgroup_memory_limit_bytes=4 * GIB),
        "warn",
        "",
        "4.0 GiB",
    ),
    "a limit, and no GPU tells its memory": (
        "system.cgroup_limit",
        without(machine(cgroup_memory_limit_bytes=4 * GIB), ["driver.nvml", "driver.smi"]),
        "unknown",
        "",
        "was not told",
    ),
    "performance": (
        "system.governor",
        machine(governors={"performance": 64}),
        "pass",
        "",
        "performance on 64",
    ),
    "powersave": ("system.governor", machine(governors={"powersave": 64}), "pass", "", "powersave"),
    "no cpufreq": ("system.governor", machine(governors=NOT_THERE), "skip", "", "no cpufreq"),
    "one node": ("system.numa", machine(numa_nodes=NODES[:1]), "pass", "", "one memory node"),
    "two nodes": ("system.numa", machine(numa_nodes=NODES), "pass", FIRST, "node 0 of 2"),
    "node not told": (
        "system.numa",
        device(machine(numa_nodes=NODES), 1, numa_node=None),
        "pass",
        SECOND,
        "not told",
    ),
    "tsc": ("system.clock", machine(clocksource="tsc"), "pass", "", "tsc"),
    "a slow clock": ("system.clock", machine(clocksource="hpet"), "warn", "", "hpet"),
    "a slow clock of a guest": (
        "system.clock",
        placed(machine(clocksource="hpet"), "vm", "kvm"),
        "pass",
        "",
        "hpet",
    ),
    "kvm's clock": ("system.clock", machine(clocksource="kvm-clock"), "pass", "", "kvm-clock"),
    "not set by anybody": (
        "system.clock",
        machine(clocksource="tsc", clock_synchronised=False),
        "pass",
        "",
        "tsc",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    check_id, host, status, subject, words = CASES[name]
    expect(host, check_id, status, subject, words)


NEEDED = {
    "system.memory": "system.resources",
    "system.oom_kills": "machine.oom_kills",
    "system.cgroup_limit": "machine.cgroup_memory_limit_bytes",
    "system.governor": "machine.governors",
    "system.numa": "machine.numa_nodes",
    "system.clock": "machine.clocksource",
}
#: The check needs one of two.
BESIDE = {"system.clock": ["machine.clock_synchronised"]}


@pytest.mark.parametrize("check_id", NEEDED)
def test_without_its_fact_it_is_not_known_and_not_needed(check_id: str) -> None:
    host = without(healthy(), [NEEDED[check_id], *BESIDE.get(check_id, ())], "denied")
    expect(host, check_id, "unknown", "")
    assert answer(host).verdict == "ready"


@pytest.mark.parametrize("check_id", NEEDED)
def test_it_does_not_apply_without_a_gpu(check_id: str) -> None:
    expect(NO_GPU, check_id, "skip", "")


def test_a_limit_inside_a_container_is_judged_there() -> None:
    host = put(in_container(), "machine.cgroup_memory_limit_bytes", 2 * GIB)
    expect(host, "system.cgroup_limit", "warn", "", "2.0 GiB")


def test_whose_limit_a_kill_was_is_told() -> None:
    expect(machine(oom_kills=KILLS), "system.oom_kills", "pass", why="1 of 3 by the limit of a container")


def test_decoys_leave_a_healthy_host_without_advice() -> None:
    host = machine(
        oom_kills=KILLS,
        governors={"powersave": 64},
        numa_nodes=NODES,
        numa_balancing=True,
        clocksource="tsc",
        clock_synchronised=False,
        cgroup_memory_limit_bytes=64 * GIB,
        pcie_errors={FIRST: 3},
        package_locks=(),
        module_streams=(),
        repositories=(),
        pending_keys=(),
    )
    report = answer(host)
    assert (report.verdict, report.advice) == ("ready", ())
