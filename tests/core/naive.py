"""A second opinion on a stack: every relation read straight off the rows, one `if` after the other.

It shares no code with the solver: PEP 440 is judged by `packaging`, dotted versions as tuples of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version as Pep440Version

from doctor.core.edition import Edition

#: Scheme `pep440` in components.yaml; everything else that has an order is numbers between dots.
PYTHONIC = {
    *(
        "vllm",
        "torch",
        "tensorrt",
        "tensorrt-llm",
        "torch-tensorrt",
        "flashinfer",
        "flashinfer-cubin",
        "xgrammar",
    ),
    *("modelopt", "modelopt-core", "sglang", "sglang-kernel", "transformers", "python", "numpy"),
}
WORDS = {"kernel-modules", "tensorrt-variant", "module-signature", "secure-boot", "driver-kind"}


class Machine(NamedTuple):
    """What is given: an id of one kind of GPU with its number, a system, a kernel."""

    pci_id: str = ""
    count: int = 1
    system: str = ""
    kernel: str = ""
    arch: str = "x86_64"
    delivery: str = "venv"


def numbers(text: str) -> tuple[int, ...]:
    found = [int(part) for part in re.match(r"\d+(\.\d+)*", text).group().split(".")]  # type: ignore[union-attr]
    while len(found) > 1 and found[-1] == 0:
        found.pop()
    return tuple(found)


def inside(component: str, version: str, spec: str) -> bool:
    if spec == "*":
        return True
    if component in WORDS:
        return version in spec.split("|")
    if component in PYTHONIC:
        return SpecifierSet(spec).contains(Pep440Version(version), prereleases=True)
    return all(_one(version, part) for part in spec.split(","))


def _one(version: str, part: str) -> bool:
    operator, bound = re.match(r"(~=|==|!=|<=|>=|<|>)(.*)", part).groups()  # type: ignore[union-attr]
    if bound.endswith(".*"):
        wanted = [int(p) for p in bound[:-2].split(".")]
        has = [*map(int, re.findall(r"\d+", version))] + [0] * len(wanted)
        return (has[: len(wanted)] == wanted) is (operator == "==")
    mine, other = numbers(version), numbers(bound)
    return {
        "==": mine == other,
        "!=": mine != other,
        ">=": mine >= other,
        "<=": mine <= other,
        ">": mine > other,
        "<": mine < other,
    }[operator]


def complaints(edition: Edition, machine: Machine, stack: dict[str, str]) -> list[str]:
    """Every relation that the stack breaks, or of which no row says that it holds."""
    found: list[str] = []
    for check in (_packages, _cuda, _code, _supported, _driver, _kernel, _container, _compilers):
        found += check(edition, machine, stack)
    return found


# --- packages -------------------------------------------------------------------------------------


def _rows(edition: Edition, stack: dict[str, str]) -> Iterator[Any]:
    for row in edition.releases:
        if row.component in stack and Pep440Version(stack[row.component]) == Pep440Version(row.version.raw):
            yield row


def _packages(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    glibc = next((s.glibc.raw for s in edition.systems if s.system == machine.system), "")
    for row in _rows(edition, stack):
        name = f"{row.component} {row.version}"
        for other, spec in row.requires.items():
            version = glibc if other == "glibc" else stack.get(other, "")
            if other == "python" and machine.delivery == "container":
                continue
            if other == "glibc" and machine.delivery == "container":
                continue
            if version and not inside(other, version, spec):
                yield f"{name} requires {other} {spec}, not {version}"
        if row.interpreters and machine.delivery != "container" and "python" in stack:
            minor = ".".join(stack["python"].split(".")[:2])
            if minor not in row.interpreters:
                yield f"{name} is not compiled for Python {minor}"
        if row.cpu and machine.arch not in row.cpu:
            yield f"{name} has no wheel for {machine.arch}"
        if (
            row.cuda_variants
            and "tensorrt-variant" in stack
            and stack["tensorrt-variant"] not in row.cuda_variants
        ):
            yield f"{name} has no variant {stack['tensorrt-variant']}"


def _floors(edition: Edition, machine: Machine, stack: dict[str, str], major: int) -> bool:
    floor = next(t.driver_floor.raw for t in edition.toolkits if t.cuda.major == major)
    product = next((p for p in edition.products if machine.pci_id in p.pci_device_ids), None)
    lifted = product is not None and product.supports_forward_compat and "cuda-compat" in stack
    return numbers(stack["driver"]) >= numbers(floor) or bool(
        lifted and numbers(stack["cuda-compat"]) >= numbers(floor)
    )


def _cuda(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    if "driver" not in stack:
        return
    for row in _rows(edition, stack):
        if row.cuda is not None and not _floors(edition, machine, stack, row.cuda.major):
            yield f"{row.component} {row.version} of CUDA {row.cuda} on driver {stack['driver']}"
    variant = stack.get("tensorrt-variant", "")
    if variant and not _floors(edition, machine, stack, int(variant[2:])):
        yield f"tensorrt {variant} on driver {stack['driver']}"
    if "cuda" in stack and not (_came_with(edition, stack) or _floors_of_cuda(edition, machine, stack)):
        yield f"CUDA {stack['cuda']} on driver {stack['driver']}"


def _floors_of_cuda(edition: Edition, machine: Machine, stack: dict[str, str]) -> bool:
    return _floors(edition, machine, stack, numbers(stack["cuda"])[0])


def _came_with(edition: Edition, stack: dict[str, str]) -> bool:
    """Whether the driver is at least the one that just this toolkit was released with."""
    for row in edition.toolkits:
        for version, driver in ((row.cuda, row.driver), *((u.version, u.driver) for u in row.updates)):
            if driver is not None and version.raw == stack["cuda"]:
                return numbers(stack["driver"]) >= numbers(driver.raw)
    return False


# --- GPUs -----------------------------------------------------------------------------------------


def _gpu(edition: Edition, machine: Machine) -> Any:
    return next((row for row in edition.gpus if row.pci_device_id == machine.pci_id), None)


def _code(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    gpu = _gpu(edition, machine)
    if gpu is None or machine.arch != "x86_64":
        return
    mine = tuple(map(int, gpu.compute_capability.split(".")))
    family = next(row for row in edition.architectures if row.architecture == gpu.architecture)
    for row in _rows(edition, stack):
        codes = [tuple(map(int, c.split("."))) for c in row.compute_capability]
        if not codes or mine in codes:
            continue
        served = any(code[0] == mine[0] and code[1] < mine[1] for code in codes)
        # From 9.0 on code may be for one capability only, unless the compiler knew this one already.
        known = mine[0] < 9 or (
            family.first_cuda is not None and row.cuda is not None and family.first_cuda <= row.cuda
        )
        if not (served and known):
            yield f"{row.component} {row.version} has no code known to run on {gpu.compute_capability}"


def _supported(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    gpu = _gpu(edition, machine)
    if gpu is None:
        return
    covered = set()
    for row in edition.hardware:
        if row.component not in stack or not inside(row.component, stack[row.component], row.versions):
            continue
        covered.add(row.component)
        if row.min_compute_capability and numbers(gpu.compute_capability) < numbers(
            row.min_compute_capability
        ):
            yield f"{row.component} {stack[row.component]} needs {row.min_compute_capability}"
        if row.compute_capability and gpu.compute_capability not in row.compute_capability:
            yield f"{row.component} {stack[row.component]} does not list {gpu.compute_capability}"
    for component in {"tensorrt", "tensorrt-llm"} & set(stack) - covered:
        yield f"{component} {stack[component]} is in no line"
    yield from _beyond_the_floor(edition, gpu, stack)


def _beyond_the_floor(edition: Edition, gpu: Any, stack: dict[str, str]) -> Iterator[str]:
    """Of TensorRT: a line without a release tells nothing, and a floor tells nothing of newer GPUs."""
    rows = [row for row in _rows(edition, stack) if row.component == "tensorrt"]
    if "tensorrt" in stack and not rows:
        yield f"no row of tensorrt {stack['tensorrt']}"
    family = next(row for row in edition.architectures if row.architecture == gpu.architecture)
    for row in rows:
        majors = [int(variant[2:]) for variant in row.cuda_variants]
        first = numbers(family.first_cuda.raw) if family.first_cuda else (0,)
        if not any((major, 0) >= (*first, 0)[:2] for major in majors):
            yield f"tensorrt {row.version} may be of a CUDA older than {gpu.architecture}"


# --- driver ---------------------------------------------------------------------------------------


def _driver(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    gpu = _gpu(edition, machine)
    if gpu is None or "driver" not in stack:
        return
    major = numbers(stack["driver"])[0]
    family = next(row for row in edition.architectures if row.architecture == gpu.architecture)
    product = next((p for p in edition.products if machine.pci_id in p.pci_device_ids), None)
    branch = next((row for row in edition.drivers if row.major == major), None)
    if branch is None:
        yield f"no branch {major}"
        return
    if family.first_branch and major < family.first_branch:
        yield f"R{major} is before {family.architecture}"
    last = gpu.last_branch or family.last_branch
    if last and major > last:
        yield f"R{major} is after {family.architecture}"
    flavour = stack.get("kernel-modules", "")
    rule = (product.open_module if product else None) or gpu.open_module or family.open_module
    if flavour == "open" and (rule == "unsupported" or branch.open_module is False):
        yield "open modules"
    if flavour == "proprietary" and (rule == "required" or branch.proprietary_module is False):
        yield "proprietary modules"
    yield from _by_product(machine, product, stack)


def _by_product(machine: Machine, product: Any, stack: dict[str, str]) -> Iterator[str]:
    if product and product.min_driver and numbers(stack["driver"]) < numbers(product.min_driver.raw):
        yield f"{product.product} needs {product.min_driver}"
    is_local = product is not None and product.fabric != "rack"
    needs_manager = is_local and product.needs_fabric_manager and machine.count > 1
    if needs_manager and "fabric-manager" not in stack:
        yield "no fabric manager"
    for name in ("fabric-manager", "imex"):
        if name in stack and numbers(stack[name]) != numbers(stack["driver"]):
            yield f"{name} {stack[name]} beside driver {stack['driver']}"


def _kernel(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    if not machine.kernel or "driver" not in stack:
        return
    mine, driver = (*numbers(machine.kernel), 0)[:2], numbers(stack["driver"])
    rows = {(*numbers(row.kernel.raw), 0)[:2]: row for row in edition.kernels}
    for minor, row in rows.items():
        for level in row.also_in:
            same_series = (*numbers(level.raw), 0)[:2] == mine
            if same_series and numbers(level.raw) <= numbers(machine.kernel):
                later = [rows[other] for other in sorted(rows) if other >= minor]
                yield from _unbuilt(edition, later, driver, f"a part of {row.kernel}")
    if min(rows) > mine:
        return
    above = [minor for minor in rows if minor >= mine]
    if not above:
        yield f"kernel {machine.kernel} is newer than the rows"
        return
    if mine in rows:
        yield from _stable(rows[mine], machine, driver)
    yield from _unbuilt(edition, [rows[minor] for minor in sorted(above)], driver, machine.kernel)


def _unbuilt(edition: Edition, rows: list[Any], driver: tuple[int, ...], kernel: str) -> Iterator[str]:
    """Unless the first row names the branch and the release is new enough, or a later proof is there."""
    if any(build.branch == driver[0] for build in rows[0].builds):
        if not _named(rows[0], driver):
            yield f"driver {driver} on kernel {kernel}"
        return
    for row in rows:
        if "builds" in row.unverified:
            continue
        last = max(row.builds, key=lambda build: build.branch)
        firsts = [b.releases[0].raw for b in edition.drivers if b.major == last.branch and b.releases]
        from_the_start = firsts == [last.since.raw] and not last.patched_by
        if _named(row, driver) or (from_the_start and driver[0] > last.branch):
            return
    yield f"no row says that R{driver[0]} builds on {kernel}"


def _named(row: Any, driver: tuple[int, ...]) -> bool:
    for build in row.builds:
        if build.branch == driver[0]:
            since = build.upstream_since if build.patched_by else build.since
            return since is not None and driver >= numbers(since.raw)
    return False


def _stable(row: Any, machine: Machine, driver: tuple[int, ...]) -> Iterator[str]:
    for change in row.stable_changes:
        knows = next((b for b in change.builds if b.branch == driver[0]), None)
        if numbers(change.since.raw) > numbers(machine.kernel):
            continue
        if knows is None or knows.patched_by or driver < numbers(knows.since.raw):
            yield f"driver {driver} and the change of {change.since}"


# --- the rest -------------------------------------------------------------------------------------


def _container(edition: Edition, machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    known = {**stack, "kernel": machine.kernel} if machine.kernel else stack
    for row in edition.relations:
        if row.delivery and row.delivery != machine.delivery:
            continue
        if not all(name in known and inside(name, known[name], spec) for name, spec in row.when.items()):
            continue
        # Compat libraries that the driver does without may be there or not.
        enough = "cuda" in stack and "driver" in stack and _floors_of_cuda(edition, Machine(), stack)
        if "cuda-compat" in row.when and enough:
            continue
        for name, spec in row.requires.items():
            if name in known and not inside(name, known[name], spec):
                yield f"{row.id}: {name} {known[name]}"
        versions = {numbers(known[name]) for name in row.same_version if name in known}
        if len(versions) > 1:
            yield row.id


def _compilers(edition: Edition, _machine: Machine, stack: dict[str, str]) -> Iterator[str]:
    if not {"cuda-toolkit", "gcc"} <= set(stack):
        return
    for row in edition.toolkits:
        same = (*numbers(stack["cuda-toolkit"]), 0)[:2] == (*numbers(row.cuda.raw), 0)[:2]
        if same and row.max_host_gcc_major and numbers(stack["gcc"])[0] > row.max_host_gcc_major:
            yield f"nvcc {row.cuda} and gcc {stack['gcc']}"
