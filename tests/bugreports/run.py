"""`make bugreports DIR=…`: public bug reports judged against what they are known to say.

The logs are not in this repository: `truth.yaml` names where each lies in public. Files are found by
their sha256, whatever their name. Without any of them this says so and ends with 0.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from time import process_time

import msgspec
import yaml

from doctor.core.evidence import Evidence
from doctor.core.finding import CheckReport
from doctor.core.host import Fact, Host, Known, known
from doctor.core.judge import judge
from doctor.edition.load import load_matrix
from doctor.evidence.open import open_evidence
from doctor.facts.filelogs import xids_by_source
from doctor.facts.messages import read_messages
from doctor.facts.read import read_host

HERE = Path(__file__).parent
CPU_S_MAX = 3.0
SAMPLES = HERE.parent / "data"


class Truth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One log of `truth.yaml`; the fields are explained there."""

    id: str
    repository: str
    path: str
    commit: str
    sha256: str
    script: str
    os: tuple[str, str]
    kernel: str
    gpus: tuple[tuple[str, str, str], ...]
    module: str | None
    flavour: str | None
    vermagic: str
    build_logs: tuple[str, ...]
    userspace: str | None
    secure_boot: str | None
    xids: dict[str, dict[str, int]]
    lines: dict[str, dict[str, int]]
    state: str
    first: tuple[str, ...]
    must_not: tuple[str, ...]


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What the product made of one log."""

    evidence: Evidence
    host: Host
    report: CheckReport
    cpu_s: float


def truths() -> tuple[Truth, ...]:
    """All logs of `truth.yaml`, checked field by field."""
    document = yaml.safe_load((HERE / "truth.yaml").read_text())
    return msgspec.convert(document["logs"], tuple[Truth, ...])


def read(path: Path) -> Read:
    """One log, all the way."""
    start = process_time()
    evidence = open_evidence(path)
    host = read_host(evidence)
    report = judge(host, load_matrix(), tool="mopt-doctor bugreports")
    return Read(evidence=evidence, host=host, report=report, cpu_s=process_time() - start)


# --- facts ------------------------------------------------------------------------------------------


def _os(got: Read) -> object:
    system = known(got.host.system.os)
    return (system.id, system.version) if system else None


def _gpus(got: Read) -> object:
    return tuple((d.address, d.device_id, d.driver) for d in got.host.gpus_on_bus)


def _raw(fact: Fact) -> object:
    value = known(fact)
    return value.raw if value is not None else None


def _vermagic(got: Read) -> str:
    kernels = known(got.host.kernel.installed) or ()
    running = next((k for k in kernels if k.release == known(got.host.kernel.release)), None)
    files = known(running.nvidia_modules) if running is not None else None
    return (files[0].vermagic.split() or [""])[0] if files else ""


def _build_logs(got: Read) -> object:
    builds = known(got.host.kernel.dkms) or ()
    return tuple(sorted(f"{b.version}/{b.kernel}" for b in builds if b.module == "nvidia"))


def _xids(got: Read) -> object:
    by_source = xids_by_source(got.evidence).items()
    return {s: {f"{x.gpu.rpartition('.')[0]} {x.code}": x.count for x in xids} for s, xids in by_source}


FACTS: tuple[tuple[str, Callable[[Read], object], Callable[[Truth], object]], ...] = (
    ("script", lambda got: got.evidence.meta.tool.rpartition(" ")[2], lambda t: t.script),
    ("os", _os, lambda t: t.os),
    ("kernel", lambda got: known(got.host.kernel.release), lambda t: t.kernel),
    ("gpus", _gpus, lambda t: t.gpus),
    ("module", lambda got: _raw(got.host.driver.kernel_version), lambda t: t.module),
    ("flavour", lambda got: known(got.host.driver.flavour), lambda t: t.flavour),
    ("vermagic", _vermagic, lambda t: t.vermagic),
    ("build logs", _build_logs, lambda t: tuple(sorted(t.build_logs))),
    ("userspace", lambda got: _raw(got.host.driver.userspace_version), lambda t: t.userspace),
    ("secure boot", lambda got: known(got.host.kernel.secure_boot), lambda t: t.secure_boot),
    ("xids", _xids, lambda t: t.xids),
)


def line_counts(got: Read, text: str) -> dict[str, int]:
    """Messages that say a text, by source; `API mismatch: client A, module B` stands for its four lines."""
    words = text.removeprefix("API mismatch: ").replace("client ", "version ").split(", module ")
    found = {}
    for item in got.evidence.meta.items:
        name = (
            item.key.removeprefix("file:") if item.key.startswith("file:/var/log/") else " ".join(item.argv)
        )
        reading = got.evidence.read(item.key)
        if name.startswith(("/var/log/", "dmesg", "journalctl")) and reading.has_data:
            count = sum(
                all(word in message.text for word in words) for message in read_messages(reading.text)
            )
            if count:
                found[name] = count
    return found


# --- verdicts ---------------------------------------------------------------------------------------


def claimed(report: CheckReport) -> set[str]:
    """Ids of everything the report holds against the host."""
    ids = {i for c in report.causes for i in (c.id, *c.refined_by)} | {a.id for a in report.advice}
    return (ids | {f.id for f in report.findings if f.status in ("fail", "warn")}) - {"unknown"}


def faults(truth: Truth, got: Read) -> Iterator[str]:
    """What is wrong about an answer, a sentence each."""
    for name, ours, theirs in FACTS:
        if ours(got) != theirs(truth):
            yield f"{name}: read {ours(got)!r}, the log says {theirs(truth)!r}"
    for text, wanted in truth.lines.items():
        if line_counts(got, text) != wanted:
            yield f"`{text}`: counted {line_counts(got, text)}, the log has {wanted}"
    yield from _wrong_verdicts(truth, got.report)
    if got.cpu_s > CPU_S_MAX:
        yield f"{got.cpu_s:.1f} s of CPU, at most {CPU_S_MAX:g}"


def _wrong_verdicts(truth: Truth, report: CheckReport) -> Iterator[str]:
    first = report.causes[0].id if report.causes else ""
    if truth.first and first not in truth.first:
        yield f"first cause: `{first}`, expected {' or '.join(truth.first)}"
    if not truth.first and first not in ("", "unknown"):
        yield f"named `{first}` where the log shows no cause"
    wrong = sorted(i for i in claimed(report) if any(fnmatchcase(i, glob) for glob in truth.must_not))
    if wrong:
        yield f"must not claim {', '.join(wrong)}"
    if truth.state == "broken" and report.verdict == "ready":
        yield "verdict `ready` on a host that was broken"
    if truth.state == "working" and report.verdict == "not_ready":
        yield "verdict `not_ready` on a host that worked"


def files_by_hash(folder: Path) -> dict[str, Path]:
    """sha256 -> file, of all files in a folder."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
    return {hashlib.sha256(p.read_bytes()).hexdigest(): p for p in paths}


def main() -> int:
    """Judge what is there; 1 when an answer is wrong, 0 otherwise and where no log is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="write the table of what was read into this page")
    options = parser.parse_args()
    files, answers, bad = files_by_hash(options.folder), list[tuple[Truth, Read]](), 0
    for truth in truths():
        path = files.get(truth.sha256)
        if path is None:
            _say(f"SKIPPED {truth.id}: no file with its sha256 in {options.folder}")
            _say(f"        it is {truth.path} of {truth.repository} at {truth.commit}")
            continue
        got = read(path)
        answers.append((truth, got))
        wrong = list(faults(truth, got))
        bad += bool(wrong)
        cause = got.report.causes[0].id if got.report.causes else "no cause"
        _say(f"{'WRONG' if wrong else 'right'} {truth.id}: {got.report.verdict}, {cause}, {got.cpu_s:.2f} s")
        for fault in wrong:
            _say(f"        {fault}")
    _say(f"{len(answers)} judged, {bad} wrong, {len(truths()) - len(answers)} skipped")
    if options.docs is not None:
        parts = {"pastes": pastes()}
        if len(answers) == len(truths()):
            parts["bug-reports"] = "\n".join(_table(answers))
        options.docs.write_text(with_parts(options.docs.read_text(), parts))
    return 1 if bad else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


# --- the table of docs/foreign-reports.md ------------------------------------------------------------

#: Columns: what a person looks for first, and the fact it comes from.
COLUMNS: tuple[tuple[str, Callable[[Host], Fact]], ...] = (
    ("OS", lambda h: h.system.os),
    ("kernel", lambda h: h.kernel.release),
    ("place", lambda h: h.system.virtualisation),
    ("GPUs on the bus", lambda h: h.pci),
    ("loaded module", lambda h: h.driver.kernel_version),
    ("flavour", lambda h: h.driver.flavour),
    ("module on disk", lambda h: h.kernel.installed),
    ("dkms", lambda h: h.kernel.dkms),
    ("user space", lambda h: h.driver.userspace_version),
    ("nvidia-smi", lambda h: h.driver.smi),
    ("Secure Boot", lambda h: h.kernel.secure_boot),
    ("kernel log, boots", lambda h: h.kernel.logs),
)


def cell(name: str, fact: Fact) -> str:
    """A fact as the table shows it."""
    if isinstance(fact, Known):
        return str(len(fact.value)) if name == "kernel log, boots" else "yes"
    return {"not_installed": "none", "not_collected": "-"}.get(fact.reason, fact.reason)


def row(label: str, host: Host, *, answer: str) -> str:
    cells = [cell(name, fact(host)) for name, fact in COLUMNS]
    return f"| {' | '.join([label, *cells, answer])} |"


def header(first: str) -> list[str]:
    names = [first, *(name for name, _ in COLUMNS), "verdict"]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


#: Samples of what people paste, each with the name the table gives it.
PASTES: tuple[tuple[str, str], ...] = (
    ("`vllm collect-env`", "foreign/collect-env-vllm.txt"),
    ("torch `collect_env`, in WSL2", "foreign/collect-env-torch.txt"),
    ("`nvidia-smi`", "foreign/nvidia-smi.txt"),
    ("`nvidia-smi -q`", "h200/nvidia-smi-q.txt"),
    ("`lspci -nnk`", "foreign/lspci-nnk.txt"),
    ("`dkms status`", "foreign/dkms-status.txt"),
    ("`journalctl -k`", "foreign/journal.txt"),
    ("`dmesg`", "foreign/dmesg.txt"),
    ("an issue text with six of them", "foreign/issue.md"),
)


def pastes() -> str:
    """The table of pasted forms, from the samples of this repository."""
    lines = header("pasted")
    for label, name in PASTES:
        got = read(SAMPLES / name)
        lines.append(row(label, got.host, answer=verdict_words(got.report)))
    return "\n".join(lines)


def with_parts(page: str, parts: dict[str, str]) -> str:
    """A page with its generated parts written anew."""
    for name, text in parts.items():
        head, begin, rest = page.partition(f"<!-- begin: {name} -->\n")
        _, end, tail = rest.partition(f"<!-- end: {name} -->")
        if not (begin and end):
            raise SystemExit(f"the page has no part `{name}`")
        page = f"{head}{begin}{text}\n{end}{tail}"
    return page


def verdict_words(report: CheckReport) -> str:
    verdict = report.verdict.replace("_", " ")
    cause = report.causes[0].id if report.causes else ""
    return f"{verdict}: `{cause}`" if cause and cause != "unknown" else verdict


def _table(answers: list[tuple[Truth, Read]]) -> Iterator[str]:
    yield from header("script")
    for truth, got in answers:
        yield row(truth.script, got.host, answer=verdict_words(got.report))


if __name__ == "__main__":
    sys.exit(main())
