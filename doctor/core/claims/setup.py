"""Claims about the set-up: hybrid power, compute mode, clocks that do not rise, headers, package sources."""

from __future__ import annotations

import re

from doctor.core.check import Case
from doctor.core.claims.bus import is_asleep
from doctor.core.claims.claimed import UNTOLD, Claimed, no, yes
from doctor.core.claims.fabric import fabric_kind
from doctor.core.claims.modules import (
    dkms_registered,
    driver_packages_installed,
    headers_missing,
    module_blacklisted,
)
from doctor.core.host import Gpu, KernelMessage, Known, Package, known
from doctor.core.pattern import pattern
from doctor.core.views import DRIVER_PACKAGE, card_name, messages, report, working_gpus

_MOBILE = pattern(r"\b(?:Laptop|Mobile)\b")
#: The driver's words when it finds a card without power as it loads; under load it says it with Xid 79.
_AT_LOAD = pattern(r"fallen off the bus and is not responding to commands")


def is_laptop(case: Case) -> bool | None:
    """By the chassis; where that was not read, by the names of the cards; None where those are not known."""
    chassis, gpus = known(case.host.machine.chassis), case.host.gpus_on_bus
    if chassis is not None:
        return chassis == "laptop"
    if any(_MOBILE.search(card_name(case, d)) for d in gpus):
        return True
    return False if gpus and all(case.matrix.gpu(d.device_id) for d in gpus) else None


def laptop_power_off(case: Case) -> Claimed:
    """A laptop's GPU has no power, as its state or the kernel says: hybrid graphics took it."""
    working = working_gpus(case)
    idle = [device for device in case.host.gpus_on_bus if device.address not in working]
    if is_laptop(case) is None:
        was_read = isinstance(case.host.pci, Known) or isinstance(case.host.kernel.logs, Known)
        is_sign = any(map(is_asleep, idle)) or _power_message(case, "") is not None or bool(_taken_off(case))
        return UNTOLD if is_sign or not was_read else no()
    if not is_laptop(case):
        return no()
    for device in idle:
        if is_asleep(device) or device.power_state == "D3cold":
            return yes(f"{device.address} of this laptop is in power state D3cold: it has no power")
        said = _power_message(case, device.address)
        if said and device.is_responding is not True:
            return yes(f"{device.address} of this laptop: {said.text}")
    if not case.host.gpus_on_bus and (said := _power_message(case, "")):
        return yes(f"this is a laptop, and the kernel said: {said.text}")
    if removed := _taken_off(case):
        return yes(f"this is a laptop whose GPU is not on the bus, and {removed}")
    return no()


def _taken_off(case: Case) -> str:
    """What shows that a tool for hybrid graphics took the GPU off the bus; empty when nothing does.

    EnvyControl, supergfxctl and `prime-select intel` keep the installed driver from being loaded, and remove
    the card by a udev rule or by ACPI (envycontrol issue 198).
    """
    if not isinstance(case.host.pci, Known) or case.host.gpus_on_bus:
        return ""
    blacklisted, installed = module_blacklisted(case), driver_packages_installed(case)
    return f"{blacklisted.because}; {installed.because}" if blacklisted.holds and installed.holds else ""


def _power_message(case: Case, address: str) -> KernelMessage | None:
    for message in messages(case, "fallen_off_bus", "other", "probe_failed"):
        is_of_it = not address or message.gpu in ("", address)
        if is_of_it and ("D3cold" in message.text or _AT_LOAD.search(message.text)):
            return message
    return None


def is_prohibited(gpu: Gpu) -> bool:
    """Whether the compute mode refuses every CUDA program."""
    return (gpu.compute_mode or "").lower() == "prohibited"


def compute_prohibited(case: Case) -> Claimed:
    """Every GPU that the driver lists, or one of them, refuses CUDA programs."""
    answered = report(case)
    gpus = answered.gpus if answered else ()
    refusing = [g.pci_address for g in gpus if is_prohibited(g)]
    if refusing:
        return yes(f"compute mode is prohibited on {', '.join(refusing)}")
    return no() if gpus and all(g.compute_mode for g in gpus) else UNTOLD


#: Reasons for low clocks that are no reason while there is work.
_NO_REASON = frozenset(("gpu_idle", "none", "display_clock_setting"))
_BUSY_PERCENT = 80


def idles_at_work(gpu: Gpu) -> bool:
    """Whether a busy GPU runs at clocks like those at rest, for whatever reason."""
    load, now, most = gpu.utilisation_percent, gpu.clock_sm_mhz, gpu.clock_sm_max_mhz
    return not (load is None or now is None or not most or load < _BUSY_PERCENT or now * 3 > most)


def stuck_low(gpu: Gpu) -> str:
    """What shows that a busy GPU stays at idle clocks for no reason that the driver names; empty else."""
    if not idles_at_work(gpu) or gpu.clock_limits is None or set(gpu.clock_limits) - _NO_REASON:
        return ""
    state = f" in {gpu.performance_state}" if gpu.performance_state else ""
    clocks = f"{gpu.clock_sm_mhz} of {gpu.clock_sm_max_mhz} MHz{state}"
    return f"{clocks} at {gpu.utilisation_percent} % load, and the driver names no reason"


def clocks_stuck(case: Case) -> Claimed:
    answered = report(case)
    gpus = answered.gpus if answered else ()
    for gpu in gpus:
        if fault := stuck_low(gpu):
            return yes(f"{gpu.pci_address}: {fault}")
    told = [g.utilisation_percent is not None and g.clock_limits is not None for g in gpus]
    return no() if told and all(told) else UNTOLD


# --- headers --------------------------------------------------------------------------------------

_HEADERS = pattern(r"linux-headers-(\d\S*)")
_DEVEL = ("kernel-devel", "kernel-devel-matched", "kernel-64k-devel", "kernel-rt-devel", "kernel-uek-devel")
_DEBUG = pattern(r"[+.-]debug$")
_NUMBERS = pattern(r"\d+")


def _release_of(package: Package) -> str:
    """The kernel that a package of headers is for; empty for any other package."""
    if found := _HEADERS.fullmatch(package.name):
        return found.group(1)
    if package.name in _DEVEL:
        return f"{package.version.rpartition(':')[2]}.{package.architecture}"
    return ""


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(n) for n in _NUMBERS.findall(release)[:10])


def headers_for_other(case: Case) -> Claimed:
    """Headers are there for a kernel that is newer than the running one, or a debug kernel's, and not for it.

    Those of an older kernel say nothing: an update leaves them behind.
    """
    missing, running = headers_missing(case), known(case.host.kernel.release)
    if missing.holds is not True or not running:
        return no() if missing.holds is False else UNTOLD
    packages, kernels = known(case.host.packages), known(case.host.kernel.installed) or ()
    named = {r for p in (packages.installed if packages else ()) if (r := _release_of(p))}
    named |= {k.release for k in kernels if k.has_headers}
    wrong = [r for r in sorted(named - {running}) if _order(r) > _order(running) or _DEBUG.search(r)]
    if wrong and not _is_flavour_of(wrong[0], running):
        return yes(f"headers are there for {', '.join(wrong[:3])}, and the running kernel is {running}")
    return UNTOLD if packages is None else no()


def _is_flavour_of(release: str, running: str) -> bool:
    """`6.8.0-138` is Ubuntu's common part of `6.8.0-138-generic`, no other kernel."""
    return running.startswith(f"{release}-")


def headers_wrong(case: Case) -> Claimed:
    """Dkms would build the module, and the headers that are there are another kernel's."""
    registered, other = dkms_registered(case), headers_for_other(case)
    if registered.holds and other.holds:
        return yes(f"{registered.because}; {other.because}")
    return no() if registered.holds is False or other.holds is False else UNTOLD


# --- sources of packages --------------------------------------------------------------------------

_DOMAIN = pattern(r"@([\w.-]{1,100})>?")


def vendor_of(origin: str) -> str:
    """Who stands behind a package: the domain of its maintainer (`ubuntu.com`), else the vendor's name."""
    found = _DOMAIN.search(origin)
    return ".".join(found.group(1).lower().split(".")[-2:]) if found else origin.strip().lower()


#: Where the GPUs need them, they must have the driver's very version: another repository's fall behind it.
_TIED = ("nvidia-fabricmanager", "nvidia-fabric-manager", "nvidia-imex", "libnvidia-nscq")


def driver_vendors(case: Case) -> dict[str, str]:
    """Vendor -> one of its packages of the driver, or of what the fabric here needs in its version."""
    packages = known(case.host.packages)
    named = [p for p in (packages.installed if packages else ()) if p.origin]
    tied = _TIED if fabric_kind(case) in ("switch", "nvlink5") else ()
    mine = [p for p in named if DRIVER_PACKAGE.match(p.name) or p.name.startswith(tied)]
    return {vendor_of(p.origin): p.name for p in reversed(mine)}


def repositories_mixed(case: Case) -> Claimed:
    if known(case.host.packages) is None:
        return UNTOLD
    vendors = driver_vendors(case)
    if len(vendors) < 2:
        return no()
    return yes("; ".join(f"`{name}` is from {vendor}" for vendor, name in sorted(vendors.items())))


#: Addresses that bring parts of the GPU stack.
_NVIDIA_PLACE = re.compile(r"nvidia|cuda|/ppa/graphics-drivers", re.IGNORECASE)


def is_of_stack(uri: str) -> bool:
    """Whether a repository brings parts of the GPU stack."""
    return bool(_NVIDIA_PLACE.search(uri))


def _place(uri: str) -> str:
    return uri.split("://", 1)[-1].rstrip("/").lower()


def duplicate_entries(case: Case) -> tuple[str, ...]:
    """Repositories that stand in several entries of apt with different keys: what apt refuses to read."""
    keys: dict[tuple[str, str], dict[str, str]] = {}
    for entry in known(case.host.machine.repositories) or ():
        if entry.is_enabled and entry.uri and entry.file.startswith("/etc/apt/"):
            keys.setdefault((_place(entry.uri), entry.suite), {}).setdefault(entry.signed_by, entry.file)
    return tuple(
        f"{uri} {suite}".strip()
        + ": "
        + " and ".join(f"`{f}` (Signed-By {k or 'not given'})" for k, f in by.items())
        for (uri, suite), by in keys.items()
        if len(by) > 1
    )


def entries_conflict(case: Case) -> Claimed:
    if known(case.host.machine.repositories) is None:
        return UNTOLD
    found = duplicate_entries(case)
    return yes(found[0]) if found else no()


def keyless_entries(case: Case) -> tuple[str, ...]:
    """Entries of the GPU stack whose keyring is not on disk."""
    return tuple(
        f"`{entry.file}` names `{entry.signed_by}`, which is not there"
        for entry in known(case.host.machine.repositories) or ()
        if entry.is_enabled and entry.key_present is False and is_of_stack(f"{entry.uri} {entry.name}")
    )


def entries_of_unread_keys(case: Case) -> tuple[str, ...]:
    """Files of entries of the GPU stack whose key nobody looked for: apt's common ones, rpm's database."""
    return tuple(
        entry.file
        for entry in known(case.host.machine.repositories) or ()
        if entry.is_enabled and entry.key_present is None and is_of_stack(f"{entry.uri} {entry.name}")
    )


def key_missing(case: Case) -> Claimed:
    if known(case.host.machine.repositories) is None:
        return UNTOLD
    found = keyless_entries(case)
    if found:
        return yes(found[0])
    return UNTOLD if entries_of_unread_keys(case) else no()


def lock_held(case: Case) -> Claimed:
    locks = known(case.host.machine.package_locks)
    if locks is None:
        return UNTOLD
    words = [f"`{x.process}`" + (f" (pid {x.pid})" if x.pid else "") + f" holds {x.lock}" for x in locks]
    return yes(words[0]) if words else no()
