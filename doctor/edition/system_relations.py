"""What rows on systems, kernels, names and speeds must satisfy."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from doctor.core.edition import TABLES
from doctor.core.rows.system import KernelBuild
from doctor.edition.keys import KEYS
from doctor.edition.relations import Tables
from doctor.edition.strict import Faults, Located, nearest

__all__ = ["SHARE_MAX", "SHARE_MIN", "judge_systems"]

#: A floor or a measured figure outside these shares of the datasheet is an error of whoever wrote it down.
SHARE_MIN, SHARE_MAX = 0.35, 0.95

#: Measured or demanded, against what the datasheet promises.
_AGAINST = (
    ("copy_floor_gb_s", "bandwidth_gb_s"),
    ("measured_bf16_tflops", "bf16_tflops"),
    ("measured_fp8_tflops", "fp8_tflops"),
)


def judge_systems(tables: Tables, as_of: str, faults: Faults) -> None:
    """Note what does not hold in these rows."""
    _judge_keys(tables, faults)
    for located in tables["systems"]:
        _judge_system(located, as_of, faults)
    for located in tables["kernels"]:
        _judge_kernel(located, tables, faults)
    for located in tables["names"]:
        _judge_name(located, faults)
    for located in tables["speeds"]:
        _judge_speed(located, tables, faults)
    for located in tables["published"]:
        _judge_published(located, faults)
    for located in tables["speed_ranges"]:
        _judge_range(located, faults)


def _judge_keys(tables: Tables, faults: Faults) -> None:
    """What names a row names one row. Tables from before have rules of their own."""
    for table in TABLES:
        if table not in KEYS:
            continue
        first: dict[tuple[str, ...], Located[Any]] = {}
        for located in tables[table]:
            key = tuple(str(getattr(located.row, field)) for field in KEYS[table])
            earlier = first.setdefault(key, located)
            if earlier is not located:
                at = f"{earlier.place.file}:{earlier.place.line}"
                faults.add(located.at(KEYS[table][-1]), f"`{' '.join(key)}` has a row already, at {at}")


def _judge_system(located: Located[Any], as_of: str, faults: Faults) -> None:
    row = located.row
    for name in (row.system, *row.same_as):
        if not re.fullmatch(r"[a-z]+-\d+(\.\d+)?", name):
            faults.add(located.at("system"), f"`{name}` is not a name such as `ubuntu-24.04`")
    if row.extended_ends and row.extended_ends < row.support_ends:
        faults.add(located.at("extended_ends"), f"`{row.extended_ends}` lies before `support_ends`")
    if row.released > as_of:
        faults.add(located.at("released"), f"`{row.released}` is later than the edition's `{as_of}`")
    later = [row.kernel, *row.later_kernels]
    if any(not before < after for before, after in pairwise(later)):
        faults.add(located.at("later_kernels"), "kernels stand in ascending order, after that of the release")
    known = {row.kernel, *row.later_kernels}
    for kernel in row.precompiled_kernels:
        if kernel not in known:
            faults.add(located.at("precompiled_kernels"), f"`{kernel}` is no kernel of the system")
    if bool(row.precompiled_kernels) != bool(row.precompiled_branches):
        faults.add(located.at("precompiled_branches"), "kernels and branches stand together")


def _judge_kernel(located: Located[Any], tables: Tables, faults: Faults) -> None:
    row = located.row
    if len(row.kernel.parts) != 2:
        faults.add(located.at("kernel"), f"`{row.kernel}` is not a minor release such as `6.8`")
    known = {other.row.major for other in tables["branches"]}
    _judge_builds(located, "builds", row.builds, known, faults)
    for change in row.stable_changes:
        _judge_builds(located, "stable_changes", change.builds, known, faults)
        if change.since.parts[:2] != row.kernel.parts or len(change.since.parts) != 3:
            faults.add(located.at("stable_changes"), f"`{change.since}` is no patch level of {row.kernel}")
        for version in change.fails:
            if any(build.branch == version.major and build.since <= version for build in change.builds):
                faults.add(located.at("stable_changes"), f"`{version}` both builds and fails")
    if "systems" in tables.incomplete:
        return
    systems = {other.row.system: other.row for other in tables["systems"]}
    for name in row.default_of:
        if name not in systems:
            faults.add(located.at("default_of"), f"`{name}` is not in `systems`{nearest(name, systems)}")
        elif row.kernel not in (systems[name].kernel, *systems[name].later_kernels):
            faults.add(located.at("default_of"), f"`{name}` has no kernel {row.kernel} in `systems`")


def _judge_builds(
    located: Located[Any], field: str, builds: tuple[KernelBuild, ...], branches: set[int], faults: Faults
) -> None:
    named = [build.branch for build in builds]
    if named != sorted(set(named)):
        faults.add(located.at(field), "branches stand in ascending order, each once")
    for build in builds:
        problem = _build_problem(build, branches)
        if problem:
            faults.add(located.at(field), problem)


def _build_problem(build: KernelBuild, branches: set[int]) -> str:
    if build.branch not in branches:
        return f"R{build.branch} is not in `branches`"
    for version in (build.since, build.upstream_since):
        if version is not None and version.major != build.branch:
            return f"`{version}` is not a release of R{build.branch}"
    if build.upstream_since is not None and not build.patched_by:
        return f"R{build.branch}: `upstream_since` goes with a patch"
    if build.upstream_since is not None and build.upstream_since <= build.since:
        return f"`{build.upstream_since}` is not newer than the patched `{build.since}`"
    return ""


def _judge_name(located: Located[Any], faults: Faults) -> None:
    row = located.row
    if row.status != "removed" and (row.last or row.removed_in):
        faults.add(located.at("status"), f"what is {row.status} was not removed")
    if row.kind == "flag" and not row.name.startswith("-"):
        faults.add(located.at("name"), f"the flag `{row.name}` begins with no dash")


def _judge_speed(located: Located[Any], tables: Tables, faults: Faults) -> None:
    row = located.row
    for field, sheet in _AGAINST:
        value, promised = getattr(row, field), getattr(row, sheet)
        if value is None:
            continue
        if promised is None:
            faults.add(located.at(field), f"there is no `{sheet}` to hold it against")
        elif not SHARE_MIN <= value / promised <= SHARE_MAX:
            text = f"{value:g} is {value / promised:.0%} of the datasheet's {promised:g}"
            faults.add(located.at(field), f"{text}: {SHARE_MIN:.0%} to {SHARE_MAX:.0%} are credible")
    if (row.allreduce_floor_gb_s is None) != (row.allreduce_gpus is None):
        faults.add(located.at("allreduce_gpus"), "the floor and the number of GPUs stand together")
    if "gpus" in tables.incomplete:
        return
    by_id = {gpu.row.pci_device_id: gpu.row for gpu in tables["gpus"]}
    for device_id in row.pci_device_ids:
        if device_id not in by_id:
            faults.add(located.at("pci_device_ids"), f"`{device_id}` has no row in pci_ids.yaml")
        elif by_id[device_id].compute_capability != row.compute_capability:
            text = f"`{device_id}` has {by_id[device_id].compute_capability} in pci_ids.yaml"
            faults.add(located.at("compute_capability"), text)
    _judge_sheet(located, tables, faults)


def _judge_sheet(located: Located[Any], tables: Tables, faults: Faults) -> None:
    """Memory and bandwidth agree with the product row of the same id, within what sheets differ by."""
    products = {i: product.row for product in tables["products"] for i in product.row.pci_device_ids}
    row = located.row
    for device_id in row.pci_device_ids:
        product = products.get(device_id)
        for field, slack in (("memory_gb", 0.03), ("bandwidth_gb_s", 0.05)):
            theirs = getattr(product, field, None)
            if theirs and abs(getattr(row, field) / theirs - 1) > slack:
                faults.add(located.at(field), f"`{device_id}` has {theirs:g} in `products`")


def _judge_published(located: Located[Any], faults: Faults) -> None:
    """Numbers that no model has: heads that do not divide, sizes and bases of nothing."""
    row = located.row
    if row.heads and row.kv_heads and row.heads % row.kv_heads:
        faults.add(located.at("kv_heads"), f"{row.heads} heads are no multiple of {row.kv_heads}")
    for field in ("hidden_size", "layers", "vocab_size", "parameters"):
        value = getattr(row, field)
        if value is not None and value < 1:
            faults.add(located.at(field), f"{value} is no size")
    if any(theta < 1 for theta in row.rope_thetas) or any(tokens < 1 for tokens in row.contexts):
        faults.add(located.at("rope_thetas"), "bases and contexts are positive")


def _judge_range(located: Located[Any], faults: Faults) -> None:
    row = located.row
    if not 0 < row.low <= row.high:
        faults.add(located.at("low"), f"{row.low:g} to {row.high:g} is no range")
    if row.unit == "share" and row.high > 1:
        faults.add(located.at("high"), f"{row.high:g} is more than the whole")
