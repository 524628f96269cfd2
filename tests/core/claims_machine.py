"""Claims about events, power, set-up and package sources: each where it holds, does not, and is untold."""

from __future__ import annotations

import msgspec

from doctor.core.host import Host
from tests.core.hosts import (
    FIRST,
    OTHER_RELEASE,
    SECOND,
    at,
    device,
    fallen,
    gpu,
    having,
    healthy,
    lost_gpu,
    put,
    reports,
    said,
    without,
)
from tests.core.pair import Three
from tests.core.pairs_machine import (
    ASLEEP,
    AT_LOAD,
    GSP_TIMEOUT,
    LINK_FATAL,
    LINK_NONFATAL,
    LOADING,
    LOST,
    NVIDIA,
    OLDER,
    R525,
    R525_MENDED,
    SLOW,
    UBUNTU,
    devel,
    driven_by,
    driver_from,
    entry,
    events,
    hung,
    laptop,
    sources,
    switch_error,
    xid_text,
)

#: The log of this boot was read whole.
WHOLE = put(healthy(), "kernel.logs", (at(healthy(), "kernel.logs").value[0],))
PARTLY = said(healthy(), is_complete=False)
UNASKED = gpu(healthy(), recovery_action=None)
UNKNOWN_CARD = without(device(ASLEEP, 0, device_id="10de:ffff"), ["machine.chassis"])


def both_lost(*, seconds: tuple[float, float]) -> Host:
    """Both GPUs were lost, at these seconds."""
    host = reports(healthy(), gpus=())
    xids = [fallen(a)[0] for a in (FIRST, SECOND)]
    timed = tuple(msgspec.structs.replace(x, first_seconds=s) for x, s in zip(xids, seconds, strict=True))
    return said(host, xids=timed)


CASES: dict[str, Three] = {
    "gpu_hung": Three(hung(healthy()), WHOLE, PARTLY),
    "nvlink_fatal": Three(events(UNASKED, LINK_FATAL), events(UNASKED, LINK_NONFATAL), PARTLY),
    "known_bug_shows": Three(
        events(driven_by(healthy(), R525), GSP_TIMEOUT),
        events(driven_by(healthy(), R525_MENDED), GSP_TIMEOUT),
        without(events(healthy(), GSP_TIMEOUT), ["driver.kernel_version"]),
    ),
    "power_unsound": Three(
        put(LOST, "machine.pcie_errors", {SECOND: 7}),
        put(LOST, "machine.pcie_errors", {SECOND: 1}),
        without(healthy(), ["driver.nvml", "driver.smi"]),
    ),
    "laptop_power_off": Three(ASLEEP, put(ASLEEP, "machine.chassis", "server"), UNKNOWN_CARD),
    "compute_prohibited": Three(
        gpu(healthy(), compute_mode="Prohibited"), healthy(), gpu(healthy(), compute_mode=None)
    ),
    "clocks_stuck": Three(gpu(healthy(), **SLOW), healthy(), gpu(healthy(), utilisation_percent=None)),
    "headers_wrong": Three(
        devel(OTHER_RELEASE),
        devel("6.8.0-31-generic"),
        without(devel(OTHER_RELEASE), ["packages"]),
    ),
    "repositories_mixed": Three(
        driver_from(UBUNTU, UBUNTU, NVIDIA),
        driver_from(UBUNTU, UBUNTU, UBUNTU),
        without(healthy(), ["packages"]),
    ),
    "entries_conflict": Three(sources(entry(), entry(OLDER, signed_by="")), sources(entry()), healthy()),
    "key_missing": Three(sources(entry(key_present=False)), sources(entry()), healthy()),
}

#: More hosts on which a claim holds, and on which it does not.
MORE: dict[str, tuple[str, Host, bool]] = {
    "a fatal SXid": ("nvlink_fatal", switch_error(healthy(), 20034), True),
    "a fatal SXid before the driver was loaded anew": (
        "nvlink_fatal",
        switch_error(healthy(), 20034, "Fatal", LOADING),
        False,
    ),
    "an SXid that is not fatal": ("nvlink_fatal", switch_error(healthy(), 12028, "Non-fatal"), False),
    "all GPUs within a second": ("power_unsound", both_lost(seconds=(9.0, 9.5)), True),
    "all GPUs an hour apart": ("power_unsound", both_lost(seconds=(9.0, 3609.0)), False),
    "errors of a card that is not lost": (
        "power_unsound",
        put(healthy(), "machine.pcie_errors", {FIRST: 500}),
        False,
    ),
    "errors on a riser of one lane": (
        "power_unsound",
        put(device(LOST, 1, link_width=1), "machine.pcie_errors", {SECOND: 7}),
        False,
    ),
    "the power brake": ("power_unsound", gpu(healthy(), clock_limits=("hw_power_brake_slowdown",)), True),
    "lost as the driver was loaded": (
        "laptop_power_off",
        said(device(laptop(healthy()), 0, is_responding=None), AT_LOAD),
        True,
    ),
    "lost at load, and no laptop": (
        "laptop_power_off",
        said(lost_gpu(healthy()), AT_LOAD),
        False,
    ),
    "a laptop whose GPU works": (
        "laptop_power_off",
        having(healthy(), {"machine.chassis": "laptop"}),
        False,
    ),
    "a hang that the driver was loaded after": ("gpu_hung", events(healthy(), GSP_TIMEOUT, LOADING), False),
    "a fault of a program": ("gpu_hung", events(healthy(), xid_text(31)), False),
    "a consequence alone": ("gpu_hung", events(healthy(), xid_text(45)), False),
    "a program's fault before a hang": ("gpu_hung", events(healthy(), xid_text(13), GSP_TIMEOUT), True),
    "headers of a debug kernel": ("headers_wrong", devel("6.8.0-31-generic-debug"), True),
    "a card that is busy at high clocks": (
        "clocks_stuck",
        gpu(healthy(), utilisation_percent=99, clock_sm_mhz=2400),
        False,
    ),
    "another repository of the same host": (
        "entries_conflict",
        sources(entry(), entry(OLDER, uri="https://developer.download.nvidia.com/other", signed_by="")),
        False,
    ),
    "an entry that is switched off": (
        "entries_conflict",
        sources(entry(), entry(OLDER, signed_by="", is_enabled=False)),
        False,
    ),
    "an rpm repository twice": (
        "entries_conflict",
        sources(entry("/etc/yum.repos.d/a.repo"), entry("/etc/yum.repos.d/b.repo", signed_by="")),
        False,
    ),
    "Debian's packages by three teams": (
        "repositories_mixed",
        driver_from("A <a@lists.debian.org>", "B <b@packages.debian.org>", "C <c@lists.alioth.debian.org>"),
        False,
    ),
    "NVIDIA's packages under two names": (
        "repositories_mixed",
        driver_from(NVIDIA, "NVIDIA <cudatools@nvidia.com>", NVIDIA),
        False,
    ),
    "rpm vendors": ("repositories_mixed", driver_from("NVIDIA", "RPM Fusion", "NVIDIA"), True),
}
