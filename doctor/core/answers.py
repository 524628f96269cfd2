"""Answers of an edition to a fixed list of questions, to see what another edition would answer otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.core.chain import components_of
from doctor.core.goal import parse_goal
from doctor.core.matrix import Edition
from doctor.core.resolve import ask
from doctor.core.solve.universe import Universe
from doctor.core.target import make_target
from doctor.core.versions import Version
from doctor.errors import UsageError

__all__ = ["GPUS", "answers"]

#: One card of each generation that serves models, by the name that a person asks for.
GPUS = ("V100", "T4", "A100", "L40S", "H100", "H200", "B200", "RTX 5090")

#: A machine as common as can be: on it every GPU is asked about.
_SYSTEM, _KERNEL = "ubuntu-24.04", "6.8"
_GOALS = ("vllm", "tensorrt-llm", "sglang", "torch")
_BRANCH_GPU = "H200"

#: What is shown of a stack.
_TOLD = ("driver", "cuda", "vllm", "tensorrt-llm", "sglang", "torch", "tensorrt", "python")


def answers(universe: Universe, gpus: Sequence[str] = GPUS) -> dict[str, str]:
    """Answer by question: newest releases, floors by bulletins, and the stack picked for each GPU and goal.

    A pick takes 10 to 50 ms.
    """
    edition = universe.matrix.edition
    return {
        **_newest(edition),
        **_floors(edition),
        **dict(_picks(universe, gpus)),
        **dict(_branches(universe)),
    }


def _newest(edition: Edition) -> dict[str, str]:
    """The newest final release of each component; of drivers, of each branch."""
    found: dict[str, str] = {}
    versions = [(row.component, row.version) for row in edition.tools]
    for name, version in (*versions, *((row.component, row.version) for row in edition.releases)):
        if not (name in found and _is_candidate(version)):
            found[name] = version.raw
    for branch in edition.drivers:
        if branch.latest_known is not None:
            found[f"driver {branch.branch}"] = branch.latest_known.raw
    if edition.toolkits:
        found["cuda"] = max(row.cuda for row in edition.toolkits).raw
    return {f"newest {name}": version for name, version in sorted(found.items())}


def _is_candidate(version: Version) -> bool:
    return bool(getattr(version.key, "is_prerelease", False))


def _floors(edition: Edition) -> dict[str, str]:
    """The least release that no bulletin speaks against; of drivers by branch and products."""
    found: dict[str, Version] = {}
    for row in edition.advisories:
        for version in row.fixed_in:
            name = f"driver R{version.major} ({row.products})" if row.component == "driver" else row.component
            key = f"first {name} without a known fault"
            if key not in found or found[key] < version:
                found[key] = version
    packages = {
        f"first {row.component} without a known fault": row.fixed_release
        for row in sorted(edition.advisories, key=lambda row: row.published)
        if row.fixed_release
    }
    return {**{key: version.raw for key, version in found.items()}, **packages}


def _picks(universe: Universe, gpus: Sequence[str]) -> Iterator[tuple[str, str]]:
    for gpu in gpus:
        for goal in _GOALS:
            yield f"pick {goal} on {gpu}, {_SYSTEM}", _pick(universe, gpu, f"{goal}>0")


def _branches(universe: Universe) -> Iterator[tuple[str, str]]:
    """What a site that stays in its branch gets."""
    for branch in universe.matrix.edition.drivers:
        if branch.status == "supported":
            goal = f"driver>={branch.major},driver<{branch.major + 1},vllm>0"
            yield (
                f"pick vllm in {branch.branch} on {_BRANCH_GPU}, {_SYSTEM}",
                _pick(universe, _BRANCH_GPU, goal),
            )


def _pick(universe: Universe, gpu: str, goal: str) -> str:
    """The stack in a line; `no`, `unknown`, or that the edition has not heard of the GPU."""
    try:
        target = make_target(universe.matrix, gpus=[gpu], os=_SYSTEM, kernel=_KERNEL)
        resolution = ask(universe, target, parse_goal(goal), mode="pick", policy="repair")
    except UsageError as error:
        return error.message
    stack = components_of(resolution)
    told = " ".join(f"{name}=={stack[name]}" for name in _TOLD if name in stack)
    return told if resolution.answer == "yes" else f"{resolution.answer}: {told}".rstrip(": ")
