"""What a question is about: GPUs, system, what is installed and what must stay. Named, or read off a host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

import msgspec

from doctor.core.goal import Term
from doctor.core.matrix import GpuRow, Matrix, Product
from doctor.core.pattern import pattern
from doctor.core.rows.choice import DriverOwner
from doctor.core.rows.system import SystemRow
from doctor.errors import UsageError

__all__ = ["GpuKind", "Target", "find_gpu", "make_target", "namesakes", "system_of"]

Maker = Literal["nvidia", "other", "unknown"]

_COUNT = pattern(r"(.+?)\s*[xX](\d{1,4})")
_PCI = pattern(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{4})")
#: A slice of a card is named after it: `A10-24Q`, its gigabytes and the licence.
_VGPU = pattern(r"-\d{1,3}[ABCQ]$")
_SXM = pattern(r"sxm[0-9]")
_NVIDIA = "10de"


class GpuKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of one kind in a machine."""

    name: str
    count: int = 1
    pci_id: str = ""
    maker: Maker = "nvidia"
    maker_name: str = ""
    """Of another maker: `AMD`."""
    architecture: str = ""
    """Empty where the matrix does not know the card."""
    compute_capability: str = ""
    products: Literal["data-center", "geforce-rtx"] = "data-center"
    """Which bulletins speak of it."""
    is_nvswitch: bool = False
    """Several GPUs of a kind that an NVSwitch joins: they need the fabric manager."""
    is_rack: bool = False
    """Whether those switches stand in trays of their own, with managers of theirs: none runs on the host."""
    is_arm64: bool = False
    source: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()
    """For a card the matrix does not know: names that come near."""


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine as a question sees it. Empty text: not said."""

    gpus: tuple[GpuKind, ...] = ()
    os: str = ""
    kernel: str = ""
    python: str = ""
    """The interpreter that is there."""
    arch: str = "x86_64"
    have: tuple[Term, ...] = ()
    """What is installed, each with its exact version: `driver` `==580.95.05`."""
    hold: tuple[str, ...] = ()
    """Components that must stay as they are."""
    driver_kind: str = ""
    """Another owner's driver: `windows`, `jetpack`, `dgx-os`, `vgpu-guest`; empty for NVIDIA's packages."""

    def version(self, component: str) -> str:
        """The version that is there, or empty text."""
        for term in self.have:
            if term.component == component:
                return term.spec.removeprefix("==")
        return ""


def make_target(  # noqa: PLR0913 - one for each option of the command line
    matrix: Matrix,
    *,
    gpus: Sequence[str] = (),
    os: str = "",
    kernel: str = "",
    python: str = "",
    arch: str = "",
    have: Iterable[Term] = (),
    hold: Iterable[str] = (),
) -> Target:
    """A target of words, as the command line has them. Raises `UsageError` on what cannot be meant."""
    kinds = tuple(find_gpu(matrix, text) for text in gpus)
    terms = _installed(matrix, have)
    capability = next((t.spec.removeprefix("==") for t in terms if t.component == "compute-capability"), "")
    if capability:
        # What the GPU itself reports outranks every table.
        kinds = tuple(msgspec.structs.replace(kind, compute_capability=capability) for kind in kinds)
    slices = any(_VGPU.search(_COUNT.sub(r"\1", text.strip())) for text in gpus)
    kind = next((t.spec[2:] for t in terms if t.component == "driver-kind"), "vgpu-guest" if slices else "")
    target = Target(
        gpus=kinds,
        os=os,
        kernel=kernel,
        python=python or next((t.spec[2:] for t in terms if t.component == "python"), ""),
        arch=arch or ("aarch64" if any(kind.is_arm64 for kind in kinds) else "x86_64"),
        have=tuple(t for t in terms if t.component not in ("compute-capability", "driver-kind")),
        hold=tuple(dict.fromkeys(_component(matrix, name) for name in hold)),
        driver_kind=kind,
    )
    owner = _owner(matrix, target)
    return msgspec.structs.replace(target, driver_kind=owner.driver_kind) if owner else target


def system_of(matrix: Matrix, name: str) -> SystemRow | None:
    """The row of a system by a name such as `ubuntu-24.04`, `rocky-9.6` or `rhel 9`."""
    wanted = re.sub(r"[\s_]+", "-", name.strip().casefold())
    row = matrix.system(wanted)
    if row is None and re.fullmatch(r"[a-z]+-\d+\.\d+", wanted):
        row = matrix.system(wanted.rpartition(".")[0])
    return row


def _owner(matrix: Matrix, target: Target) -> DriverOwner | None:
    """Whose driver this machine runs, when it is not NVIDIA's own package."""
    system = re.sub(r"[\s_]+", "-", target.os.casefold())
    kernel = target.kernel.casefold()
    families = {kind.architecture for kind in target.gpus}
    for owner in matrix.edition.owners:
        if (
            owner.driver_kind == target.driver_kind
            or families.intersection(owner.architectures)
            or (system and system.startswith(owner.systems or ("\0",)))
            or any(word in kernel for word in owner.kernels)
        ):
            return owner
    return None


def _component(matrix: Matrix, name: str) -> str:
    if matrix.component(name) is None:
        known = [row.component for row in matrix.edition.components]
        near = get_close_matches(name, known, n=3)
        hint = (
            f"nearest: {', '.join(f'`{n}`' for n in near)}" if near else "`mopt-doctor matrix show component`"
        )
        raise UsageError(f"the matrix has no component `{name}`", hints=(hint,))
    return name


def _installed(matrix: Matrix, have: Iterable[Term]) -> tuple[Term, ...]:
    """What is there: exact versions only, each component once."""
    found: dict[str, Term] = {}
    for term in have:
        _component(matrix, term.component)
        if not term.spec.startswith("==") or "," in term.spec or term.spec.endswith(".*"):
            raise UsageError(
                f"`{term.text}` is not what is installed",
                hints=(f"an exact version: `{term.component}==VERSION`",),
            )
        if found.setdefault(term.component, term) != term:
            raise UsageError(f"`{term.component}` is named with two versions")
    return tuple(found.values())


# --- GPUs -----------------------------------------------------------------------------------------


def find_gpu(matrix: Matrix, text: str) -> GpuKind:
    """The GPUs that `H200`, `10de:2335` or `B200 x8` means; a kind of maker `unknown` where none is."""
    name, count = _counted(matrix, text.strip())
    if not name or not 0 < count <= 1024:
        raise UsageError(
            f"`{text}` names no GPU", hints=("a name or id and a count: `H200x8`, `10de:2335x8`",)
        )
    pci = _PCI.fullmatch(name)
    if pci:
        return _by_id(matrix, pci.group(1).lower(), pci.group(2).lower(), count)
    return _by_name(matrix, _VGPU.sub("", name), count)


def namesakes(matrix: Matrix, text: str) -> tuple[str, ...]:
    """The other cards that `H100` or `A100` may mean beside the one that `find_gpu` takes: with more
    or less memory, or a faster one. None of an id, or of a whole name.
    """
    name, count = _counted(matrix, text.strip())
    wanted, taken = _folded(_VGPU.sub("", name)), find_gpu(matrix, text)
    products = [row for row in matrix.edition.products if _has_words(wanted, _folded(row.product))]
    is_whole = any(_folded(row.product) == wanted for row in products)
    if _PCI.fullmatch(name) or is_whole or taken.maker != "nvidia":
        return ()
    rates = {i: row.bandwidth_gb_s for row in matrix.edition.speeds for i in row.pci_device_ids}
    own = next((row for row in products if row.product == taken.name), None)
    joined = count > 1 and any(row.needs_fabric_manager for row in products)

    def differs(row: Product, own: Product) -> bool:
        one, other = rates.get(row.pci_device_ids[0]), rates.get(own.pci_device_ids[0])
        return row.memory_gb != own.memory_gb or (one is not None and other is not None and one != other)

    return tuple(
        row.product
        for row in products
        if own is not None and differs(row, own) and (row.needs_fabric_manager or not joined)
    )


def _counted(matrix: Matrix, text: str) -> tuple[str, int]:
    """A name and its count. The x of `MX450` and `RTX4090` is a letter of the name."""
    match = _COUNT.fullmatch(text)
    if match is None or _by_name(matrix, text, 1).maker == "nvidia":
        return text, 1
    name, count = match.group(1), int(match.group(2))
    is_apart = text[match.end(1)].isspace()
    has_figure = any(char.isdigit() for char in name)
    if is_apart or has_figure or _by_name(matrix, name, count).maker != "unknown":
        return name, count
    return text, 1


def _by_id(matrix: Matrix, vendor: str, device: str, count: int) -> GpuKind:
    pci_id = f"{vendor}:{device}"
    if vendor != _NVIDIA:
        maker = next((row.maker for row in matrix.edition.makers if row.pci_vendor == vendor), "")
        return GpuKind(name=pci_id, count=count, pci_id=pci_id, maker="other", maker_name=maker)
    row = matrix.gpu(pci_id)
    if row is None:
        known = {gpu.pci_device_id for gpu in matrix.edition.gpus}
        return GpuKind(
            name=pci_id, count=count, pci_id=pci_id, maker="unknown", nearest=tuple(_nearby(pci_id, known))
        )
    return _known(matrix, row, matrix.product(pci_id), count)


def _nearby(pci_id: str, known: Iterable[str]) -> list[str]:
    """The ids on either side: chips of one family have ids that lie together."""
    number = int(pci_id[5:], 16)
    return sorted(known, key=lambda other: abs(int(other[5:], 16) - number))[:2]


def _by_name(matrix: Matrix, name: str, count: int) -> GpuKind:
    wanted = _folded(name)
    for product in matrix.edition.products:
        row = matrix.gpu(product.pci_device_ids[0])
        if row is not None and wanted in (_folded(product.product), *map(_folded, product.pci_device_ids)):
            return _known(matrix, row, product, count)
    found = _by_words(matrix, wanted, count) or _by_letters(matrix, wanted)
    if found is not None:
        return _known(matrix, found, matrix.product(found.pci_device_id), count)
    words = set(re.split(r"[^a-z0-9]+", name.casefold()))
    for maker in matrix.edition.makers:
        if words.intersection(maker.words):
            return GpuKind(name=name, count=count, maker="other", maker_name=maker.maker)
    return _unknown(matrix, name, count)


def _by_words(matrix: Matrix, wanted: str, count: int) -> GpuRow | None:
    """The card whose name has the words wanted; None where none has, or several that differ in kind.

    Of several of one kind the first one listed; with a count, one that an NVSwitch joins.
    """
    products = [row for row in matrix.edition.products if _has_words(wanted, _folded(row.product))]
    if products:
        joined = [row for row in products if row.needs_fabric_manager and count > 1]
        kinds = {(row.architecture, row.compute_capability) for row in products}
        return matrix.gpu((joined or products)[0].pci_device_ids[0]) if len(kinds) == 1 else None
    named = [row for row in matrix.edition.gpus if _folded(row.name) == wanted]
    named = named or [row for row in matrix.edition.gpus if _has_words(wanted, _folded(row.name))]
    kinds = {(row.architecture, row.compute_capability) for row in named}
    return matrix.gpu(named[0].pci_device_id) if len(kinds) == 1 else None


def _by_letters(matrix: Matrix, wanted: str) -> GpuRow | None:
    """The card whose name is written with other spaces: `RTX4090`."""
    letters = wanted.replace(" ", "")
    for product in matrix.edition.products:
        if _folded(product.product).replace(" ", "") == letters:
            return matrix.gpu(product.pci_device_ids[0])
    named = [row for row in matrix.edition.gpus if _folded(row.name).replace(" ", "") == letters]
    kinds = {(row.architecture, row.compute_capability) for row in named}
    return matrix.gpu(named[0].pci_device_id) if len(kinds) == 1 else None


def _has_words(wanted: str, name: str) -> bool:
    words = set(name.split())
    if any(_SXM.fullmatch(word) for word in words):
        words.add("sxm")  # people leave its generation out: `H100 SXM`
    return set(wanted.split()) <= words


def _folded(text: str) -> str:
    words = re.sub(r"[^a-z0-9.]+", " ", text.casefold()).split()
    return " ".join(word for word in words if word not in ("nvidia", "geforce", "tesla", "graphics"))


def _known(matrix: Matrix, row: GpuRow, product: Product | None, count: int) -> GpuKind:
    name = product.product if product else row.name
    return GpuKind(
        name=name,
        count=count,
        pci_id=row.pci_device_id,
        architecture=row.architecture,
        compute_capability=row.compute_capability,
        products=matrix.product_class(name),
        is_nvswitch=bool(product and product.needs_fabric_manager) and count > 1,
        is_rack=bool(product and product.fabric == "rack"),
        is_arm64=bool(product and product.is_arm64),
        source=(product or row).source,
    )


def _unknown(matrix: Matrix, name: str, count: int) -> GpuKind:
    """A card without a row; an architecture's or chip's name among the words still says what it is."""
    words = set(re.split(r"[^a-z0-9]+", name.casefold()))
    family = next((row for row in matrix.edition.architectures if row.architecture in words), None)
    if family is None:
        # A board with an owner's driver goes by the name of its system on a chip: `Jetson AGX Orin`.
        boards = [name for owner in matrix.edition.owners for name in owner.architectures]
        board = next((name for name in boards if name.rpartition("_")[2] in words), "")
        family = matrix.architecture(board) if board else None
    if family is None:
        chip = next((row for row in matrix.edition.chips if row.chip.casefold() in words), None)
        family = matrix.architecture(chip.architecture) if chip else None
    if family is not None:
        one = family.compute_capability[0] if len(family.compute_capability) == 1 else ""
        return GpuKind(
            name=name,
            count=count,
            architecture=family.architecture,
            compute_capability=one,
            source=family.source,
            nearest=(f"architecture {family.architecture} (sm_{', sm_'.join(family.sm)})",),
        )
    known = {_folded(row.product): row.product for row in matrix.edition.products}
    near = get_close_matches(_folded(name), known, n=2, cutoff=0.4)
    return GpuKind(name=name, count=count, maker="unknown", nearest=tuple(known[n] for n in near))
