"""Kernel log text to messages about the GPU stack: prefixes off, broken lines joined, kinds named.

Forms read: `dmesg` (with or without level and caller), `journalctl -k`, syslog files. The wording is
that of the driver's branches 304 to 620 and of Linux 3.10 to 6.18.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator

from doctor.core.host import KernelMessage, MessageKind, Sxid, Xid
from doctor.core.pattern import pattern
from doctor.facts.source import pci_address

__all__ = ["count_sxids", "count_xids", "is_whole_boot", "read_messages"]

#: A line that holds none of these says nothing about the GPU stack.
_RELEVANT = (
    "NVRM",
    "nvidia",
    "nouveau",
    "nova_",
    "nova-",
    "vfio-pci",
    "Lockdown:",
    "locked down",
    "is rejected",
    "PKCS#7 sig",
    "can't assign",
    "failed to assign",
    "PM: suspend exit",
    "ibernation exit",
)
#: How a message may begin where nothing stands before it.
_BARE = (
    "NVRM",
    "nvidia",
    "nouveau",
    "pci ",
    "Lockdown",
    "Kernel is locked",
    "Loading of",
    "PKCS",
    "modprobe: ",
    "insmod: ",
)
_KERNEL_TAG = " kernel: "
_STAMP = pattern(
    r"\s*(?:<\d{1,3}>)?(?:\w+\s*:\w+\s*:\s)?"
    # Seconds, with or without the step from the line before (`-d`); the step alone, or a date (`-H`, `-T`).
    r"\[\s*(?:(\d{1,12}\.\d{1,9})(?: <\s*\d{1,12}\.\d{1,9}>)?|[+<]\s*\d{1,12}\.\d{1,9}>?"
    r"|[A-Z][a-z]{2}[ \d][^\]]{1,40})\]\s?"
)
_CALLER = pattern(r"\[\s*[TC]\d{1,10}\]\s?")
_GPU = pattern(r"\b(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)(?![0-9a-fA-F:])")
_SXID = pattern(
    r"nvidia-nvswitch\d{0,3}: SXid \((?:PCI:)?([0-9a-f:.]{7,20})\): (\d{1,6}), "
    r"(?!Severity |Data )(Fatal|Non-fatal)?",
    re.IGNORECASE,
)
_XID = pattern(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{1,5})\b")

#: Openings of NVRM texts that go on over several lines.
_HEADS = ("API mismatch", "The NVIDIA ", "This PCI I/O", "The system BIOS", "This is a ", "A GPU crash dump")
#: How a following line of such a text may begin, apart from a blank, a bracket or a small letter.
_REST = ("BAR", "This can occur", "Try unloading", "System Processor", "Please see", "Firmware' ", "NVIDIA ")
#: Small letters that begin a message of their own: names of functions.
_NOT_REST = pattern(r"rm_|gpu[A-Z]|nv[A-Z_]|_?k[a-z]+[A-Z]|loading |iovaspace|os[A-Z]|dma|obj[A-Z]")
_JOINED_MAX = 14
_TEXT_MAX = 2000
_MESSAGES_MAX = 3000
_LOG_MAX = 16 * 1024 * 1024

#: Where the kernel stopped in one of the driver's own modules: `RIP` on x86, `pc` on ARM.
_STOPPED_IN = pattern(
    r"(?:RIP: [0-9a-f]{4}:|\bpc : )([\w.]{1,100}\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8} "
    r"\[nvidia(?:_uvm|_modeset|_drm|_peermem)?[\] ])"
)
#: What a report of the kernel about a fault of its own begins with.
_OOPS = (
    "BUG: kernel NULL pointer",
    "BUG: unable to handle",
    "kernel BUG at",
    "Unable to handle kernel",
    "Internal error: Oops",
    "Oops: ",
)
#: These show a place as well, and nothing was stopped there; or an earlier report ends here.
_NO_OOPS = ("WARNING: ", "soft lockup", "hard LOCKUP", "---[ end trace")
_OOPS_LINES = 60
#: Joins the two; the kernel itself does not print it.
_AT = ", stopped at "

#: The first row with a phrase that is found names the kind. Phrases instead of patterns: 18 patterns
#: cost 3 ms of CPU at import.
_KINDS: tuple[tuple[MessageKind, tuple[str, ...]], ...] = (
    ("xid", ("NVRM: Xid (",)),
    ("sxid", (": SXid (",)),
    ("oops", (_AT,)),
    ("api_mismatch", ("API mismatch",)),
    ("open_modules_required", ("requires use of the NVIDIA open kernel modules",)),
    ("legacy_gpu", ("Legacy drivers",)),
    (
        "unsupported_gpu",
        ("is not supported by open", "is not supported by the", "required GPU System Processor"),
    ),
    ("fallen_off_bus", ("fallen off the bus",)),
    ("nouveau", ("nouveau",)),
    ("no_devices_probed", ("No NVIDIA GPU", "No NVIDIA device", "No NVIDIA graphics", "None of the NVIDIA")),
    ("probe_failed", ("probe routine", "probe of ", "probe with driver nvidia failed", "already bound")),
    ("bar", ("PCI I/O region", "misconfigured your GPU", "can't assign", "failed to assign", "no space")),
    ("gsp", ("GSP", "GFW_BOOT", "GfwBoot", "kgsp", "Kgsp", "gsp_")),
    ("init_failed", ("RmInitAdapter", "rm_init_adapter", "NvKmsKapiDevice", "failed to register device")),
    ("module_verification", ("module verification failed",)),
    ("lockdown", ("Lockdown: ", "locked down from")),
    ("module_signature_rejected", (" is rejected", "PKCS#7 signature", "ey was rejected")),
    ("module_symbol", ("Unknown symbol", "disagrees about version of symbol", "version magic")),
    ("loading", ("NVRM: loading NVIDIA",)),
    ("uvm", ("nvidia-uvm", "nvidia_uvm", "UVM")),
    ("sleep", ("PM: suspend exit", "ibernation exit")),
)
_BAR = pattern(r"\bBAR ?\d+ is ")
#: The kernel's own words, Debian's, and the driver's; other drivers load from `nvidia/CHIP/` instead.
_FIRMWARE = pattern(
    r"Direct firmware load for nvidia/\d[\d.]*/gsp\S* failed with error -2\b"
    r"|failed to load nvidia/\d[\d.]*/gsp\S* \(-2\)|No firmware image found"
)
_DEVICE_ID = pattern(r"\(PCI ID: ?(10[dD][eE]:[0-9a-fA-F]{4})\)")


def read_messages(text: str) -> list[KernelMessage]:
    """The messages of one log about the GPU stack, in the log's order; the newest when there are many.

    A line of another origin (an X server, a package manager) is left out where the log names origins.
    """
    # Naming the kind costs most: only of what is kept.
    newest = deque(_joined(_lines(text)), maxlen=_MESSAGES_MAX)
    return [_message(seconds, said) for seconds, said in newest]


def is_whole_boot(text: str) -> bool:
    """True when a log begins with the kernel's first message, so that nothing has been lost before it."""
    head = text[:8000]
    return "Linux version " in head or re.search(r"\[\s*0\.000000\]", head) is not None


def _lines(text: str) -> Iterator[tuple[float | None, str, bool]]:
    """(seconds, message, has a prefix of its own) of each line that matters.

    The kernel prints names as they are: a program whose name holds a newline and the words of a message
    makes a line that only its margin gives away. So in a log whose lines have prefixes, a line with a
    deeper margin may continue a message of the driver, and never begins one.
    """
    lines = text[-_LOG_MAX:].splitlines()
    margin, is_open = _margin_of(lines), False
    for number, line in enumerate(lines):
        is_deeper = margin is not None and len(line) - len(line.lstrip()) > margin
        if not any(phrase in line for phrase in _RELEVANT):
            is_open = is_open and is_deeper
            continue
        if is_deeper:
            if is_open:
                yield None, line.rstrip()[:_TEXT_MAX], False
            continue
        seconds, message, has_prefix = _parted(line)
        if "+0x" in message and (oops := _oops(lines, number, message)):
            message = oops
        is_open = message.startswith("NVRM:") and message[5:].lstrip().startswith(_HEADS)
        if has_prefix or _is_bare(line):
            yield seconds, message.rstrip()[:_TEXT_MAX], has_prefix


def _oops(lines: list[str], number: int, message: str) -> str:
    """A fault of the kernel inside the driver, its first line and the place; empty for any other line."""
    place = _STOPPED_IN.match(message)
    if place is None:
        return ""
    head = ""
    for line in reversed(lines[max(0, number - _OOPS_LINES) : number]):
        if any(phrase in line for phrase in _NO_OOPS):
            break
        said = _parted(line)[1].strip()
        head = said if said.startswith(_OOPS) else head
    return f"{head[:300]}{_AT}{place.group(1).strip()}" if head else ""


def _margin_of(lines: list[str]) -> int | None:
    """How far lines with a clock or an origin are indented; None for a log whose prefixes were cut off."""
    with_prefix = [line for line in lines[:200] if _KERNEL_TAG in f" {line}" or _STAMP.match(line)]
    return min((len(line) - len(line.lstrip()) for line in with_prefix), default=None)


def _parted(line: str) -> tuple[float | None, str, bool]:
    """Seconds since boot, message, and whether a clock or an origin stood before it."""
    # Where host and clock were cut off, the tag begins the line.
    head, tag, rest = f" {line}".partition(_KERNEL_TAG)
    has_tag = bool(tag) and len(head) < 200 and not head.lstrip().startswith("NVRM")
    message = rest if has_tag else line
    stamp = _STAMP.match(message)
    seconds = float(stamp.group(1)) if stamp is not None and stamp.group(1) else None
    if stamp is not None:
        message = message[stamp.end() :]
        caller = _CALLER.match(message)
        message = message[caller.end() :] if caller is not None else message
    return seconds, message, has_tag or stamp is not None


def _is_bare(line: str) -> bool:
    """A line without time or origin: a continuation, or a log whose prefixes were cut off.

    Syslog lines of other programs that quote the driver begin with a date and end up nowhere.
    """
    return line.lstrip().startswith(_BARE)


def _joined(lines: Iterator[tuple[float | None, str, bool]]) -> Iterator[tuple[float | None, str]]:
    """Texts that the driver prints over several lines, put together again."""
    seconds, parts = None, list[str]()
    for stamp, line, has_prefix in lines:
        if parts and len(parts) < _JOINED_MAX and _goes_on(parts[0], line, has_prefix=has_prefix):
            parts.append(line.strip().removeprefix("NVRM:").strip())
            continue
        if parts:
            yield seconds, " ".join(parts)
        seconds, parts = stamp, [line.strip()]
    if parts:
        yield seconds, " ".join(parts)


def _goes_on(head: str, line: str, *, has_prefix: bool) -> bool:
    said = line.strip()
    if not head.startswith("NVRM:") or not said.startswith("NVRM:"):
        return False
    # dmesg and the journal leave the prefix of a continuation blank; syslog repeats it.
    if not has_prefix and line[:2].isspace():
        return True
    rest = said[6:]
    begins = rest[:1].isspace() or rest[:1] == "(" or rest[:1].islower() or rest.startswith(_REST)
    return begins and head[6:].startswith(_HEADS) and not _NOT_REST.match(rest)


def _message(seconds: float | None, text: str) -> KernelMessage:
    text = text[:_TEXT_MAX]
    found = _GPU.search(text)
    gpu = pci_address(found.group(1)) if found is not None else ""
    named = _DEVICE_ID.search(text)
    device_id = named.group(1).lower() if named is not None else ""
    return KernelMessage(kind=_kind(text), text=text, gpu=gpu, device_id=device_id, seconds=seconds)


def _kind(text: str) -> MessageKind:
    if _BAR.search(text):
        return "bar"
    if _FIRMWARE.search(text):
        return "firmware_missing"
    return next((kind for kind, phrases in _KINDS if any(phrase in text for phrase in phrases)), "other")


def count_xids(messages: list[KernelMessage]) -> tuple[Xid, ...]:
    """Xid events by code and GPU, in the order of their first report."""
    counts: Counter[tuple[int, str]] = Counter()
    first: dict[tuple[int, str], KernelMessage] = {}
    for message in messages:
        found = _XID.search(message.text) if message.kind == "xid" else None
        if found is not None:
            event = (int(found.group(2)), pci_address(found.group(1)))
            counts[event] += 1
            first.setdefault(event, message)
    return tuple(
        Xid(code=e[0], gpu=e[1], count=n, first_text=first[e].text, first_seconds=first[e].seconds)
        for e, n in counts.items()
    )


def count_sxids(messages: list[KernelMessage]) -> tuple[Sxid, ...]:
    """SXid events by code, switch and severity, in the order of their first report.

    Each event has further lines (`Severity`, `Data`) that count for nothing.
    """
    counts: Counter[tuple[int, str, bool | None]] = Counter()
    first: dict[tuple[int, str, bool | None], str] = {}
    for message in messages:
        found = _SXID.search(message.text) if message.kind == "sxid" else None
        if found is not None:
            word = (found.group(3) or "").lower()
            is_fatal = word == "fatal" if word else None
            event = (int(found.group(2)), pci_address(found.group(1)), is_fatal)
            counts[event] += 1
            first.setdefault(event, message.text)
    return tuple(
        Sxid(code=e[0], switch=e[1], is_fatal=e[2], count=n, first_text=first[e]) for e, n in counts.items()
    )
