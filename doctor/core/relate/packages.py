"""What releases ask for: pins, interpreters, the CUDA they were built with, the code they carry."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from doctor.core.codes import runs
from doctor.core.rows.driver import ToolkitRow
from doctor.core.rows.package import HardwareSupport, Release
from doctor.core.solve.frame import lead, takes_compat
from doctor.core.solve.model import Model
from doctor.core.solve.universe import Universe, minor_of
from doctor.core.versions import Dotted, Version

__all__ = ["floor_literals", "relate_packages", "short"]

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
        _interpreters(model, component)
        _processors(model, component)
        _built_with(model, component)
        _compiled(model, component)
        _variants(model, component)
    _rowless(model)
    _hardware(model)
    _uncovered(model)
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


def _grouped(
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


def _mask(model: Model, component: str, rows: Group) -> int:
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
        groups = _grouped(universe, component, f"requires {name}", lambda row, n=name: row.requires.get(n))  # type: ignore[misc]
        for spec, rows in groups:
            model.relate(
                _pin(component, name),
                (component, _mask(model, component, rows)),
                f"requires {name} {spec}",
                (name, model.mask(name, str(spec))),
                rows=rows[:1],
            )


def _pin(component: str, name: str) -> str:
    if component == "torch-tensorrt" and name in ("torch", "tensorrt"):
        return "torch-tensorrt-pin"
    tail = "" if name in ("python", "glibc") else "-pin"
    return f"{short(component)}-{name}{tail}"


def _interpreters(model: Model, component: str) -> None:
    if "python" not in model:
        return
    for minors, rows in _grouped(model.universe, component, "interpreters", lambda row: row.interpreters):
        wanted = {tuple(map(int, text.split("."))) for text in minors}  # type: ignore[attr-defined]
        model.relate(
            f"{short(component)}-python",
            (component, _mask(model, component, rows)),
            f"has compiled parts for Python {_span(minors)} only",  # type: ignore[arg-type]
            ("python", model.where("python", lambda v, w=wanted: v.key.release[:2] in w)),  # type: ignore[misc]
            rows=rows[:1],
        )


def _span(texts: tuple[str, ...]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _processors(model: Model, component: str) -> None:
    arch = model.target.arch
    for kinds, rows in _grouped(model.universe, component, "cpu", lambda row: row.cpu):
        if arch not in kinds:  # type: ignore[operator]
            model.relate(
                f"{short(component)}-cpu",
                (component, _mask(model, component, rows)),
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
    for cuda, rows in _grouped(model.universe, component, "cuda", lambda row: row.cuda):
        assert isinstance(cuda, Dotted)
        subject = (component, _mask(model, component, rows))
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
    model.relate(relation, subject, says, *floor_literals(model, row.driver_floor), rows=(*rows, row))


def _same_cuda(version: Version, cuda: Dotted, *, is_major: bool) -> bool:
    return minor_of(version)[0] == cuda.major if is_major else minor_of(version) == minor_of(cuda)


def _variants(model: Model, component: str) -> None:
    if "tensorrt-variant" not in model or component != "tensorrt":
        return
    for variants, rows in _grouped(model.universe, component, "variants", lambda row: row.cuda_variants):
        model.relate(
            "tensorrt-cuda-variant",
            (component, _mask(model, component, rows)),
            f"is built as {' and '.join(variants)}",  # type: ignore[arg-type]
            ("tensorrt-variant", model.where("tensorrt-variant", lambda v, w=variants: v.raw in w)),  # type: ignore[misc]
            rows=rows[:1],
        )
    for variant in model.texts("tensorrt-variant", model.full("tensorrt-variant")):
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
        model.relate(f"driver-floor-cuda{major}", subject, says, other, *literals, rows=(floor,))
    if "cuda" in model and lead(model.target, model.goal) == "tensorrt":
        same = model.where("cuda", lambda v: minor_of(v)[0] == major)
        rows = (floor,) if floor else ()
        model.relate("tensorrt-cuda-variant", subject, f"is a CUDA {major} build", ("cuda", same), rows=rows)


def _cuda_floor(model: Model) -> None:
    """The floor of a program's CUDA, whatever the program."""
    named = {term.component for term in (*model.goal.terms, *model.target.have)}
    if "cuda" not in model or (lead(model.target, model.goal) and "cuda" not in named):
        return  # the floor of the release that it was built for says it
    majors = {minor_of(v)[0] for v in model.domain("cuda") if isinstance(v, Version)}
    for major in sorted(majors):
        mine = model.where("cuda", lambda v, m=major: minor_of(v)[0] == m)  # type: ignore[misc]
        _floor(model, ("cuda", mine), major, "")


# --- code for the GPU -----------------------------------------------------------------------------


def _compiled(model: Model, component: str) -> None:
    """Which capabilities a wheel's machine code runs on; PTX alone is no promise."""
    groups = _grouped(
        model.universe,
        component,
        "compiled",
        lambda row: (
            (row.compute_capability, row.ptx, row.cuda, "compute_capability" in row.unverified)
            if row.compute_capability
            else None
        ),
    )
    for _feature, rows in groups:
        subject = (component, _mask(model, component, rows))
        for _kind, _card, capability in model.gpus:
            _code_for(model, subject, capability, rows)


def _code_for(model: Model, subject: tuple[str, int], capability: str, rows: Group) -> None:
    """One group of releases with the same code against one kind of GPU."""
    row = rows[0]
    codes, ptx = row.compute_capability, row.ptx
    numbers = [Dotted(text) for text in codes]
    sure = perhaps = 0
    for position, value in enumerate(model.domain(capability)):
        verdict = runs(model.universe.matrix, value, numbers, ptx, row.cuda)  # type: ignore[arg-type]
        sure |= (verdict == "yes") << position
        perhaps |= (verdict != "no") << position
    if model.target.arch != "x86_64" and model.target.arch not in row.cpu:
        return  # the row was read off the x86-64 wheel: `advice` says that no other was looked at
    relation = f"{short(subject[0])}-compiled-cc"
    says = f"has code for compute capability {', '.join(codes)}"
    is_weak = "compute_capability" in row.unverified
    model.relate(relation, subject, says, (capability, perhaps), rows=rows[:1], is_soft=is_weak)
    if perhaps != sure:
        doubt = f"{f' and PTX of {ptx}' if ptx else ''}: whether that serves this GPU is not known"
        near = _nearest_code(model, capability, numbers)
        model.relate(
            relation,
            subject,
            says,
            (capability, sure),
            rows=rows[:1],
            is_soft=True,
            nearest=near,
            doubt=doubt,
        )


def _nearest_code(model: Model, capability: str, codes: list[Dotted]) -> str:
    own = next((kind.compute_capability for kind, _card, name in model.gpus if name == capability), "")
    below = [code for code in codes if own and code <= Dotted(own)]
    return f"compute capability {below[-1] if below else codes[0]}"


def _hardware(model: Model) -> None:
    """Floors and lists of capabilities by line."""
    for row in model.universe.matrix.edition.hardware:
        if row.component not in model:
            continue
        subject = (row.component, model.mask(row.component, row.versions))
        for kind, _card, capability in model.gpus:
            if row.min_compute_capability:
                _least(model, row, subject, capability)
            if row.compute_capability:
                _listed(model, row, subject, (capability, kind.compute_capability))


def _uncovered(model: Model) -> None:
    """Releases that no line of GPUs covers, of components that have such lines and no list of their own."""
    lines: dict[str, list[HardwareSupport]] = {}
    for row in model.universe.matrix.edition.hardware:
        lines.setdefault(row.component, []).append(row)
    for component in ("tensorrt", "tensorrt-llm"):
        if component not in model or not model.gpus:
            continue
        covered = 0
        for row in lines.get(component, ()):
            covered |= model.mask(component, row.versions)
        subject = (component, model.full(component) & ~covered)
        says = "has no row that tells which GPUs it supports"
        near = f"hardware {component} {lines[component][-1].versions}" if component in lines else ""
        relation = f"{short(component)}-hardware"
        model.relate(relation, subject, says, is_soft=True, nearest=near)


def _least(model: Model, row: HardwareSupport, subject: tuple[str, int], capability: str) -> None:
    floor = Dotted(row.min_compute_capability)
    relation = "gpu-last-cuda" if row.component == "cuda" else f"{short(row.component)}-min-cc"
    model.relate(
        relation,
        subject,
        f"needs compute capability {floor} or newer",
        (capability, model.where(capability, lambda version: version >= floor)),
        rows=(row,),
        is_soft="min_compute_capability" in row.unverified,
    )


def _listed(model: Model, row: HardwareSupport, subject: tuple[str, int], own: tuple[str, str]) -> None:
    """The vendor's list: what is not on it is untested, not refused."""
    capability, value = own
    listed = [Dotted(text) for text in row.compute_capability]
    near = _around(listed, Dotted(value)) if value else ""
    model.relate(
        f"{short(row.component)}-hardware",
        subject,
        f"is listed for compute capability {', '.join(row.compute_capability)}; others are untested",
        (capability, model.where(capability, set(listed).__contains__)),
        rows=(row,),
        is_soft=True,
        nearest=f"hardware {row.component} {row.versions}: {near}" if near else "",
    )


def _around(listed: Iterable[Dotted], value: Dotted) -> str:
    below = [version for version in listed if version < value][-1:]
    above = [version for version in listed if version > value][:1]
    return " and ".join(str(version) for version in (*below, *above))
