"""The public cases by their error lines alone: how often `explain` names the right cause.

`python -m tests.cases.texts [--leave-one-out] [-v]` prints the figures. Under --leave-one-out a signature
whose every positive example is a line of the case that is judged, numbers aside, is left out for that case.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from doctor.commands.explain import explain_text
from doctor.core.explain import ExplainReport
from doctor.core.logline import plain
from doctor.core.matrix import Matrix
from doctor.core.rows.signature import SignatureRow
from doctor.evidence.logtext import of_bytes
from tests.editions import tree_matrix

CASES = yaml.safe_load(
    (Path(__file__).parent.parent / "data" / "cases-text.yaml").read_text(encoding="utf-8")
)["cases"]

_ID = re.compile(r"[a-z]+\.[a-z0-9_*]+")


class Judged(NamedTuple):
    """One case with its answer."""

    case: dict[str, Any]
    report: ExplainReport

    @property
    def named(self) -> list[str]:
        return [named.id for named in self.report.causes]

    @property
    def is_first(self) -> bool:
        return self.named[:1] == [self.case["cause"]]

    @property
    def is_in_three(self) -> bool:
        return self.case["cause"] in self.named[:3]

    @property
    def wrongly_named(self) -> list[str]:
        """Causes named with more than *possible* that the case forbids."""
        forbidden = [text for text in self.case.get("must_not", ()) if _ID.fullmatch(text)]
        patterns = [re.compile(re.escape(text).replace(r"\*", ".*")) for text in forbidden]
        sure = [named.id for named in self.report.causes if named.confidence != "possible"]
        return [cause for cause in sure if any(pattern.fullmatch(cause) for pattern in patterns)]


def judged(*, leave_one_out: bool = False) -> list[Judged]:
    matrix = tree_matrix()
    return [Judged(case, _explained(case, matrix, leave_one_out=leave_one_out)) for case in CASES]


def _explained(case: dict[str, Any], matrix: Matrix, *, leave_one_out: bool) -> ExplainReport:
    text = of_bytes("\n".join(case["lines"]).encode())
    if leave_one_out:
        kept = tuple(row for row in matrix.edition.signatures if not rests_on(row, case))
        edition = _with(matrix, kept)
        return explain_text(text, edition)
    return explain_text(text, matrix)


def _with(matrix: Matrix, signatures: tuple[SignatureRow, ...]) -> Matrix:
    import msgspec

    return Matrix(msgspec.structs.replace(matrix.edition, signatures=signatures))


def rests_on(row: SignatureRow, case: dict[str, Any]) -> bool:
    """Whether every positive example of a signature is of this case."""
    whole = bare(" ".join(case["lines"]))
    return all(all(bare(line) in whole for line in text.split("\n")) for text in row.positive)


def bare(text: str) -> str:
    """The words of a text, without numbers and punctuation."""
    return re.sub(r"[\d\W_]+", " ", plain(text)).strip().lower()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="the cases that are not first")
    options = parser.parse_args()
    found = judged(leave_one_out=options.leave_one_out)
    first, three = sum(one.is_first for one in found), sum(one.is_in_three for one in found)
    wrong = sum(bool(one.wrongly_named) for one in found)
    sys.stdout.write(
        f"{len(found)} cases: first {first} ({first / len(found):.1%}),"
        f" in three {three} ({three / len(found):.1%}), wrongly named {wrong}\n"
    )
    for one in found:
        if options.verbose and (not one.is_first or one.wrongly_named):
            sys.stdout.write(f"{one.case['id']}: {one.case['cause']}, not {', '.join(one.named[:4])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
