"""What a machine is, as variables: memory, bandwidth and ids of its GPUs, the kernel of its system.

A question such as `memory-gb>=80` or `native-fp8==no` is held against the rows of the card. Each kind of GPU
has variables of its own. What no row tells is a doubt, so that the answer is `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from doctor.core.goal import Term
from doctor.core.matrix import Matrix
from doctor.core.rows.base import Row
from doctor.core.rows.hardware import Architecture
from doctor.core.rows.system import SystemRow
from doctor.core.sets import VersionSet
from doctor.core.solve.model import OTHER, Link, Model
from doctor.core.solve.universe import minor_of
from doctor.core.target import GpuKind
from doctor.core.versions import Version
from doctor.errors import UsageError

__all__ = ["GPU_PROPERTIES", "add_properties", "kernel_of"]


class _Known(NamedTuple):
    """The values that hold of a card, the rows that say so, and whether they say so for certain."""

    values: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    is_sure: bool = True


class _Property(NamedTuple):
    says: str
    """A sentence about the card, with its value."""
    find: Callable[[Matrix, GpuKind], _Known]
    slack: float = 0.0
    """The share by which data sheets of one card differ."""


def _size(field: str) -> Callable[[Matrix, GpuKind], _Known]:
    """A figure or word of the product, or else of the id's row."""

    def find(matrix: Matrix, kind: GpuKind) -> _Known:
        for row in (matrix.product(kind.pci_id), matrix.gpu(kind.pci_id)):
            value = getattr(row, field, None)
            if row is not None and value:
                text = f"{value:g}" if isinstance(value, float) else str(value)
                return _Known((text,), (row,), field not in row.unverified)
        return _Known()

    return find


def _ids(matrix: Matrix, kind: GpuKind) -> _Known:
    """Every PCI id of the card: a product has several, and so has a name that ids share."""
    product, row = matrix.product(kind.pci_id), matrix.gpu(kind.pci_id)
    if product is not None:
        return _Known(product.pci_device_ids, (product,))
    if row is None:
        return _Known()
    same = tuple(other for other in matrix.edition.gpus if other.name == row.name)
    return _Known(tuple(dict.fromkeys(other.pci_device_id for other in same)) or (kind.pci_id,), (row,))


def _family(find: Callable[[Architecture], str], field: str) -> Callable[[Matrix, GpuKind], _Known]:
    def look(matrix: Matrix, kind: GpuKind) -> _Known:
        family = matrix.architecture(kind.architecture)
        value = find(family) if family else ""
        if family is None or not value:
            return _Known()
        return _Known((value,), (family,), field not in family.unverified)

    return look


def _can(field: str) -> Callable[[Matrix, GpuKind], _Known]:
    words = {True: "yes", False: "no", None: ""}
    return _family(lambda family: words[getattr(family, field)], field)


#: Components that are a property of a GPU.
GPU_PROPERTIES: dict[str, _Property] = {
    "pci-id": _Property("has the PCI id {}", _ids),
    "architecture": _Property("is of the architecture {}", _family(lambda f: f.architecture, "architecture")),
    "memory-gb": _Property("has {} GB of memory", _size("memory_gb"), 0.03),
    "memory-type": _Property("has memory of the type {}", _size("memory_type")),
    "bandwidth-gb-s": _Property("has a memory bandwidth of {} GB/s", _size("bandwidth_gb_s"), 0.05),
    "pcie-generation": _Property("sits on PCIe {}", _size("pcie_generation")),
    "native-fp8": _Property("has tensor cores for FP8: {}", _can("fp8")),
    "native-fp4": _Property("has tensor cores for FP4: {}", _can("fp4")),
    "native-bf16": _Property("computes in BF16: {}", _can("bf16")),
    "first-cuda": _Property(
        "is a target of CUDA from {} on", _family(lambda f: str(f.first_cuda or ""), "first_cuda")
    ),
}


def add_properties(model: Model) -> None:
    """The variables of every property that the goal names, with what is known and what is wanted.

    Raises `UsageError` on a set that is none.
    """
    for component in dict.fromkeys(term.component for term in model.goal.terms):
        if component not in GPU_PROPERTIES:
            continue
        terms = [term for term in model.goal.terms if term.component == component]
        for number, kind in enumerate(model.target.gpus):
            _of_card(model, f"{component}{f'#{number + 1}' if number else ''}", terms, kind)
        if not model.target.gpus:
            model.add_variable(component, (OTHER,))
            says = f"no GPU was named: its {component} is not known"
            link = Link(relation="gpu-row", says=says, is_soft=True, nearest="--gpu NAME")
            model.say(link, [(component, 0)])


def _of_card(model: Model, name: str, terms: list[Term], kind: GpuKind) -> None:
    wanted, matrix = GPU_PROPERTIES[terms[0].component], model.universe.matrix
    found = wanted.find(matrix, kind) if kind.maker == "nvidia" else _Known()
    values = [model.universe.version(terms[0].component, text) for text in found.values]
    model.add_variable(name, (*values, OTHER))
    for term in terms:
        mask = 1 << len(values)  # something else than what is there would do
        for place, value in enumerate(values):
            mask |= _meets(model, term, value, wanted.slack) << place
        link = Link(relation=f"goal:{term.text}", says=f"the goal is {term.text}", kind="goal")
        model.say(link, [(name, mask)])
    source = tuple(dict.fromkeys(text for row in found.rows for text in row.source))
    says = f"{kind.name} {wanted.says.format(' or '.join(found.values))}"
    if not values:
        near = ", ".join(kind.nearest)
        says = f"no row of this matrix tells the {terms[0].component} of {kind.name}"
        model.say(Link(relation="gpu-row", says=says, is_soft=True, nearest=near), [(name, 0)])
    else:
        link = Link(
            relation=f"gpu-{terms[0].component}",
            says=says,
            kind="fact",
            source=source,
            confidence="vendor" if found.is_sure else "unverified",
            is_soft=not found.is_sure,
        )
        model.say(link, [(name, (1 << len(values)) - 1)])


def _meets(model: Model, term: Term, value: Version, slack: float) -> bool:
    """Whether a value lies in a goal's set; words in any case, figures as far as sheets agree."""
    if model.universe.scheme(term.component) == "name":
        spec = term.spec.casefold()
        words = spec.removeprefix("==").removeprefix("!=").split("|")
        plain = value.raw.casefold().replace(" ", "")
        # `LPDDR5X unified` is LPDDR5X, written with a remark.
        is_in = plain in words or value.raw.casefold().partition(" ")[0] in words
        return is_in != spec.startswith("!=")
    wanted = _set(model, term)
    exact = wanted.exact
    if exact is None or not slack:
        return value in wanted
    return abs(_number(exact) - _number(value)) <= slack * _number(value)


def _set(model: Model, term: Term) -> VersionSet:
    try:
        return model.universe.set_of(term.component, term.spec)
    except ValueError as error:
        raise UsageError(str(error), hints=(f"`{term.text}` was given",)) from None


def _number(version: Version) -> float:
    whole, part = minor_of(version)
    return float(f"{whole}.{part}")


# --- the system's kernel --------------------------------------------------------------------------


def kernel_of(model: Model, system: SystemRow) -> tuple[Version, str] | None:
    """The kernel of a system: that which fits a goal about it of those it has, its only one, or none.

    A system with several kernels has none of its own where the goal does not speak of any.
    """
    terms: Iterable[Term] = [term for term in model.goal.terms if term.component == "kernel"]
    kernels = (system.kernel, *system.later_kernels)
    says = f"the kernel of {system.system} is {' or '.join(map(str, kernels))}"
    if not terms:
        # The guest of another owner's driver has a kernel of theirs.
        is_own = model.target.driver_kind in ("", "data-center", "vgpu-guest")
        return (system.kernel, says) if is_own and len(kernels) == 1 else None
    sets = [_set(model, term) for term in terms]
    for kernel in kernels:
        exact = next((one.exact for one in sets if one.exact is not None), None)
        if exact is not None and minor_of(exact) == minor_of(kernel):
            return exact, says
        if all(kernel in one for one in sets):
            return kernel, says
    return system.kernel, says
