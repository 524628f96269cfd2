"""Claims about events, power, set-up and package sources: each where it holds, does not, and is untold."""

from __future__ import annotations

import msgspec

from doctor.core.host import Host
from doctor.core.versions import Dotted
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
    package,
    packages_of,
    put,
    reports,
    said,
    without,
)
from tests.core.hosts_fabric import hgx
from tests.core.pair import Three
from tests.core.pairs_machine import (
    ASLEEP,
    AT_LOAD,
    GSP_TIMEOUT,
    INTEGRATED,
    LINK_FATAL,
    LINK_NONFATAL,
    LOADING,
    LOST,
    NVIDIA,
    OLDER,
    OOPS,
    R525,
    R525_MENDED,
    SLEEP,
    SLEPT,
    SLOW,
    UBUNTU,
    UNKNOWN_ERROR,
    WRONG_FLAVOUR,
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
MANAGER = package("nvidia-fabricmanager-580", origin=UBUNTU)
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
    "module_oops": Three(said(healthy(), OOPS), WHOLE, PARTLY),
    "uvm_lost_in_sleep": Three(
        SLEPT, put(healthy(), "cuda.probe", UNKNOWN_ERROR), without(SLEPT, ["kernel.logs"])
    ),
    "uvm_unfit": Three(SLEPT, healthy(), without(SLEPT, ["kernel.logs"])),
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
    "entries_conflict": Three(
        sources(entry(), entry(OLDER, signed_by="")),
        sources(entry()),
        without(healthy(), ["machine.repositories"]),
    ),
    # An entry without a keyring of its own is checked with apt's common ones, which nobody reads.
    "key_missing": Three(
        sources(entry(key_present=False)), sources(entry(key_present=True)), sources(entry(signed_by=""))
    ),
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
    "a laptop in integrated mode": ("laptop_power_off", INTEGRATED, True),
    "a laptop without an NVIDIA GPU, and without the driver": (
        "laptop_power_off",
        put(INTEGRATED, "packages", packages_of()),
        False,
    ),
    "a laptop without an NVIDIA GPU, and nothing blacklisted": (
        "laptop_power_off",
        put(INTEGRATED, "kernel.module_options", ()),
        False,
    ),
    "a server with a blacklist, and without a GPU": (
        "laptop_power_off",
        put(INTEGRATED, "machine.chassis", "server"),
        False,
    ),
    "nvidia_uvm loaded anew since the sleep": (
        "uvm_lost_in_sleep",
        said(SLEPT, ("uvm", "nvidia-uvm: Loaded the UVM driver, major device number 511.")),
        False,
    ),
    "the driver loaded anew since the sleep": ("uvm_lost_in_sleep", events(SLEPT, LOADING), False),
    "asleep in this boot, and CUDA works": ("uvm_lost_in_sleep", said(healthy(), SLEEP), False),
    "a known fault by the function in which the kernel stopped": (
        "known_bug_shows",
        said(driven_by(healthy(), Dotted("595.58.03")), OOPS),
        True,
    ),
    "the same function in a release that mends it": (
        "known_bug_shows",
        said(driven_by(healthy(), Dotted("595.71.05")), OOPS),
        False,
    ),
    "another function in a release with a fault": (
        "known_bug_shows",
        said(driven_by(healthy(), Dotted("595.58.03")), ("oops", OOPS[1].replace("vma_access", "open"))),
        False,
    ),
    "an Xid of a card that the loaded flavour does not drive": ("gpu_hung", WRONG_FLAVOUR, False),
    "an Xid of a card beside one that the loaded flavour does not drive": (
        "gpu_hung",
        events(WRONG_FLAVOUR, GSP_TIMEOUT, address=SECOND),
        True,
    ),
    "Ubuntu's Fabric Manager, NVIDIA's driver, NVSwitches": (
        "repositories_mixed",
        put(hgx(), "packages", packages_of(package("cuda-drivers", origin=NVIDIA), MANAGER)),
        True,
    ),
    "Ubuntu's Fabric Manager, NVIDIA's driver, nothing to manage": (
        "repositories_mixed",
        put(healthy(), "packages", packages_of(package("cuda-drivers", origin=NVIDIA), MANAGER)),
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
