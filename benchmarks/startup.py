"""CPU time and peak memory of a start: the doctor beside the bare interpreter and beside other doctors.

Every command is started from a process of its own, children included, all commands in turn, 15 rounds; the
best CPU time counts, and the largest peak. Each tool lives in an environment of its own below `--envs DIR`
(kept and used again) or a temporary folder (removed). Returns 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HOST = ROOT / "tests" / "hosts" / "snap-open-1"

#: The bounds of the first release: CPU milliseconds, a share of cuda-doctor's CPU, mebibytes.
VERSION_OVER_BARE_MS = 70.0
CHECK_SHARE_OF_CUDA_DOCTOR = 0.7
CHECK_PEAK_MIB = 45.0

# The peak that the kernel reports for a process includes what its parent held before exec: so the parent
# is a Python with nothing loaded, smaller than anything measured.
MEASURE = """
import os, sys
null = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=null)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


class Case(NamedTuple):
    """A command to measure."""

    name: str
    argv: tuple[str, ...]
    version: str = ""


class Cost(NamedTuple):
    """What a command took. `cpu_ms`: user and system, the best; `peak_mib`: the largest."""

    cpu_ms: float
    peak_mib: float
    exit_code: int


def main() -> int:
    """Measure, print the table, write the result; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="rounds (15)")
    parser.add_argument("--envs", type=Path, metavar="DIR", help="where the environments are kept")
    parser.add_argument(
        "--torch", action="store_true", help="also torch's collect_env; installs torch==2.13.0"
    )
    parser.add_argument(
        "--only-own", action="store_true", help="no other tools: nothing foreign is installed"
    )
    parser.add_argument("--no-save", action="store_true", help="write no file below benchmarks/results/")
    options = parser.parse_args()
    with _folder(options.envs) as envs:
        cases = list(_cases(envs, with_torch=options.torch, only_own=options.only_own))
        costs = measure(cases, options.rounds)
    verdicts = judge(costs)
    for line in (*_table(cases, costs), "", *(text for _, text in verdicts)):
        print(line)
    if not options.no_save:
        _save(cases, costs, verdicts, options.rounds)
    return int(any(holds is False for holds, _ in verdicts))


# --- what is measured -----------------------------------------------------------------------------


def _cases(envs: Path, *, with_torch: bool, only_own: bool) -> Iterator[Case]:
    own = _environment(envs / "mopt-doctor")
    _pip(own, "--force-reinstall", "--no-deps", str(ROOT))
    _pip(own, str(ROOT))
    doctor = str(own.parent / "mopt-doctor")
    version = _version(own, "mopt-doctor")
    yield Case("python -c pass", (str(own), "-c", "pass"), platform.python_version())
    yield Case("mopt-doctor --version", (doctor, "--version"), version)
    yield Case("mopt-doctor check", (doctor, "check"), version)
    yield Case("mopt-doctor check --from", (doctor, "check", "--from", str(HOST)), version)
    if not only_own:
        yield from _foreign(envs, "cuda-doctor", "cuda-doctor==0.2.0", ("cuda-doctor",))
        yield from _foreign(envs, "rapids-cli", "rapids-cli==0.2.0", ("rapids", "doctor"))
    if with_torch:
        yield from _foreign(envs, "torch", "torch==2.13.0", ("python", "-m", "torch.utils.collect_env"))
    else:
        print("SKIPPED: torch.utils.collect_env: give --torch; it installs torch")


def _foreign(envs: Path, name: str, requirement: str, argv: tuple[str, ...]) -> Iterator[Case]:
    """Another tool, in its own environment; said aloud when it cannot be had."""
    python = _environment(envs / name)
    try:
        _pip(python, requirement)
    except subprocess.CalledProcessError as error:
        print(f"SKIPPED: {' '.join(argv)}: pip could not install {requirement}: {_last_line(error.stderr)}")
        return
    yield Case(" ".join(argv), (str(python.parent / argv[0]), *argv[1:]), _version(python, name))


def _environment(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([str(ROOT / ".ci" / "make-venv"), str(folder)], check=True)
    return python


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _version(python: Path, distribution: str) -> str:
    program = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    return subprocess.run(
        [str(python), "-I", "-c", program, distribution], check=True, capture_output=True, text=True
    ).stdout.strip()


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="mopt-benchmark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# --- measuring ------------------------------------------------------------------------------------


def measure(cases: list[Case], rounds: int) -> dict[str, Cost]:
    """The cost of each case; one round goes through all of them, so that a busy moment hits all alike."""
    for case in cases:
        once(case)  # fills the page cache and writes byte code
    taken: dict[str, list[Cost]] = {case.name: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            taken[case.name].append(once(case))
    return {
        name: Cost(min(c.cpu_ms for c in all_), max(c.peak_mib for c in all_), all_[-1].exit_code)
        for name, all_ in taken.items()
    }


def once(case: Case) -> Cost:
    """One run, with the processes that it started and waited for."""
    folder = os.path.dirname(case.argv[0])  # noqa: PTH120 - argv is text
    environment = {"PATH": f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"}
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURE, *case.argv],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
    ).stdout.split()
    return Cost(float(said[0]) * 1000, int(said[1]) / 1024, int(said[2]))


def judge(costs: dict[str, Cost]) -> list[tuple[bool | None, str]]:
    """Each bound: whether it holds (None: cannot be told), and a line that says so."""
    over = costs["mopt-doctor --version"].cpu_ms - costs["python -c pass"].cpu_ms
    check = costs["mopt-doctor check"]
    verdicts: list[tuple[bool | None, str]] = [
        _bound("--version over the bare interpreter", over, VERSION_OVER_BARE_MS, "ms CPU"),
        _bound("check, peak memory", check.peak_mib, CHECK_PEAK_MIB, "MiB"),
    ]
    other = costs.get("cuda-doctor")
    if other is None:
        verdicts.append((None, "unknown  check against cuda-doctor: it was not measured"))
    else:
        share = check.cpu_ms / other.cpu_ms
        verdicts.append(
            _bound("check, share of cuda-doctor's CPU", share, CHECK_SHARE_OF_CUDA_DOCTOR, "", digits=2)
        )
    return verdicts


def _bound(what: str, value: float, most: float, unit: str, *, digits: int = 1) -> tuple[bool, str]:
    holds = value <= most
    text = f"{'pass' if holds else 'FAIL'}  {what}: {value:.{digits}f} {unit}".rstrip()
    return holds, f"{text} (at most {most:g})"


# --- saying it ------------------------------------------------------------------------------------


def _table(cases: list[Case], costs: dict[str, Cost]) -> Iterator[str]:
    yield f"{'command':<42} {'version':<12} {'CPU ms':>8} {'peak MiB':>9} {'exit':>5}"
    for case in cases:
        cpu_ms, peak_mib, code = costs[case.name]
        yield f"{case.name:<42} {case.version:<12} {cpu_ms:>8.1f} {peak_mib:>9.1f} {code:>5}"


def _save(
    cases: list[Case], costs: dict[str, Cost], verdicts: list[tuple[bool | None, str]], rounds: int
) -> None:
    now = dt.datetime.now(dt.timezone.utc)
    document = {
        "taken_at": now.isoformat(timespec="seconds"),
        "rounds": rounds,
        "machine": _machine(),
        "commands": {c.name: {"version": c.version, **costs[c.name]._asdict()} for c in cases},
        "bounds": [{"holds": holds, "text": text} for holds, text in verdicts],
    }
    target = ROOT / "benchmarks" / "results" / f"startup-{now:%Y-%m-%d}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"\nwritten: {target.relative_to(ROOT)}")


def _machine() -> dict[str, object]:
    """What the numbers depend on; nothing that names the machine."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
