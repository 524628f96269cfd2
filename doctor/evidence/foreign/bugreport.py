"""`nvidia-bug-report.log[.gz]` as evidence: files, commands and kernel logs of script versions 2013-2026.

What is absent is told apart: *does not exist* and a tool that the script did not find are `missing`,
*is not readable* is `denied`, and what `--safe-mode` left out was never asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from doctor.core.evidence import Evidence, ItemStatus
from doctor.evidence.foreign.gather import Gathered, clean_path
from doctor.evidence.foreign.kernelscan import add_kernel_scan, add_ring_buffer
from doctor.evidence.foreign.listing import read_listing, time_of_report
from doctor.evidence.foreign.sections import RULE, Keep, Section, split
from doctor.evidence.foreign.unpack import Unpacker

__all__ = ["is_bug_report", "read_bug_report"]

_KIB, _MIB = 1024, 1024 * 1024
_END = "End of NVIDIA bug report log file."
_TIMES_MAX = 5000
#: Scripts that read three boots are younger than those that first printed build logs.
_AFTER_BUILD_LOGS = "journalctl -b -1 "
_HEAD = "Start of NVIDIA bug report log file"

#: Files whose bytes are read, and how much of them. All others give their metadata only.
_FILES: tuple[tuple[str, Keep], ...] = (
    (r"/var/lib/dkms/.+/make\.log", Keep(head=2 * _KIB, tail=64 * _KIB)),
    (r"/proc/(?:cmdline|version|meminfo)", Keep(head=64 * _KIB)),
    (r"/proc/cpuinfo", Keep(head=16 * _KIB)),
    (r"/proc/modules", Keep(head=512 * _KIB)),
    (r"/proc/driver/nvidia/(?:version|params|gpus/[^/]+/information)", Keep(head=64 * _KIB)),
    (
        r"/etc/(?:os-release|lsb-release|issue|debian_version|redhat-release|fedora-release)",
        Keep(head=16 * _KIB),
    ),
    (r"/etc/modprobe\.d/.+\.conf", Keep(head=64 * _KIB)),
    (r"/var/log/fabricmanager\.log", Keep(tail=64 * _KIB)),
    (r"/proc/sys/kernel/numa_balancing|/sys/kernel/mm/transparent_hugepage/enabled", Keep(head=4 * _KIB)),
)
#: Of any other file: its listing. The name says enough of an application profile.
_LISTED = Keep(head=_KIB)
_READ = tuple((re.compile(pattern), keep) for pattern, keep in _FILES)
_METADATA_ONLY = re.compile(
    r"/usr/share/nvidia/nvidia-application-profiles-[\w.]+-rc|/var/log/nvidia-(?:un)?installer\.log"
)

_FILE_TITLE = re.compile(r"\*\*\* (/.{1,4096}?)( does not exist| is not readable)?")
_COMMAND_TITLE = re.compile(r"(?:/\S+/)?(lspci|nvidia-smi|modinfo|ibstat)( .{1,500})?")
_OLD_SKIP = re.compile(r"Skipping (.{1,100}?) output \((\S{1,60}) not found\)")
_NEW_SKIP = re.compile(r"Skipping: (.{1,100}?)(?: output)?")
_PARAMETER = re.compile(r"/sys/module/([\w-]{1,60})/parameters/(\w{1,100}):(.{0,4096})")

Handler = Callable[["_Report", Section], None]


class _Report:
    """A report while it is read."""

    def __init__(self) -> None:
        self.found = Gathered()
        self.notes: list[str] = []
        self.version = ""
        self.date_line = ""
        self.times: list[tuple[str, str]] = []
        """(clock, UTC) of files under `/proc` and `/sys`: of the boot, or of the report."""
        self.is_whole = False
        self.has_build_logs = False
        self.has_searched = False
        """Whether it went past the place where the script, since 2015, prints DKMS build logs."""

    def listed(self, line: str) -> None:
        """Metadata of a file; it also dates the report."""
        listing = read_listing(line)
        if listing is None:
            return
        path = clean_path(listing.path)
        if path.startswith(("/proc/", "/sys/")) and listing.utc and len(self.times) < _TIMES_MAX:
            self.times.append((listing.clock, listing.utc))
        elif path and (_METADATA_ONLY.fullmatch(path) or _kept(path)):
            self.found.stat(path, **listing.fields)


def is_bug_report(head: bytes) -> bool:
    """Whether a text is a bug report, or a piece of one that lost its beginning."""
    head = head.replace(b"\r\n", b"\n")
    if _HEAD.encode() in head or b"nvidia-bug-report.sh Version:" in head:
        return True
    return (
        head.count(b"\n" + RULE + b"\n") > 1
        and re.search(rb"^\*\*\* ls: |^\*\*\* /", head, re.MULTILINE) is not None
    )


def read_bug_report(stream: Unpacker) -> Evidence:
    """All of the report that is readable. Never raises on any bytes."""
    report = _Report()
    for section in split(_unix(stream), _keep, report.notes):
        report.has_searched = report.has_searched or section.title.startswith(_AFTER_BUILD_LOGS)
        handler = _handler(section.title)
        if handler is not None:
            handler(report, section)
    if report.has_searched and not report.has_build_logs:
        report.found.command(("find", "/var/lib/dkms/nvidia", "-name", "make.log"), b"")
    report.notes += dict.fromkeys(stream.notes)
    if not report.is_whole:
        report.notes.append("its last line is missing: the report is cut, or the script hung")
    if report.notes:
        report.found.note("nvidia-bug-report", "; ".join(dict.fromkeys(report.notes)))
    # The script refuses to run as anybody but root.
    root = True if report.version else None
    return report.found.evidence(
        tool=f"nvidia-bug-report.sh {report.version}".rstrip(),
        taken_at=time_of_report(report.date_line, report.times),
        root=root,
    )


def _unix(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The report with the line ends it was written with: mail programs and editors change them."""
    held = b""
    for chunk in chunks:
        data = held + chunk
        held = b"\r" if data.endswith(b"\r") else b""
        yield data.removesuffix(held).replace(b"\r\n", b"\n")
    yield held


def _kept(path: str) -> Keep | None:
    return next((keep for pattern, keep in _READ if pattern.fullmatch(path)), None)


def _keep(title: str) -> Keep:
    file = _FILE_TITLE.fullmatch(title)
    if file is not None:
        return _kept(clean_path(file.group(1))) or _LISTED
    return next((keep for start, keep, _ in _TITLES if start(title)), Keep())


def _handler(title: str) -> Handler | None:
    if title.startswith("*** "):
        return _file
    return next((handler for start, _, handler in _TITLES if start(title)), None)


def _state(section: Section) -> ItemStatus:
    return "ok" if section.is_ended and not section.is_cut else "truncated"


def _lines(section: Section) -> list[str]:
    return section.body.decode("utf-8", "replace").split("\n")


def _file(report: _Report, section: Section) -> None:
    found = _FILE_TITLE.fullmatch(section.title)
    path = clean_path(found.group(1)) if found is not None else ""
    if found is None or not path:
        for line in (section.title, *_lines(section)[:100]):
            report.listed(line)
        return
    if found.group(2):
        if _kept(path):
            is_missing = "exist" in found.group(2)
            report.found.file(path, None, "missing" if is_missing else "denied", found.group(2).strip())
        return
    first, _, body = section.body.partition(b"\n")
    line = first.decode("utf-8", "replace")
    if line.startswith("*** ls:"):
        report.listed(line)
    else:
        body = section.body
    report.has_build_logs = report.has_build_logs or path.startswith("/var/lib/dkms/")
    if _kept(path):
        _add_body(report, section, path, body)


def _add_body(report: _Report, section: Section, path: str, body: bytes) -> None:
    # The script puts one empty line behind the bytes.
    body = body.removesuffix(b"\n") if section.is_ended else body
    report.found.file(path, body, _state(section))


def _prologue(report: _Report, section: Section) -> None:
    text = section.body.decode("utf-8", "replace")
    version = re.search(r"^nvidia-bug-report\.sh Version: (\S{1,40})", text, re.MULTILINE)
    report.version = version.group(1) if version is not None else ""
    date = re.search(r"^Date: (.{1,200})$", text, re.MULTILINE)
    report.date_line = date.group(1) if date is not None else ""
    uname = re.search(r"^uname: (Linux .*)$", text, re.MULTILINE)
    if uname is not None:
        report.found.command(("uname", "-a"), uname.group(1).encode(), _state(section))
    start = text.find("\nComponent ")
    if start >= 0:
        report.found.command(("nvidia-bug-report.sh", "--versions-table"), text[start + 1 :].encode())


def _command(report: _Report, section: Section) -> None:
    """A section of one command, or of several, each introduced by its own line."""
    runs: list[tuple[str, list[str]]] = [(section.title, [])]
    for line in _lines(section):
        if line.startswith("/") and _COMMAND_TITLE.fullmatch(line.rstrip()):
            runs.append((line.rstrip(), []))
        else:
            runs[-1][1].append(line)
    for number, (title, lines) in enumerate(runs):
        status = "ok" if number < len(runs) - 1 else _state(section)
        report.found.command(_argv(title), "\n".join(lines).strip("\n").encode(), status)


def _argv(title: str) -> tuple[str, ...]:
    words = title.replace('"', "").split()
    return (words[0].rpartition("/")[2], *words[1:])


def _ring_buffer(report: _Report, section: Section) -> None:
    add_ring_buffer(report.found, section.body, is_whole=_state(section) == "ok")


def _scan(report: _Report, section: Section) -> None:
    add_kernel_scan(report.found, section.body)


def _compiler(report: _Report, section: Section) -> None:
    """`gcc -v`, in the caller's language; `g++ -v` follows and says the same."""
    report.found.command(("gcc", "-v"), section.title.encode() + b"\n" + section.body, _state(section))


def _parameters(report: _Report, section: Section) -> None:
    for line in (section.title, *_lines(section)):
        found = _PARAMETER.fullmatch(line)
        if found is not None:
            module, name, value = found.groups()
            report.found.file(f"/sys/module/{module}/parameters/{name}", f"{value}\n".encode())


def _skipped(report: _Report, section: Section) -> None:
    """A tool that was not found is an answer; one left out on request was not asked for."""
    lines = [section.title, *_lines(section)[:4]]
    old, new = _OLD_SKIP.fullmatch(lines[0]), _NEW_SKIP.fullmatch(lines[0])
    if old is not None:
        name = old.group(2)
    elif new is not None and f"{new.group(1)} not found" in "\n".join(lines[1:]):
        name = new.group(1)
    else:
        return
    if name == "nvidia-smi":
        report.found.command(("nvidia-smi", "--query"), None, "missing", f"{name} not found")


def _end(report: _Report, _section: Section) -> None:
    report.is_whole = True


def _begins(*heads: str) -> Callable[[str], bool]:
    return lambda title: title.startswith(heads)


def _is_command(title: str) -> bool:
    return title.startswith("/") and _COMMAND_TITLE.fullmatch(title) is not None


def _is_compiler(title: str) -> bool:
    """`Using built-in specs.` in any language: the one English word stays."""
    return len(title) < 80 and re.search(r"\bspecs?\b", title) is not None


_TITLES: tuple[tuple[Callable[[str], bool], Keep, Handler], ...] = (
    (_begins(_HEAD, "nvidia-bug-report.sh Version:"), Keep(head=64 * _KIB), _prologue),
    (_begins(_END), Keep(), _end),
    (_begins("Scanning kernel log files for NV"), Keep(head=24 * _MIB), _scan),
    (_begins("dmesg:"), Keep(tail=4 * _MIB), _ring_buffer),
    (_begins("/sys/module/"), Keep(head=64 * _KIB), _parameters),
    (_begins("Skipping"), Keep(head=4 * _KIB), _skipped),
    (_is_command, Keep(head=6 * _MIB), _command),
    (_is_compiler, Keep(head=16 * _KIB), _compiler),
)
