"""How long the resolver takes: loading, each golden question by itself, questions a second.

CPU time. *Cold* is the first question of a process, as the command line asks one; *warm* is what a fleet
pays for each further shape of host. `python benchmarks/resolve.py`
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_ROUNDS = 5

COLD = """
import sys, time
from doctor.edition.load import load_matrix
begun = time.process_time()
matrix = load_matrix()
loaded = time.process_time()
from doctor.grammar import build_parser
from doctor.commands.matrix_pick import pick
from doctor.commands.matrix_why import explain
from doctor.commands.ask import goal_of, target_of_options
from doctor.core.solve.universe import Universe
matrix.edition.rows()
options = build_parser().parse_args(sys.argv[1:])
started = time.process_time()
universe = Universe(matrix)
if hasattr(options, "alternatives"):
    pick(universe, target_of_options(options, matrix), goal_of(options.goal))
else:
    explain(universe, options)
print(loaded - begun, time.process_time() - started)
"""


def cold(arguments: list[str]) -> tuple[float, float]:
    """CPU milliseconds of loading and of one question, each the best of some processes of its own."""
    loads, firsts = [], []
    for _ in range(_ROUNDS):
        done = subprocess.run(
            [sys.executable, "-c", COLD, *arguments], check=True, capture_output=True, text=True, cwd=ROOT
        )
        load_s, ask_s = map(float, done.stdout.split())
        loads.append(load_s * 1000)
        firsts.append(ask_s * 1000)
    return min(loads), min(firsts)


def main() -> None:
    """Print the figures."""
    from doctor.commands.ask import goal_of, target_of_options
    from doctor.commands.matrix_pick import pick
    from doctor.commands.matrix_why import explain
    from doctor.core.solve.universe import Universe
    from doctor.edition.load import load_matrix
    from doctor.grammar import build_parser
    from tests.test_golden import QUESTIONS, arguments

    asked = {question["id"]: arguments(question) for question in QUESTIONS}
    loads, firsts = zip(*(cold(words) for words in asked.values()), strict=True)
    worst = max(zip(firsts, asked, strict=True))
    print(f"load: median {statistics.median(loads):.1f} ms, worst {max(loads):.1f} ms")
    middle = statistics.median(firsts)
    print(f"a question, cold: median {middle:.1f} ms, worst {worst[0]:.1f} ms ({worst[1]})")
    universe = Universe(load_matrix())
    parser = build_parser()
    chosen = [parser.parse_args(words) for words in asked.values()]
    for _ in ("to warm up", "to measure"):
        begun = time.process_time()
        for options in chosen:
            if hasattr(options, "alternatives"):
                pick(universe, target_of_options(options, universe.matrix), goal_of(options.goal))
            else:
                explain(universe, options)
        spent = time.process_time() - begun
    print(f"warm: {len(chosen) / spent:.0f} questions a second")


if __name__ == "__main__":
    main()
