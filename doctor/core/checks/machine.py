"""Checks of the machine around the GPUs: memory, limits, kills, processors, NUMA, clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from doctor.core.check import Case, Outcome, check, passed, skipped, unknown, warned
from doctor.core.checks.applies import on_gpu_host
from doctor.core.checks.told import fact_untold
from doctor.core.host import Gpu, is_not_there, known

__all__ = ["CHECKS"]

_GIB = 1024**3
_ON = (on_gpu_host,)
#: With less than this left, and less than a twentieth, whoever loads a model swaps or is killed.
_FREE_MIN_BYTES = 4 * _GIB
#: Clock sources that cost a system call, and a slow one, each time somebody looks at the clock.
_SLOW_CLOCKS = ("hpet", "acpi_pm", "refined-jiffies", "jiffies")


@check("system.memory", "host memory", needs=("system.resources",), applies=_ON)
def memory(case: Case) -> Iterator[Outcome]:
    """How much is there and how much is free. Models pass through it on their way to the GPU."""
    resources = known(case.host.system.resources)
    if resources is None or not resources.memory_bytes:
        yield skipped("not told")
        return
    free, total = resources.memory_available_bytes, resources.memory_bytes
    text = f"{free // _GIB} of {total // _GIB} GiB available, {resources.swap_bytes // _GIB} GiB swap"
    if free < min(_FREE_MIN_BYTES, total // 20):
        why = ("an engine that loads a model now may be killed for want of host memory",)
        yield warned(text, wanted="some GiB available", why=why)
    else:
        yield passed(text)


@check("system.oom_kills", "no kill for want of memory", needs=("machine.oom_kills",), applies=_ON)
def oom_kills(case: Case) -> Iterator[Outcome]:
    """Processes that the kernel killed in this boot, and whose limit it was. History: information."""
    kills = known(case.host.machine.oom_kills) or ()
    if not kills:
        yield passed("none in this boot")
        return
    names = Counter(kill.process for kill in kills)
    # In these words redaction finds the names again (`doctor/evidence/places.py`).
    told = (f"`{name}` was killed" + (f" {n} times" if n > 1 else "") for name, n in names.most_common(4))
    of_cgroup = sum(kill.constraint == "CONSTRAINT_MEMCG" for kill in kills)
    whose = (
        f"{of_cgroup} of {len(kills)} by the limit of a container or service"
        if of_cgroup
        else "by the machine"
    )
    yield passed(
        f"in this boot {', '.join(told)}", why=(f"{whose}: for want of host memory, not of GPU memory",)
    )


@check(
    "system.cgroup_limit",
    "memory limit of this place",
    needs=("machine.cgroup_memory_limit_bytes",),
    applies=_ON,
)
def cgroup_limit(case: Case) -> Iterator[Outcome]:
    """What a container or a job may take of the host's memory: engines die of it without an error of CUDA."""
    limit, resources = known(case.host.machine.cgroup_memory_limit_bytes), known(case.host.system.resources)
    if limit is None:
        yield passed("no limit")
        return
    largest = max((g.memory_bytes or 0 for g in _gpus(case)), default=0)
    text = f"{limit / _GIB:.1f} GiB"
    if resources is not None and limit >= resources.memory_bytes:
        yield passed(f"{text}: more than the machine has")
    elif not largest:
        yield unknown(f"{text}; how much memory the GPUs have was not told")
    elif limit * 4 < largest:
        why = ("weights and pinned buffers pass through host memory: the kernel kills what takes more",)
        wanted = f"a quarter of the GPU's {largest // _GIB} GiB"
        yield warned(text, wanted=wanted, why=why)
    else:
        yield passed(text, why=("the kernel kills what takes more than that",))


def _gpus(case: Case) -> Iterator[Gpu]:
    for witness in (case.host.driver.nvml, case.host.driver.smi):
        answered = known(witness)
        yield from answered.gpus if answered else ()


@check("system.governor", "processors free to speed up", needs=("machine.governors",), applies=_ON)
def governor(case: Case) -> Iterator[Outcome]:
    """Which cpufreq governor is in force. `powersave` of intel_pstate speeds up all the same. Information."""
    governors = known(case.host.machine.governors)
    if not governors:
        yield skipped(
            "the platform has no cpufreq here" if is_not_there(case.host.machine.governors) else "not told"
        )
        return
    text = ", ".join(f"{name} on {n}" for name, n in sorted(governors.items()))
    why: tuple[str, ...] = ()
    if "powersave" in governors:
        why = ("with intel_pstate or amd_pstate it still speeds up; with acpi-cpufreq it does not",)
    yield passed(text, why=why)


@check("system.numa", "GPUs near their processors", needs=("machine.numa_nodes",), applies=_ON)
def numa(case: Case) -> Iterator[Outcome]:
    """On a machine of several memory nodes each GPU hangs on one of them. Information."""
    nodes = known(case.host.machine.numa_nodes) or ()
    if len(nodes) < 2:
        yield passed("one memory node")
        return
    balancing = known(case.host.machine.numa_balancing)
    note = ("automatic NUMA balancing is on: it moves pages that engines have placed",) if balancing else ()
    for device in case.host.gpus_on_bus:
        if device.numa_node is None:
            why = ("the platform does not say on which node it hangs; bind by hand if it matters", *note)
            yield passed("not told", subject=device.address, why=why)
        else:
            yield passed(f"node {device.numa_node} of {len(nodes)}", subject=device.address, why=note)


@check("system.clock", "clock", needs=("machine.clocksource|machine.clock_synchronised",), applies=_ON)
def clock(case: Case) -> Iterator[Outcome]:
    """A slow clock source costs speed in every engine; that nothing sets the clock is told only."""
    source, synchronised = known(case.host.machine.clocksource), known(case.host.machine.clock_synchronised)
    note = (
        ("nothing sets the clock: certificates, tokens and logs go wrong with it",)
        if synchronised is False
        else ()
    )
    if source is None:
        told = fact_untold(
            case.host.machine.clocksource, "the clock source", absent="the kernel names no clock source"
        )
        yield msgspec.structs.replace(told, why=(*told.why, *note))
        return
    is_slow = source in _SLOW_CLOCKS and case.virtualisation in ("bare_metal", "")
    if is_slow and known(case.host.system.architecture) == "x86_64":
        why = (
            "the kernel found the processors' own counter (tsc) unstable: reading the time is a slow call",
            *note,
        )
        yield warned(f"clock source {source}", wanted="tsc", why=why)
    else:
        yield passed(f"clock source {source}", why=note)


CHECKS = (memory, oom_kills, cgroup_limit, governor, numa, clock)
