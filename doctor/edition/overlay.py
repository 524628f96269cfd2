"""Site overlays: directories of YAML in the matrix's own strict form that add rows or forbid versions.

An overlay is judged together with the edition, so whatever a row of the matrix must satisfy, a site's row
must, too. Nothing is written: an overlay is read and compiled each time (see docs/overlays.md for what that costs).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from doctor.core.edition import TABLES, Edition
from doctor.core.matrix import Matrix
from doctor.core.rows.base import Row
from doctor.core.rows.driver import DriverBranch
from doctor.core.rows.site import DriverRelease, Overlay, RuleKind, SiteRule
from doctor.edition.digest import digest, read_sources
from doctor.edition.keys import label
from doctor.edition.package_relations import judge_packages, judge_set
from doctor.edition.relations import Tables, judge_relations
from doctor.edition.source import TABLE_OF, SourceFile, read_head, sections_of
from doctor.edition.strict import Faults, Located, Place, nearest
from doctor.edition.system_relations import judge_systems
from doctor.errors import MatrixError

__all__ = ["OVERLAY_FILE", "compile_overlays"]

#: The one file that an overlay must have: its name, its day and its rules.
OVERLAY_FILE = "overlay.yaml"

_RULES: tuple[RuleKind, ...] = ("forbid", "pin", "mirror")
_RELEASES = "driver_releases"
_KINDS: dict[str, type[Row]] = {**dict.fromkeys(_RULES, SiteRule), _RELEASES: DriverRelease}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

#: How rows stand in a table that has an order; the others keep the edition's rows first.
_ORDER: dict[str, Callable[[Any], Any]] = {
    "drivers": lambda row: row.major,
    "toolkits": lambda row: row.cuda.key,
    "kernels": lambda row: row.kernel.key,
}
#: Tables of several components, each of which has an order of its own.
_BY_COMPONENT = ("releases", "tools")


def compile_overlays(edition: Edition, folders: Sequence[str]) -> Matrix:
    """The matrix with these overlays on top, the later ones over the earlier.

    Raises MatrixError with every fault of all of them.
    """
    faults = Faults()
    merged, found, sections = edition, list[Overlay](), {table: name for name, table in TABLE_OF.items()}
    tables = _base(edition, sections)
    days = [edition.as_of]
    for folder in folders:
        one = _Folder(folder, faults)
        overlay = one.read(tables)
        if overlay is not None:
            found.append(overlay)
            days.append(overlay.as_of)
    _judge_names(found, folders, faults)
    _judge(tables, max(days), faults)
    for overlay in found:
        _judge_rules(tables, overlay, faults)
    if faults:
        base = f"matrix {edition.name}"
        lines = tuple(line.replace(f"{base}:0", base) for line in faults.lines())
        word = "fault" if len(lines) == 1 else "faults"
        raise MatrixError(f"the overlay has {len(lines)} {word}", problems=lines)
    merged = _merged(edition, tables, sections, found)
    return Matrix(merged, overlays=tuple(found), plain=edition)


def _base(edition: Edition, sections: dict[str, str]) -> Tables:
    """The edition's rows as if they had just been read."""
    tables = Tables()
    for table, rows in edition.rows().items():
        section = sections.get(table, table)
        base = f"matrix {edition.name}"
        tables[section] = [Located(row, Place(base, 0, f"{section}[{label(table, row)}]"), {}) for row in rows]
    return tables


class _Folder:
    """One overlay directory on its way into the tables."""

    def __init__(self, folder: str, faults: Faults) -> None:
        self._folder = folder
        self._faults = faults
        self._name = ""

    def read(self, tables: Tables) -> Overlay | None:
        """Its rules; its rows go into the tables. None where its head cannot be read."""
        sources = read_sources(Path(self._folder))
        place = Place(self._at(OVERLAY_FILE), 1, "")
        if OVERLAY_FILE not in sources:
            self._faults.add(place, "the file is missing: it gives the overlay its name and day")
            return None
        head = read_head(self._at(OVERLAY_FILE), sources[OVERLAY_FILE], self._faults)
        if head is None:
            return None
        self._name = head.name
        if not _NAME.fullmatch(head.name):
            self._faults.add(place, f"`{head.name[:40]}` is no name such as `site-a`: it stands in answers")
        rules, releases, added = Tables(), list[DriverRelease](), list[tuple[str, str]]()
        for name in sorted(sources):
            if name == OVERLAY_FILE:
                self._file(name, sources[name], rules, _KINDS)
            elif not sections_of(name):
                self._faults.add(Place(self._at(name), 1, ""), "no such part of a matrix or an overlay")
            else:
                added += self._rows(name, sources[name], tables)
        releases += [located.row for located in rules[_RELEASES]]
        self._branches(tables, rules[_RELEASES])
        return Overlay(
            name=head.name,
            as_of=head.as_of,
            digest=digest(sources),
            rules=tuple((kind, located.row) for kind in _RULES for located in rules[kind]),
            driver_releases=tuple(releases),
            rows=tuple(added),
        )

    def _at(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _file(self, name: str, data: bytes, tables: Tables, kinds: dict[str, type[Row]]) -> Tables:
        """The rows of one file, each of which says where it comes from."""
        own = Tables()
        own["chips"] = tables["chips"]  # ids name chips of the edition
        before = len(own["chips"])
        SourceFile(self._at(name), data, self._faults, own, kinds=kinds, head=("name", "as_of")).read()
        own["chips"] = own["chips"][before:]
        for section in kinds:
            tables[section] = [*tables[section], *map(self._marked, own[section])]
        return own

    def _rows(self, name: str, data: bytes, tables: Tables) -> list[tuple[str, str]]:
        kinds = sections_of(name)
        own = self._file(name, data, tables, kinds)
        return [
            (TABLE_OF.get(section, section), label(TABLE_OF.get(section, section), located.row))
            for section in kinds
            for located in own[section]
        ]

    def _marked(self, located: Located[Any]) -> Located[Any]:
        file = os.path.basename(located.place.file)
        origin = f"{self._name} ({file}:{located.place.line})"
        return located.replace(msgspec.structs.replace(located.row, overlay=origin))

    def _branches(self, tables: Tables, releases: list[Located[Any]]) -> None:
        """Driver releases go into the row of their branch, in order."""
        for located in releases:
            release = located.row.version
            places = [n for n, row in enumerate(tables["branches"]) if row.row.major == release.major]
            if not places:
                text = f"`{release}` is of no branch in `branches`"
                self._faults.add(located.at("version"), text)
                continue
            branch = tables["branches"][places[0]]
            row: DriverBranch = branch.row
            if any(str(known) == str(release) for known in row.releases):
                self._faults.add(located.at("version"), f"`{release}` is a release of {row.branch} already")
                continue
            ordered = tuple(sorted((*row.releases, release), key=lambda version: version.key))
            latest = max((v for v in (row.latest_known, release) if v is not None), key=lambda v: v.key)
            changed = msgspec.structs.replace(row, releases=ordered, latest_known=latest)
            tables["branches"][places[0]] = branch.replace(changed)


# --- what must hold -------------------------------------------------------------------------------


def _judge(tables: Tables, as_of: str, faults: Faults) -> None:
    for section in ("branches", "toolkits", "kernels"):
        tables[section].sort(key=lambda located, s=section: _ORDER[TABLE_OF.get(s, s)](located.row))  # type: ignore[misc]
    for section in _BY_COMPONENT:
        tables[section] = _in_order(tables[section])
    judge_relations(tables, as_of, faults)
    judge_packages(tables, as_of, faults)
    judge_systems(tables, as_of, faults)


def _in_order(table: list[Located[Any]]) -> list[Located[Any]]:
    """Releases of each component in the order of their versions, components as they stand."""
    by_component: dict[str, list[Located[Any]]] = {}
    for located in table:
        by_component.setdefault(located.row.component, []).append(located)
    for rows in by_component.values():
        if any(located.row.overlay for located in rows):
            rows.sort(key=lambda located: located.row.version.key)
    return [located for rows in by_component.values() for located in rows]


def _judge_names(found: Sequence[Overlay], folders: Sequence[str], faults: Faults) -> None:
    names = [overlay.name for overlay in found]
    for name in {name for name in names if names.count(name) > 1}:
        faults.add(Place(", ".join(folders), 1, "name"), f"two overlays are called `{name}`")


def _judge_rules(tables: Tables, overlay: Overlay, faults: Faults) -> None:
    """Each rule names a component and sets of its versions, and a day that is none of the future."""
    known = {located.row.component: located.row for located in tables["components"]}
    for kind, rule in overlay.rules:
        place = _place_of(rule, kind)
        if rule.component not in known:
            near = nearest(rule.component, known)
            faults.add(place, f"the component `{rule.component}` is not in `components`{near}")
            continue
        for spec in rule.versions:
            problem = judge_set(spec, known[rule.component])
            if problem:
                faults.add(place, f"{rule.component}: {problem}")
    for row in (*(rule for _kind, rule in overlay.rules), *overlay.driver_releases):
        if row.as_of > overlay.as_of:
            where = _place_of(row, "")
            faults.add(where, f"`as_of` {row.as_of} is later than the overlay's {overlay.as_of}")
        if row.review_by <= row.as_of:
            faults.add(_place_of(row, ""), f"`review_by` {row.review_by} is not later than `as_of`")


def _place_of(row: Row, path: str) -> Place:
    """Where a rule stands, from what its `overlay` says."""
    match = re.search(r"\(([^()]*):(\d+)\)$", row.overlay)
    return Place(match[1], int(match[2]), path) if match else Place(row.overlay, 1, path)


# --- the merged edition ---------------------------------------------------------------------------


def _merged(edition: Edition, tables: Tables, sections: dict[str, str], found: Sequence[Overlay]) -> Edition:
    changed = {table for overlay in found for table, _name in overlay.rows}
    if any(overlay.driver_releases for overlay in found):
        changed.add("drivers")
    rows: dict[str, Any] = {
        table: tuple(located.row for located in tables[sections.get(table, table)])
        for table in TABLES
        if table in changed
    }
    total = digest({overlay.name: overlay.digest.encode() for overlay in found} | {"": edition.digest.encode()})
    return msgspec.structs.replace(edition, digest=total, **rows)
