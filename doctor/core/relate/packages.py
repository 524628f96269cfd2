"""What releases ask for: pins, interpreters, the CUDA they were built with."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from doctor.core.rows.driver import ToolkitRow
from doctor.core.rows.package import Release
from doctor.core.solve.frame import lead, takes_compat
from doctor.core.solve.model import Model
from doctor.core.solve.universe import Universe, minor_of
from doctor.core.versions import Dotted, Version

__all__ = ["Group", "floor_literals", "grouped", "mask_of", "relate_packages", "short"]

Group = tuple[Release, ...]


def short(component: str) -> str:
    """A component's name as relations have it: `trtllm-torch-pin`."""
    return {"tensorrt-llm": "trtllm"}.get(component, component)


def relate_packages(model: Model) -> None:
    """All relations of the package releases in the model."""
    for component in model.names:
        if not model.universe.releases(component):
            continue
        _requires(model, component)
        _undeclared(model, component)
        _interpreters(model, component)
        _untold_interpreters(model, component)
        _processors(model, component)
        _built_with(model, component)
        _variants(model, component)
    _rowless(model)
    _cuda_floor(model)


def _rowless(model: Model) -> None:
    """A torch that others pin and no row describes: what it asks for is not known."""
    if "torch" not in model:
        return
    rows = model.universe.releases("torch")
    without = model.full("torch") & ~model.among("torch", (row.version for row in rows))
    near = f"torch {rows[-1].version}" if rows else ""
    says = "has no row in this matrix"
    model.relate("nearest-known-row", ("torch", without), says, is_soft=True, nearest=near)


def grouped(
    universe: Universe, component: str, key: str, feature: Callable[[Release], Hashable]
) -> tuple[tuple[Hashable, Group], ...]:
    """Releases with the same feature and the same sources, once for all questions; empty ones left out."""

    def find() -> tuple[tuple[Hashable, Group], ...]:
        found: dict[Hashable, list[Release]] = {}
        for row in universe.releases(component):
            value = feature(row)
            if value:
                found.setdefault((value, row.source, row.confidence, row.overlay), []).append(row)
        return tuple((place[0], tuple(rows)) for place, rows in found.items())  # type: ignore[index]

    return universe.kept(f"{component} {key}", find)


def mask_of(model: Model, component: str, rows: Group) -> int:
    """The versions of some releases."""
    return model.among(component, (row.version for row in rows))


def _requires(model: Model, component: str) -> None:
    universe = model.universe
    asked = universe.kept(
        f"requires {component}",
        lambda: tuple(dict.fromkeys(name for row in universe.releases(component) for name in row.requires)),
    )
    for name in asked:
        if name not in model:
            continue
        groups = grouped(universe, component, f"requires {name}", lambda row, n=name: row.requires.get(n))  # type: ignore[misc]
        for spec, rows in groups:
            model.relate(
                _pin(component, name),
                (component, mask_of(model, component, rows)),
                f"requires {name} {spec}",
                (name, model.mask(name, str(spec))),
                rows=rows[:1],
            )


def _undeclared(model: Model, component: str) -> None:
    """Stubs that state no dependencies: what they fetch pins something, and no row tells what."""
    beside = [term for term in (*model.goal.terms, *model.target.have) if term.component != component]
    if not beside and not model.target.gpus:
        return  # what a release has within it does not hang on what it fetches
    groups = grouped(model.universe, component, "undeclared", _is_undeclared)
    for _feature, rows in groups:
        others = [row for row in model.universe.releases(component) if not _is_undeclared(row)]
        telling = [row for row in others if not row.version.key.is_prerelease] or others
        near = f"{component} {telling[-1].version}" if telling else ""
        model.relate(
            f"{short(component)}-pins-untold",
            (component, mask_of(model, component, rows)),
            "states no dependencies, and what it fetches when it is built was not read",
            rows=rows[:1],
            is_soft=True,
            nearest=near,
        )


def _is_undeclared(row: Release) -> bool:
    """Whether a stub names neither a package nor the CUDA that its files were built with."""
    is_stub = row.delivery == "stub" and row.cuda is None and not row.cuda_variants
    return is_stub and row.requires.keys() <= {"python", "glibc"}


def _pin(component: str, name: str) -> str:
    if component == "torch-tensorrt" and name in ("torch", "tensorrt"):
        return "torch-tensorrt-pin"
    tail = "" if name in ("python", "glibc") else "-pin"
    return f"{short(component)}-{name}{tail}"


def _interpreters(model: Model, component: str) -> None:
    if "python" not in model:
        return
    for minors, rows in grouped(model.universe, component, "interpreters", lambda row: row.interpreters):
        wanted = {tuple(map(int, text.split("."))) for text in minors}  # type: ignore[attr-defined]
        model.relate(
            f"{short(component)}-python",
            (component, mask_of(model, component, rows)),
            f"has compiled parts for Python {_span(minors)} only",  # type: ignore[arg-type]
            ("python", model.where("python", lambda v, w=wanted: v.key.release[:2] in w)),  # type: ignore[misc]
            rows=rows[:1],
        )


def _untold_interpreters(model: Model, component: str) -> None:
    """Stubs without a list of interpreters, where others have one: bindings may be missing."""
    releases = model.universe.releases(component)
    if "python" not in model or not any(row.interpreters for row in releases):
        return
    without = [row for row in releases if row.delivery == "stub" and not row.interpreters]
    if without:
        subject = (component, mask_of(model, component, tuple(without)))
        says = "has no bindings for Python that a row tells of"
        newest = next(row.version for row in reversed(releases) if row.interpreters)
        near, relation = f"{component} {newest}", f"{short(component)}-python"
        model.relate(relation, subject, says, rows=without[:1], is_soft=True, nearest=near)


def _span(texts: tuple[str, ...]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _processors(model: Model, component: str) -> None:
    arch = model.target.arch
    for kinds, rows in grouped(model.universe, component, "cpu", lambda row: row.cpu):
        if arch not in kinds:  # type: ignore[operator]
            model.relate(
                f"{short(component)}-cpu",
                (component, mask_of(model, component, rows)),
                f"has no wheel for {arch}",
                rows=rows[:1],
            )


# --- CUDA -----------------------------------------------------------------------------------------


def floor_literals(model: Model, floor: Version) -> list[tuple[str, int]]:
    """What lifts a driver floor: compat libraries of that version where the GPUs take them, or the driver."""
    driver = ("driver", model.mask("driver", f">={floor}"))
    if "cuda-compat" not in model or not takes_compat(model):
        return [driver]
    return [("cuda-compat", model.mask("cuda-compat", f">={floor}")), driver]


def _floor_of(model: Model, major: int) -> ToolkitRow | None:
    return model.universe.kept("floors", model.universe.floors).get(major)


def _built_with(model: Model, component: str) -> None:
    """The driver floor of the CUDA a wheel was built with, and that CUDA itself for the stack's lead."""
    is_lead = "cuda" in model and lead(model.target, model.goal) == component
    for cuda, rows in grouped(model.universe, component, "cuda", lambda row: row.cuda):
        assert isinstance(cuda, Dotted)
        subject = (component, mask_of(model, component, rows))
        _floor(model, subject, cuda.major, f"is built with CUDA {cuda}, which ", rows[:1])
        if is_lead:
            whole = len(cuda.parts) == 1
            same = model.where("cuda", lambda v, c=cuda, w=whole: _same_cuda(v, c, is_major=w))  # type: ignore[misc]
            model.relate(
                "built-with-cuda", subject, f"is built with CUDA {cuda}", ("cuda", same), rows=rows[:1]
            )


def _floor(model: Model, subject: tuple[str, int], major: int, words: str, rows: Group = ()) -> None:
    """The driver that a CUDA major asks for."""
    if "driver" not in model:
        return
    row = _floor_of(model, major)
    relation = f"driver-floor-cuda{major}"
    if row is None:
        says = f"{words}needs a driver that no row of this matrix names"
        model.relate(relation, subject, says, rows=rows, is_soft=True)
        return
    says = f"{words}needs driver {row.driver_floor} or newer"
    literals, is_soft = floor_literals(model, row.driver_floor), _is_of_others(model)
    model.relate(relation, subject, says, *literals, rows=(*rows, row), is_soft=is_soft)


def _is_of_others(model: Model) -> bool:
    """Whether the driver is of a maker of whole systems, whose numbers are not those of the floors."""
    return model.target.driver_kind in ("jetpack", "windows")


def _same_cuda(version: Version, cuda: Dotted, *, is_major: bool) -> bool:
    return minor_of(version)[0] == cuda.major if is_major else minor_of(version) == minor_of(cuda)


def _variants(model: Model, component: str) -> None:
    if "tensorrt-variant" not in model or component != "tensorrt":
        return
    for variants, rows in grouped(model.universe, component, "variants", lambda row: row.cuda_variants):
        model.relate(
            "tensorrt-cuda-variant",
            (component, mask_of(model, component, rows)),
            f"is built as {' and '.join(variants)}",  # type: ignore[arg-type]
            ("tensorrt-variant", model.where("tensorrt-variant", lambda v, w=variants: v.raw in w)),  # type: ignore[misc]
            rows=rows[:1],
        )
    built = {row.version for row in model.universe.releases("tensorrt") if row.cuda_variants}
    other = model.full("tensorrt") & ~model.among("tensorrt", built)
    absent = model.absent("tensorrt-variant")
    if absent and other:
        says = "has no row that tells the CUDA it is built with"
        model.relate("tensorrt-cuda-variant", ("tensorrt", other), says, ("tensorrt-variant", absent))
    there = model.full("tensorrt-variant") & ~absent
    for variant in model.texts("tensorrt-variant", there):
        _variant_floor(model, variant, int(variant.removeprefix("cu")))


def _variant_floor(model: Model, variant: str, major: int) -> None:
    floor = _floor_of(model, major)
    subject = ("tensorrt-variant", model.where("tensorrt-variant", lambda v: v.raw == variant))
    if "driver" in model and floor is not None:
        built = {row.version for row in model.universe.releases("tensorrt") if row.cuda_variants}
        # A line without a row may be built for a CUDA that no row speaks of.
        other = ("tensorrt", model.full("tensorrt") & ~model.among("tensorrt", built))
        says = f"is a CUDA {major} build, which needs driver {floor.driver_floor} or newer"
        literals = floor_literals(model, floor.driver_floor)
        is_soft = _is_of_others(model)
        model.relate(
            f"driver-floor-cuda{major}", subject, says, other, *literals, rows=(floor,), is_soft=is_soft
        )
    if "cuda" in model and lead(model.target, model.goal) == "tensorrt":
        same = model.where("cuda", lambda v: minor_of(v)[0] == major)
        rows = (floor,) if floor else ()
        model.relate("tensorrt-cuda-variant", subject, f"is a CUDA {major} build", ("cuda", same), rows=rows)


def _cuda_floor(model: Model) -> None:
    """The floor of a program's CUDA, whatever the program."""
    named = {term.component for term in (*model.goal.terms, *model.target.have)}
    if "cuda" not in model or (lead(model.target, model.goal) and "cuda" not in named):
        return  # the floor of the release that it was built for says it
    own = _released_with(model) if "driver" in model else {}
    majors = {minor_of(v)[0] for v in model.domain("cuda") if isinstance(v, Version)}
    for major in sorted(majors):
        mine = model.where("cuda", lambda v, m=major: v not in own and minor_of(v)[0] == m)  # type: ignore[misc]
        _floor(model, ("cuda", mine), major, "")
    for version, (row, driver) in own.items():
        subject = ("cuda", model.one("cuda", version))
        says = f"was released with driver {driver}, and needs that or newer"
        literals = floor_literals(model, driver)
        relation = f"driver-floor-cuda{minor_of(version)[0]}"
        model.relate(relation, subject, says, *literals, rows=(row,), is_soft=_is_of_others(model))


def _released_with(model: Model) -> dict[Version, tuple[ToolkitRow, Dotted]]:
    """Toolkits whose own driver is older than the floor of their major, which came to be only later: 11.0."""
    found: dict[Version, tuple[ToolkitRow, Dotted]] = {}
    for row in model.universe.matrix.edition.toolkits:
        for version, driver in ((row.cuda, row.driver), *((u.version, u.driver) for u in row.updates)):
            if driver is not None and driver < row.driver_floor and version in model.domain("cuda"):
                found[version] = (row, driver)
    return found
