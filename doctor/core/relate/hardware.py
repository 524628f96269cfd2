"""Which GPUs releases serve: the code they carry, the lines their makers list, and where rows end."""

from __future__ import annotations

from collections.abc import Iterable

from doctor.core.codes import runs
from doctor.core.relate.packages import Group, grouped, mask_of, short
from doctor.core.rows.package import HardwareSupport
from doctor.core.solve.model import Model
from doctor.core.solve.universe import minor_of
from doctor.core.versions import Dotted

__all__ = ["relate_hardware"]


def relate_hardware(model: Model) -> None:
    """All relations of releases and GPUs."""
    for component in model.names:
        if model.universe.releases(component):
            _compiled(model, component)
    _hardware(model)
    _uncovered(model)
    _lines(model)
    _unknown_to_tensorrt(model)


# --- code for the GPU -----------------------------------------------------------------------------


def _compiled(model: Model, component: str) -> None:
    """Which capabilities a wheel's machine code runs on; PTX alone is no promise."""
    groups = grouped(
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
        subject = (component, mask_of(model, component, rows))
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


def _lines(model: Model) -> None:
    """Lines of which no release has a row: what they are built with and ask for is not known."""
    for component in dict.fromkeys(row.component for row in model.universe.matrix.edition.hardware):
        releases = model.universe.releases(component)
        if component not in model or not releases:
            continue
        first = releases[0].version
        before = model.where(component, lambda v, f=first: v < f) & ~model.among(  # type: ignore[misc]
            component, (row.version for row in releases)
        )
        says = "is a line of which no release has a row"
        near = f"{component} {first}"
        model.relate("nearest-known-row", (component, before), says, is_soft=True, nearest=near)


def _unknown_to_tensorrt(model: Model) -> None:
    """A floor says nothing upwards: a release serves a GPU that every CUDA it may be built with knew."""
    if "tensorrt" not in model:
        return
    for kind, card, _capability in model.gpus:
        family = model.universe.matrix.architecture(kind.architecture)
        first = family.first_cuda if family else None
        if family is None or first is None:
            continue
        rows = model.universe.releases("tensorrt")
        knowing = [row for row in rows if any(int(word[2:]) >= _whole(first) for word in row.cuda_variants)]
        lines = model.where("tensorrt", lambda v, r=rows: bool(r) and v < r[0].version)  # type: ignore[misc]
        met = lines | model.among("tensorrt", (row.version for row in knowing))
        says = f"is a target of CUDA {first} and newer"
        near = f"tensorrt {knowing[0].version}" if knowing else ""
        model.relate(
            "tensorrt-hardware",
            (card, 1),
            says,
            ("tensorrt", met),
            rows=(family,),
            is_soft=True,
            nearest=near,
            doubt=", and no row tells whether an older build of TensorRT is of so new a CUDA",
        )


def _whole(cuda: Dotted) -> int:
    """The first major every minor of which is at least this: 13 for 12.8, 12 for 12.0."""
    major, minor = minor_of(cuda)
    return major + (minor > 0)


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
