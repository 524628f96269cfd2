"""What releases and the relations between components must satisfy: names, sets, dates, pins, capabilities."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from doctor.core.rows.package import Component, Release
from doctor.core.versions import Dotted, Pep440
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["exact_pin", "judge_packages", "judge_set", "meets", "series"]

#: Sections whose rows name the component they are about.
_OF_A_COMPONENT = (
    *("releases", "tools", "hardware", "advisories", "models", "quantization", "quantization_gates"),
    *("quantization_support", "kv_cache", "names", "commands"),
    *("engine_grammars", "engine_flags", "engine_batches", "engine_dtypes"),
)

#: Fields that hold a set of versions of the row's own component.
_OWN_SETS = ("versions", "affected")

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def judge_packages(tables: Tables, as_of: str, faults: Faults) -> None:
    """Note what does not hold in the rows about software."""
    if "components" not in tables.incomplete:
        _judge_components(tables, faults)
    _judge_releases(tables, as_of, faults)
    if "toolkits" not in tables.incomplete:
        _judge_cuda(tables, faults)
    if "releases" not in tables.incomplete:
        _judge_pins(tables, faults)
        _judge_sampled(tables, faults)
    for located in tables["advisories"]:
        _judge_advisory(located, tables, as_of, faults)


# --- sets -----------------------------------------------------------------------------------------


def meets(version: str, wanted: str) -> bool:
    """Whether a version is in a set; candidates count, and `*` takes any."""
    return wanted == "*" or SpecifierSet(wanted).contains(version, prereleases=True)


def exact_pin(wanted: str) -> str:
    """`2.14.0` of `==2.14.0`; empty when the set is no single version."""
    pin = re.fullmatch(r"==([^*,]+)", wanted)
    return pin.group(1).partition("+")[0] if pin else ""


def judge_set(text: str, row: Component) -> str:
    """Why a text is no set of versions of a component; empty when it is one."""
    if text == "*":
        return ""
    if row.scheme == "name":
        words = text.split("|")
        strange = [word for word in words if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", word)]
        strange += [word for word in words if row.words and word not in row.words]
        return (
            f"`{strange[0]}` is no word of `{row.component}`{nearest(strange[0], row.words)}"
            if strange
            else ""
        )
    try:
        found = SpecifierSet(text)
    except InvalidSpecifier:
        return f"`{text}` is not a set such as `>=3.11,<3.15`"
    return "" if len(found) else "an empty set says nothing: write `*`"


# --- components -----------------------------------------------------------------------------------


def _judge_components(tables: Tables, faults: Faults) -> None:
    known = {located.row.component: located.row for located in tables["components"]}
    for section in _OF_A_COMPONENT:
        for located in tables[section]:
            _judge_own(located, known, faults)
    for section in ("releases", "tools", "relations"):
        for located in tables[section]:
            for field in ("when", "requires"):
                _judge_sets(located, field, getattr(located.row, field, {}), known, faults)
    for located in tables["relations"]:
        _judge_relation(located, known, faults)
    for located in tables["stacks"]:
        for name in located.row.components:
            _judge_name(located, "components", name, known, faults)


def _judge_own(located: Located[Any], known: Mapping[str, Component], faults: Faults) -> None:
    """The component that a row is about, and the versions of it that the row is for."""
    name = located.row.component
    if _judge_name(located, "component", name, known, faults):
        for field in _OWN_SETS:
            text = getattr(located.row, field, "")
            if text:
                _judge_set(located, field, text, known[name], faults)


def _judge_sets(
    located: Located[Any], field: str, sets: Mapping[str, str], known: Mapping[str, Component], faults: Faults
) -> None:
    for name, text in sets.items():
        if _judge_name(located, field, name, known, faults):
            _judge_set(located, field, text, known[name], faults)


def _judge_name(
    located: Located[Any], field: str, name: str, known: Mapping[str, Component], faults: Faults
) -> bool:
    if name in known:
        return True
    faults.add(located.at(field), f"the component `{name}` is not in `components`{nearest(name, known)}")
    return False


def _judge_set(located: Located[Any], field: str, text: str, row: Component, faults: Faults) -> None:
    problem = judge_set(text, row)
    if problem:
        faults.add(located.at(field), f"{row.component}: {problem}")


def _judge_relation(located: Located[Any], known: Mapping[str, Component], faults: Faults) -> None:
    row = located.row
    if not row.requires and not row.same_version:
        faults.add(located.at("requires"), "a relation requires something, or ties versions together")
    if len(row.same_version) == 1:
        faults.add(located.at("same_version"), "one component alone is always of one version")
    for name in row.same_version:
        _judge_name(located, "same_version", name, known, faults)


# --- releases -------------------------------------------------------------------------------------


def _judge_releases(tables: Tables, as_of: str, faults: Faults) -> None:
    for section in ("releases", "tools"):
        by_component: dict[str, list[Located[Any]]] = {}
        for located in tables[section]:
            by_component.setdefault(located.row.component, []).append(located)
            _judge_day(located, "released", located.row.released, as_of, faults)
        for rows in by_component.values():
            _judge_order(rows, faults)
    capabilities = {cc for row in tables["architectures"] for cc in row.row.compute_capability}
    for section in ("releases", "hardware"):
        for located in tables[section]:
            _judge_capabilities(located, capabilities, faults)
    for located in tables["releases"]:
        _judge_release(located, faults)


def _judge_day(located: Located[Any], field: str, day: str, as_of: str, faults: Faults) -> None:
    if not day:
        return
    try:
        dt.date.fromisoformat(day)
    except ValueError:
        faults.add(located.at(field), f"`{day}` is not a day of the calendar")
    if day > as_of:
        faults.add(located.at(field), f"`{day}` is later than the edition's `{as_of}`")


def _judge_order(rows: list[Located[Any]], faults: Faults) -> None:
    """Versions ascend, each once; inside a series the days ascend with them."""
    for before, after in pairwise(rows):
        first, second = before.row.version, after.row.version
        if not first < second:
            text = f"`{second}` follows `{first}`: releases stand in ascending order, each once"
            faults.add(after.at("version"), text)
        elif series(first) == series(second) and before.row.released > after.row.released > "":
            text = f"`{second}` is older than `{first}` ({before.row.released}), which it follows"
            faults.add(after.at("released"), text)


def series(version: Pep440 | Dotted) -> tuple[int, ...]:
    """The releases among which later numbers come later: patches of a minor; of a patch, its posts.

    A post release may come after the next patch, as FlashInfer 0.3.0.post1 came after 0.3.1.
    """
    numbers = tuple(version.key.release) if isinstance(version, Pep440) else version.parts
    is_post = isinstance(version, Pep440) and version.key.is_postrelease
    return (*numbers, -1) if is_post else numbers[:2]


def _judge_capabilities(located: Located[Any], known: set[str], faults: Faults) -> None:
    row = located.row
    listed = row.compute_capability
    for capability in (*listed, getattr(row, "ptx", ""), getattr(row, "min_compute_capability", "")):
        if capability and known and capability not in known:
            faults.add(
                located.at("compute_capability"), f"`{capability}` is no capability of any architecture"
            )
    if list(listed) != sorted(set(listed), key=Dotted):
        faults.add(located.at("compute_capability"), "capabilities stand in ascending order, each once")


def _judge_release(located: Located[Release], faults: Faults) -> None:
    row = located.row
    if row.unsuffixed_variant and row.unsuffixed_variant not in row.cuda_variants:
        faults.add(located.at("unsuffixed_variant"), f"`{row.unsuffixed_variant}` is not in `cuda_variants`")
    wanted = row.requires.get("python", "*")
    if _is_set(wanted):
        for interpreter in row.interpreters:
            if not meets(interpreter, wanted):
                faults.add(located.at("interpreters"), f"`{interpreter}` is outside its `python` {wanted}")
    floor = row.requires.get("glibc", "")
    if row.glibc_tag and not floor.startswith(">="):
        faults.add(located.at("glibc_tag"), "a tag is written where `requires` names a newer glibc")
    elif row.glibc_tag and Dotted(row.glibc_tag) >= Dotted(floor[2:]):
        faults.add(located.at("glibc_tag"), f"`{row.glibc_tag}` is not older than `{floor}`: leave it out")


def _is_set(text: str) -> bool:
    """Whether a set can be read; where it cannot, that fault is told already."""
    try:
        SpecifierSet("" if text == "*" else text)
    except InvalidSpecifier:
        return False
    return True


# --- relations between releases -------------------------------------------------------------------


def _judge_cuda(tables: Tables, faults: Faults) -> None:
    """The CUDA of a build has a row, with which its capabilities can have been compiled."""
    minors = {located.row.cuda.parts: located.row for located in tables["toolkits"]}
    majors = {parts[0] for parts in minors}
    for located in tables["releases"]:
        row = located.row
        if row.cuda is None:
            continue
        toolkit = minors.get(row.cuda.parts[:2])
        if (len(row.cuda.parts) == 1 and row.cuda.major not in majors) or (
            len(row.cuda.parts) > 1 and toolkit is None
        ):
            faults.add(located.at("cuda"), f"CUDA `{row.cuda}` has no row in `toolkits`")
        targets = toolkit.sm_targets if toolkit else ()
        for capability in (*row.compute_capability, *((row.ptx,) if row.ptx else ())):
            if targets and capability.replace(".", "") not in targets:
                text = f"`{capability}` is no target of CUDA `{row.cuda}`"
                faults.add(located.at("compute_capability"), text)
    for located in tables["releases"]:
        for variant in located.row.cuda_variants:
            if not re.fullmatch(r"cu\d+", variant) or int(variant[2:]) not in majors:
                faults.add(located.at("cuda_variants"), f"`{variant}` names no CUDA major of `toolkits`")


def _judge_pins(tables: Tables, faults: Faults) -> None:
    """An exact pin of a component whose table is complete names a release that exists, of the same CUDA."""
    complete = {row.row.component: row.row.complete_since for row in tables["components"]}
    releases: dict[str, dict[str, Release]] = {}
    for located in tables["releases"]:
        releases.setdefault(located.row.component, {})[located.row.version.raw] = located.row
    for located in tables["releases"]:
        for name, text in located.row.requires.items():
            pin = exact_pin(text)
            if not pin or name not in releases:
                continue
            pinned = releases[name].get(pin)
            if pinned is None and complete.get(name):
                known = nearest(pin, releases[name])
                faults.add(located.at("requires"), f"there was never a {name} `{pin}`{known}")
            elif pinned is not None:
                _judge_same_cuda(located, pinned, faults)


def _judge_same_cuda(located: Located[Release], pinned: Release, faults: Faults) -> None:
    ours, theirs = located.row.cuda, pinned.cuda
    if ours is not None and theirs is not None and ours.major != theirs.major:
        text = f"built with CUDA {ours}, but its {pinned.component} {pinned.version} with {theirs}"
        faults.add(located.at("cuda"), text)


def _judge_sampled(tables: Tables, faults: Faults) -> None:
    """`first` and `last` of what an engine can do name releases of that engine, in this order.

    Release candidates are not judged: the tables hold few of them.
    """
    known: dict[str, set[str]] = {}
    for located in tables["releases"]:
        known.setdefault(located.row.component, set()).add(located.row.version.raw)
    for section in ("models", "quantization", "kv_cache", "engine_flags", "engine_batches", "engine_dtypes"):
        for located in tables[section]:
            row = located.row
            first, last = row.first, getattr(row, "last", None)
            for field, version in (("first", first), ("last", last)):
                names = known.get(row.component, set())
                if version is not None and version.raw not in names and not version.key.is_prerelease:
                    text = f"{row.component} has no release `{version}`{nearest(version.raw, names)}"
                    faults.add(located.at(field), text)
            if last is not None and last < first:
                faults.add(located.at("last"), f"`{last}` is older than `{first}`")


def _judge_advisory(located: Located[Any], tables: Tables, as_of: str, faults: Faults) -> None:
    row = located.row
    day = _DAY.search(row.published)
    if day is None:
        faults.add(located.at("published"), f"`{row.published}` holds no date such as `2026-11-30`")
    else:
        _judge_day(located, "published", day.group(), as_of, faults)
    if row.component == "driver":
        _judge_driver_floors(located, {branch.row.major for branch in tables["branches"]}, faults)
        return
    fixed = [*(version.raw for version in row.fixed_in), *([row.fixed_release] if row.fixed_release else [])]
    field = "fixed_release" if row.fixed_release else "fixed_in"
    if len(fixed) != 1 or not row.affected:
        faults.add(located.at(field), "one release, and the set of those `affected`")
    elif _is_set(row.affected) and meets(fixed[0], row.affected):
        faults.add(located.at(field), f"`{fixed[0]}` is itself in `{row.affected}`")


def _judge_driver_floors(located: Located[Any], branches: Iterable[int], faults: Faults) -> None:
    fixed: tuple[Dotted, ...] = located.row.fixed_in
    if not fixed:
        faults.add(located.at("fixed_in"), "a release of one branch at least")
    for version in fixed:
        if version.major not in branches:
            faults.add(located.at("fixed_in"), f"`{version}` is of no branch in `branches`")
    majors = [version.major for version in fixed]
    if majors != sorted(set(majors)):
        faults.add(located.at("fixed_in"), "one release a branch, in ascending order")
