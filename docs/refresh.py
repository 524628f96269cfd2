"""Write the generated parts of README.md and docs/ from the code; `--check` only says which are old.

A generated part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from doctor.core.checks import CHECKS
from doctor.core.finding import CheckReport
from doctor.core.judge import judge
from doctor.edition.load import load_matrix
from doctor.errors import EXIT_CODES
from doctor.evidence.bundle import read_bundle
from doctor.facts.read import read_host
from doctor.report.pages import cause_page, finding_page, page_of
from doctor.report.text import render_check

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/checks.md", "docs/findings.md", "docs/causes.md")

#: Recorded hosts whose answers the README shows.
SICK, WELL = "snap-open-1", "healthy-rocky9-proprietary"


def exit_codes() -> str:
    """The table of `doctor.errors`, as Markdown."""
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    return f"| code | meaning |\n|---:|---|\n{rows}"


def sample() -> str:
    """The verdict and the cause of a host whose driver was updated under its feet."""
    verdict, cause, *_ = _answer(SICK).split("\n\n")
    return _console(f"{verdict}\n\n{cause}\n…")


def sample_ready() -> str:
    """The first lines of a host that is well."""
    head, *rest = _answer(WELL).split("\n\n")
    return _console(f"{head}\n…\n{rest[-1].strip()}" if rest else head)


def checks() -> str:
    """Every check with its title, and whether an unknown leaves the verdict open."""
    rows = "\n".join(f"| `{c.id}` | {c.title} | {'yes' if c.is_critical else ''} |" for c in CHECKS)
    return f"| id | what must hold | decides |\n|---|---|---|\n{rows}"


def findings() -> str:
    """The page of every check, as `explain ID` prints it."""
    pages = (finding_page(check, load_matrix()) for check in CHECKS)
    return _pages((*pages, page_of("internal.check_crashed", load_matrix())))


def causes() -> str:
    """The page of every cause, as `explain ID` prints it."""
    return _pages(cause_page(row) for row in load_matrix().edition.causes)


def _pages(pages: Iterable[str]) -> str:
    """One below the other, each heading a level deeper than it stands in a terminal."""
    return "\n\n".join(page.replace("# ", "## ", 1) for page in pages)


def _console(text: str) -> str:
    return f"```console\n$ mopt-doctor check\n{text}\n```"


def _answer(host: str) -> str:
    facts = read_host(read_bundle(ROOT / "tests" / "hosts" / host))
    report: CheckReport = judge(facts, load_matrix(), checks=CHECKS, tool="mopt-doctor")
    return render_check(report, host=facts).strip()


PARTS: dict[str, Callable[[], str]] = {
    "sample": sample,
    "sample-ready": sample_ready,
    "exit-codes": exit_codes,
    "checks": checks,
    "findings": findings,
    "causes": causes,
}


def refreshed(page: str) -> str:
    """The page with each of its generated parts made anew. Raises KeyError on a part nobody makes."""

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}\n{PARTS[match[2]]()}\n{match[3]}"

    return re.sub(r"(<!-- begin: (\S+) -->)\n.*?(<!-- end: \2 -->)", part, page, flags=re.DOTALL)


def main() -> int:
    """Returns 1 under --check when a page is old."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    only_look = parser.parse_args().check
    old = []
    for name in PAGES:
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            old.append(name)
            if not only_look:
                path.write_text(after, encoding="utf-8")
    for name in old:
        sys.stderr.write(f"{name}: {'old: `make docs` writes it again' if only_look else 'written'}\n")
    return int(only_look and bool(old))


if __name__ == "__main__":
    sys.exit(main())
