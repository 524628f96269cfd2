"""`make fuzz`: mutants through the readers, some of them through the command itself.

Each runs in a process of its own, which must end by itself with an exit code of the table, without a
traceback, within 2 s and 300 MB, and print nothing that a terminal would obey.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from doctor.commands.check import run as _command  # noqa: E402, F401 - loaded before the first fork
from doctor.core.judge import judge_scopes  # noqa: E402
from doctor.edition.load import load_matrix  # noqa: E402
from doctor.errors import EXIT_CODES, DoctorError  # noqa: E402
from doctor.evidence.open import open_evidence  # noqa: E402
from doctor.facts.read import read_scopes  # noqa: E402
from doctor.report.machine import to_json  # noqa: E402
from doctor.report.text import render_check  # noqa: E402
from tests.fuzz.mutants import mutant  # noqa: E402

LIMIT_S = 2.0
LIMIT_MB = 300
#: What answers may end with; 70 says that the product has a bug.
CODES = frozenset(EXIT_CODES) & {0, 1, 2, 3}
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CRASH = 99


def in_process(path: Path) -> int:
    """What `check --from` does, without its start; the exit code, or `_CRASH` with a traceback on stderr."""
    try:
        hosts = read_scopes(open_evidence(path))
        report = judge_scopes(hosts, load_matrix(), tool="mopt-doctor fuzz")
        said = render_check(report, width=80, verbose=True, host=hosts[0], others=hosts[1:])
        to_json(report)
        for host in hosts:
            to_json(host)
    except DoctorError as error:
        return error.exit_code
    except BaseException:  # noqa: BLE001 - any other way out is what this looks for
        traceback.print_exc()
        return _CRASH
    crashed = [f.found for f in report.findings if f.id == "internal.check_crashed"]
    if crashed or _OBEYED.search(said):
        sys.stderr.write(f"{crashed or 'control characters in the answer'}\n")
        return _CRASH
    return report.exit_code


def forked(path: Path, log: Path) -> tuple[int, float, float]:
    """(exit code, seconds, MB) of one mutant in a child."""
    start = monotonic()
    child = os.fork()
    if not child:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        os._exit(in_process(path))
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), monotonic() - start, usage.ru_maxrss / 1024


def commanded(path: Path, log: Path) -> tuple[int, float, float]:
    """The same of the command itself."""
    start = monotonic()
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "doctor", "check", "--from", str(path), "--no-color"]
        child = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, monotonic() - start, usage.ru_maxrss / 1024


def faults(code: int, seconds: float, megabytes: float, said: str) -> list[str]:
    """What is wrong about how one mutant ended."""
    found = []
    if code not in CODES:
        found.append(f"exit code {code}")
    if "Traceback" in said or (code == 2 and "mopt-doctor" in said and _OBEYED.search(said)):
        found.append("a traceback, or control characters")
    if seconds > LIMIT_S:
        found.append(f"{seconds:.1f} s")
    if megabytes > LIMIT_MB:
        found.append(f"{megabytes:.0f} MB")
    return found


def main() -> int:
    """Run the mutants; 1 when one of them broke a rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--command", type=int, default=100, help="how many of them go through the command")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where mutants that broke a rule are kept")
    options = parser.parse_args()
    load_matrix()
    bad, codes, slowest, largest = 0, dict[int, int](), 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="mopt-fuzz-") as folder:
        path, log = Path(folder) / "mutant", Path(folder) / "log"
        for number in range(options.count):
            seed = options.seed + number
            name, data = mutant(seed)
            path.write_bytes(data)
            runner = commanded if number < options.command else forked
            code, seconds, megabytes = runner(path, log)
            said = log.read_text(errors="replace")
            codes[code] = codes.get(code, 0) + 1
            slowest, largest = max(slowest, seconds), max(largest, megabytes)
            if wrong := faults(code, seconds, megabytes, said):
                bad += 1
                sys.stdout.write(
                    f"seed {seed} ({name}, {len(data)} bytes): {', '.join(wrong)}\n{said[-1500:]}\n"
                )
                if options.keep is not None:
                    (options.keep / f"mutant-{seed}").write_bytes(data)
    ends = ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items()))
    sys.stdout.write(
        f"{options.count} mutants, {min(options.command, options.count)} through the command: {ends}; "
        f"slowest {slowest:.2f} s, largest {largest:.0f} MB; {bad} broke a rule\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
