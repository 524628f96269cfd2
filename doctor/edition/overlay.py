"""Site overlays: directories of YAML in the matrix's own strict form that add rows or forbid versions.

An overlay is judged together with the edition, so whatever a row of the matrix must satisfy, a site's row
must, too. Nothing is written: it is compiled anew at each start; docs/overlays.md says what that costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
from doctor.edition.package_relations import judge_set
from doctor.edition.relations import Tables, judge_row
from doctor.edition.source import TABLE_OF, SourceFile, judge_tables, read_head, sections_of
from doctor.edition.strict import Faults, Located, Place, nearest
from doctor.errors import MatrixError

__all__ = ["OVERLAY_FILE", "compile_overlays"]

#: The one file that an overlay must have: its name, its day and its rules.
OVERLAY_FILE = "overlay.yaml"

_RULES: tuple[RuleKind, ...] = ("forbid", "pin", "mirror")
_RELEASES = "driver_releases"
_KINDS: dict[str, type[Row]] = {**dict.fromkeys(_RULES, SiteRule), _RELEASES: DriverRelease}
_SECTION_OF = {table: section for section, table in TABLE_OF.items()}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

#: What an overlay has no part in: how faults are recognised is the same at every site.
_OF_THE_EDITION = ("causes", "signatures", "folklore")

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
    faults, base = Faults(), f"matrix {edition.name}"
    tables = _base(edition, base)
    read = [one for one in (_Folder(folder, faults) for folder in folders) if one.read(tables)]
    _judge_names([one.overlay for one in read], folders, faults)
    as_of = max(edition.as_of, *(one.overlay.as_of for one in read)) if read else edition.as_of
    _judge(tables, as_of, faults)
    for one in read:
        _judge_rules(tables, one, faults)
    if faults:
        # A fault beside a row of the edition has no line there: the edition may be a compiled file.
        lines = tuple(line.replace(f"{base}:0", base) for line in faults.lines())
        word = "fault" if len(lines) == 1 else "faults"
        raise MatrixError(f"the overlay has {len(lines)} {word}", problems=lines)
    found = tuple(one.overlay for one in read)
    return Matrix(_merged(edition, tables, found), overlays=found, plain=edition)


def _base(edition: Edition, file: str) -> Tables:
    """The edition's rows as if they had just been read."""
    tables = Tables()
    for table, rows in edition.rows().items():
        if table in _OF_THE_EDITION:
            continue
        section = _SECTION_OF.get(table, table)
        tables[section] = [
            Located(row, Place(file, 0, f"{section}[{label(table, row)}]"), {}) for row in rows
        ]
    return tables


class _Folder:
    """One overlay directory on its way into the tables."""

    def __init__(self, folder: str, faults: Faults) -> None:
        self._folder = folder
        self._faults = faults
        self._name = ""
        self.rules: list[tuple[str, Located[Any]]] = []
        """Rows of overlay.yaml with the section that they stand in."""
        self.overlay: Overlay

    def read(self, tables: Tables) -> bool:
        """Its rows go into the tables, its rules into `overlay`. False where its head cannot be read."""
        sources = read_sources(Path(self._folder))
        place = Place(self._at(OVERLAY_FILE), 1, "")
        if OVERLAY_FILE not in sources:
            self._faults.add(place, "the file is missing: it gives the overlay its name and day")
            return False
        head = read_head(self._at(OVERLAY_FILE), sources[OVERLAY_FILE], self._faults)
        if head is None:
            return False
        self._name = head.name
        if not _NAME.fullmatch(head.name):
            self._faults.add(place, f"`{head.name[:40]}` is no name such as `site-a`: it stands in answers")
        own = self._file(OVERLAY_FILE, sources.pop(OVERLAY_FILE), tables, _KINDS)
        self.rules = [(section, located) for section in _KINDS for located in own[section]]
        added = [row for name in sorted(sources) for row in self._rows(name, sources[name], tables)]
        self._branches(tables, own[_RELEASES])
        self.overlay = Overlay(
            name=head.name,
            as_of=head.as_of,
            digest=digest(read_sources(Path(self._folder))),
            rules=tuple((kind, located.row) for kind in _RULES for located in own[kind]),
            driver_releases=tuple(located.row for located in own[_RELEASES]),
            rows=tuple(added),
        )
        return True

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _file(self, name: str, data: bytes, tables: Tables, kinds: Mapping[str, type[Row]]) -> Tables:
        """The rows of one file, each of which says where it comes from."""
        own = Tables()
        own["chips"] = list(tables["chips"])  # ids name chips of the edition
        known = len(own["chips"])
        SourceFile(self._at(name), data, self._faults, own, kinds=kinds, head=_heads(name)).read()
        own["chips"] = own["chips"][known:]
        for section in kinds:
            own[section] = [self._marked(located) for located in own[section]]
        tables.incomplete.update(own.incomplete)
        return own

    def _rows(self, name: str, data: bytes, tables: Tables) -> list[tuple[str, str]]:
        kinds = {key: kind for key, kind in sections_of(name).items() if key not in _OF_THE_EDITION}
        if not kinds:
            self._faults.add(Place(self._at(name), 1, ""), "no such part of a matrix or of an overlay")
            return []
        own, added = self._file(name, data, tables, kinds), list[tuple[str, str]]()
        for section in kinds:
            table = TABLE_OF.get(section, section)
            added += [(table, label(table, located.row)) for located in own[section]]
            tables[section] = [*tables[section], *own[section]]
        return added

    def _marked(self, located: Located[Any]) -> Located[Any]:
        file = Path(located.place.file).name
        origin = f"{self._name}: {file}:{located.place.line}"
        return located.replace(msgspec.structs.replace(located.row, overlay=origin))

    def _branches(self, tables: Tables, releases: list[Located[Any]]) -> None:
        """Driver releases go into the row of their branch, in order."""
        for located in releases:
            release = located.row.version
            places = [n for n, row in enumerate(tables["branches"]) if row.row.major == release.major]
            if not places:
                self._faults.add(located.at("version"), f"`{release}` is of no branch in `branches`")
                continue
            branch = tables["branches"][places[0]]
            row: DriverBranch = branch.row
            if release in row.releases:
                self._faults.add(located.at("version"), f"`{release}` is a release of {row.branch} already")
                continue
            ordered = tuple(sorted((*row.releases, release), key=lambda version: version.key))
            latest = max(filter(None, (row.latest_known, release)), key=lambda version: version.key)
            changed = msgspec.structs.replace(row, releases=ordered, latest_known=latest)
            tables["branches"][places[0]] = branch.replace(changed)


def _heads(name: str) -> tuple[str, ...]:
    return ("name", "as_of") if name == OVERLAY_FILE else ()


# --- what must hold -------------------------------------------------------------------------------


def _judge(tables: Tables, as_of: str, faults: Faults) -> None:
    for table, key in _ORDER.items():
        tables[_SECTION_OF.get(table, table)].sort(key=lambda located, of=key: of(located.row))  # type: ignore[misc]
    for section in _BY_COMPONENT:
        tables[section] = _in_order(tables[section])
    judge_tables(tables, as_of, faults)


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


def _judge_rules(tables: Tables, one: _Folder, faults: Faults) -> None:
    """Each rule names a component and sets of its versions, and a day that is none of the future."""
    known = {located.row.component: located.row for located in tables["components"]}
    for section, located in one.rules:
        judge_row(located, one.overlay.as_of, faults)
        if section == _RELEASES:
            continue
        name = located.row.component
        if name not in known:
            text = f"the component `{name}` is not in `components`{nearest(name, known)}"
            faults.add(located.at("component"), text)
            continue
        problems = [judge_set(spec, known[name]) for spec in located.row.versions]
        for problem in filter(None, problems):
            faults.add(located.at("versions"), f"{name}: {problem}")


# --- the merged edition ---------------------------------------------------------------------------


def _merged(edition: Edition, tables: Tables, found: Sequence[Overlay]) -> Edition:
    changed = {table for overlay in found for table, _name in overlay.rows}
    if any(overlay.driver_releases for overlay in found):
        changed.add("drivers")
    rows: dict[str, Any] = {
        table: tuple(located.row for located in tables[_SECTION_OF.get(table, table)])
        for table in TABLES
        if table in changed
    }
    parts = {"": edition.digest.encode(), **{overlay.name: overlay.digest.encode() for overlay in found}}
    return msgspec.structs.replace(edition, digest=digest(parts), **rows)
