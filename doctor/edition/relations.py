"""What rows say about one another must hold: references, uniqueness, versions inside their branch."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from doctor.core.matrix import Row
from doctor.core.versions import Dotted
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["Tables", "judge_relations", "judge_row"]

#: Rows of a section. Each section has one row type; which one is known where it is read.
Table = list[Located[Any]]


class Tables(defaultdict[str, Table]):
    """The rows read so far, by section, and the sections that lack rows because of faults in them."""

    def __init__(self) -> None:
        super().__init__(list)
        self.incomplete: set[str] = set()


def judge_relations(tables: Tables, as_of: str, faults: Faults) -> None:
    """Note every relation that does not hold, and fill in what follows from other rows.

    What points into an incomplete section is not judged: the row may be there, but unreadable.
    """
    for table in list(tables.values()):
        for located in table:
            judge_row(located, as_of, faults)
    _judge_unique(tables, faults)
    if "architectures" not in tables.incomplete:
        _judge_references(tables, faults)
    if "gpus" not in tables.incomplete:
        _judge_product_ids(tables, faults)
    for located in tables["branches"]:
        _judge_branch(located, faults)
    for located in tables["toolkits"]:
        _judge_toolkit(located, faults)
    for located in tables["causes"]:
        _judge_cause(located, tables, faults)
    _judge_gpus(tables, faults)
    tables["gpus"] = _with_architecture(tables)


def judge_row(located: Located[Any], as_of: str, faults: Faults) -> None:
    """Note what is wrong with the days and the fields that every row has."""
    row: Row = located.row
    for field, day in (("as_of", row.as_of), ("review_by", row.review_by)):
        if not _is_day(day):
            faults.add(located.at(field), f"`{day}` is not a day of the calendar")
    if row.as_of > as_of:
        faults.add(located.at("as_of"), f"`{row.as_of}` is later than the edition's `{as_of}`")
    if row.review_by <= row.as_of:
        faults.add(located.at("review_by"), f"`{row.review_by}` is not later than `as_of`")
    known = row.__struct_fields__
    for name in row.unverified:
        if name not in known:
            faults.add(located.at("unverified"), f"`{name}` is no field of this row{nearest(name, known)}")


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


# --- uniqueness -----------------------------------------------------------------------------------


def _judge_unique(tables: Tables, faults: Faults) -> None:
    for section, field in (
        ("architectures", "architecture"),
        ("products", "product"),
        ("chips", "chip"),
        ("branches", "branch"),
        ("branches", "major"),
        ("toolkits", "cuda"),
        ("rules", "id"),
        ("causes", "id"),
    ):
        _once(tables[section], field, _single(field), faults)
    _once(tables["products"], "pci_device_ids", lambda row: row.pci_device_ids, faults)
    _once(tables["gpus"], "pci_device_id", _boards, faults)


def _single(field: str) -> Callable[[Any], list[Any]]:
    return lambda row: [getattr(row, field)]


def _boards(row: Any) -> list[str]:
    """What a row claims for itself: its boards, or every board of the id that no other row names."""
    if row.unlisted_subsystems:
        return []
    return [f"{row.pci_device_id} {board}".strip() for board in row.subsystem_ids or ("",)]


def _once(table: Table, field: str, claims: Callable[[Any], Iterable[Any]], faults: Faults) -> None:
    first: dict[Any, Located[Any]] = {}
    for located in table:
        for claim in claims(located.row):
            earlier = first.setdefault(claim, located)
            if earlier is not located:
                at = f"{earlier.place.file}:{earlier.place.line}"
                key = "subsystem_ids" if " " in str(claim) and field == "pci_device_id" else field
                faults.add(located.at(key), f"`{claim}` has a row already, at {at}")


# --- references -----------------------------------------------------------------------------------


def _judge_references(tables: Tables, faults: Faults) -> None:
    names = {located.row.architecture: located.row for located in tables["architectures"]}
    for section, field in (
        ("products", "architecture"),
        ("chips", "architecture"),
        ("branches", "min_architecture"),
        ("branches", "last_for"),
    ):
        for located in tables[section]:
            value = getattr(located.row, field)
            for name in (value,) if isinstance(value, str) else value:
                if name and name not in names:
                    text = f"the architecture `{name}` is not in `architectures`{nearest(name, names)}"
                    faults.add(located.at(field), text)
    for section in ("products", "chips"):
        for located in tables[section]:
            architecture = names.get(located.row.architecture)
            capability = located.row.compute_capability
            if architecture and capability not in architecture.compute_capability:
                text = f"`{capability}` is no capability of `{architecture.architecture}`"
                faults.add(located.at("compute_capability"), text)


def _judge_product_ids(tables: Tables, faults: Faults) -> None:
    by_id = {located.row.pci_device_id: located.row for located in reversed(tables["gpus"])}
    for located in tables["products"]:
        for device_id in located.row.pci_device_ids:
            gpu = by_id.get(device_id)
            if gpu is None:
                faults.add(located.at("pci_device_ids"), f"`{device_id}` has no row in pci_ids.yaml")
            elif gpu.architecture != located.row.architecture:
                text = f"`{device_id}` is `{gpu.architecture}` in pci_ids.yaml"
                faults.add(located.at("architecture"), text)


def _judge_gpus(tables: Tables, faults: Faults) -> None:
    chips: dict[str, str] = {}
    known = {located.row.chip: located.row for located in tables["chips"]}
    for located in tables["gpus"]:
        row = located.row
        for field in ("architecture", "compute_capability"):
            wanted = getattr(known.get(row.chip, row), field)
            if getattr(row, field) != wanted:
                faults.add(located.at(field), f"the chip `{row.chip}` says `{wanted}`: leave the field out")
        if row.chip != chips.setdefault(row.pci_device_id, row.chip):
            text = f"another row gives this id the chip `{chips[row.pci_device_id]}`"
            faults.add(located.at("chip"), text)
        if row.subsystem_ids and row.unlisted_subsystems:
            text = "the boards are listed: the count is of those that are not"
            faults.add(located.at("unlisted_subsystems"), text)


# --- one row against itself -----------------------------------------------------------------------


def _judge_branch(located: Located[Any], faults: Faults) -> None:
    row = located.row
    if row.branch != f"R{row.major}":
        faults.add(located.at("major"), f"`{row.major}` is not the number of `{row.branch}`")
        return
    for field in ("security_floor", "latest_known"):
        value = getattr(row, field)
        _inside(located, field, (value,) if value is not None else (), faults)
    _inside(located, "releases", row.releases, faults)
    for before, after in zip(row.releases, row.releases[1:], strict=False):
        if not before < after:
            text = f"`{after}` follows `{before}`: releases stand in ascending order, each once"
            faults.add(located.at("releases"), text)
    if row.latest_known and any(release > row.latest_known for release in row.releases):
        faults.add(located.at("latest_known"), f"`{row.latest_known}` is not the latest of `releases`")
    if row.open_module is False and row.proprietary_module is False:
        faults.add(located.at("proprietary_module"), "a branch has one kind of kernel module at least")


def _inside(located: Located[Any], field: str, versions: Iterable[Dotted], faults: Faults) -> None:
    for version in versions:
        if version.major != located.row.major:
            faults.add(located.at(field), f"`{version}` is not a release of `{located.row.branch}`")


def _judge_toolkit(located: Located[Any], faults: Faults) -> None:
    row = located.row
    if len(row.cuda.parts) != 2:
        faults.add(located.at("cuda"), f"`{row.cuda}` is not a minor release such as `13.0`")
    for update in row.updates:
        if update.version.parts[:2] != row.cuda.parts or len(update.version.parts) != 3:
            faults.add(located.at("updates"), f"`{update.version}` is not an update of `{row.cuda}`")


def _judge_cause(located: Located[Any], tables: Tables, faults: Faults) -> None:
    row = located.row
    if not re.fullmatch(r"[a-z]+(\.[a-z0-9_]+)+", row.id):
        faults.add(located.at("id"), f"`{row.id}` is not an id such as `driver.userspace_kernel_mismatch`")
    known = [other.row.id for other in tables["causes"]]
    if row.refines and row.refines not in known and "causes" not in tables.incomplete:
        faults.add(located.at("refines"), f"there is no cause `{row.refines}`{nearest(row.refines, known)}")


def _with_architecture(tables: Tables) -> Table:
    """Id rows with the open-module rule and last branch of their architecture, unless they have their own."""
    by_name = {located.row.architecture: located.row for located in tables["architectures"]}
    filled = []
    for located in tables["gpus"]:
        row, architecture = located.row, by_name.get(located.row.architecture)
        if architecture is not None:
            row = msgspec.structs.replace(
                row,
                open_module=row.open_module or architecture.open_module,
                last_branch=row.last_branch or architecture.last_branch,
            )
        filled.append(located.replace(row))
    return filled
