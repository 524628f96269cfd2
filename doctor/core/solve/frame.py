"""Which components a question is about, what values each may take, and what is given about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from doctor.core.goal import SENTENCE, Goal, NamedThing, Term
from doctor.core.rows.system import SystemRow
from doctor.core.sets import VersionSet
from doctor.core.solve.admit import OF_DRIVER, admit, lists_all
from doctor.core.solve.model import ABSENT, OTHER, Link, Model, Value
from doctor.core.solve.properties import GPU_PROPERTIES, add_properties, kernel_of
from doctor.core.solve.universe import Universe, ascending, minor_of
from doctor.core.target import Target, system_of
from doctor.core.versions import Version
from doctor.errors import UsageError

__all__ = ["ENGINES", "SERVERS", "Mode", "frame", "lead", "specs_of", "supposed", "takes_compat"]

#: `pick` may change what is there; `why` takes it as it stands.
Mode = Literal["pick", "why"]

#: What a stack is built for, most telling first: its CUDA is the CUDA of the stack.
ENGINES = ("vllm", "sglang", "tensorrt-llm", "torch-tensorrt", "tensorrt", "torch", "flashinfer")

#: Engines that serve by themselves: flags, metrics and routes of one are not those of another.
SERVERS = ("vllm", "sglang", "tensorrt-llm")

#: A component that a question may leave out altogether: without it, it is taken to be absent.
_OPTIONAL = (
    *("fabric-manager", "imex", "cuda-compat", "cuda-toolkit", "container-toolkit", "libnvidia-container"),
    *("docker", "containerd", "podman", "cri-o", "dcgm", "gpu-operator"),
)
#: Facts that no answer changes.
_FIXED = ("os", "kernel", "glibc", "cuda-repo", "secure-boot", "vgpu-host")


def specs_of(model: Model, component: str) -> list[Term]:
    """The terms of the goal about a component."""
    return [term for term in model.goal.terms if term.component == component]


def supposed(target: Target, goal: Goal) -> tuple[str, ...]:
    """The components that the question itself names."""
    named = [term.component for term in (*goal.terms, *target.have)]
    return tuple(dict.fromkeys(named))


def lead(target: Target, goal: Goal) -> str:
    """The engine or library whose CUDA counts as the stack's; empty where none is named."""
    for terms in (goal.terms, target.have):
        named = {term.component for term in terms}
        for engine in ENGINES:
            if engine in named:
                return engine
    return ""


def frame(universe: Universe, target: Target, goal: Goal, *, mode: Mode, delivery: str) -> Model:
    """The model with variables and givens; relations come next. Raises `UsageError` on unknown names."""
    model = Model(universe, target, goal, delivery=delivery)
    for term in goal.terms:
        if universe.matrix.component(term.component) is None:
            raise UsageError(f"the matrix has no component `{term.component}`", hints=_near(universe, term))
    _add_gpus(model)
    system = system_of(universe.matrix, target.os) if target.os else None
    _add_system(model, system, mode)
    add_properties(model)
    for wish in (*(f"use={use}" for use in goal.uses), *(named.text for named in goal.names)):
        model.add_variable(wish, ("wanted", OTHER))
        model.say(Link(relation=f"goal:{wish}", says=f"the goal is {wish}", kind="goal"), [(wish, 1)])
    active = _active(model)
    for component in active:
        if component not in model:
            model.add_variable(component, _values(model, component))
    _give(model, active, mode)
    return model


def _near(universe: Universe, term: Term) -> tuple[str, ...]:
    from difflib import get_close_matches  # 2 ms, on the way to an error only

    names = [row.component for row in universe.matrix.edition.components]
    return tuple(f"nearest: `{name}`" for name in get_close_matches(term.component, names, n=2))


# --- the machine ----------------------------------------------------------------------------------


def _add_gpus(model: Model) -> None:
    known = model.universe.known("compute-capability")
    for number, kind in enumerate(model.target.gpus):
        tail = f"#{number + 1}" if number else ""
        card, capability = f"gpu{tail}", f"compute-capability{tail}"
        model.add_variable(card, (kind.name, OTHER))
        values: set[Version] = {*known}
        if kind.compute_capability:
            values.add(_parsed(model.universe, "compute-capability", kind.compute_capability))
        model.add_variable(capability, ascending(values))
        model.gpus.append((kind, card, capability))
        text = f"{kind.name}, compute capability {kind.compute_capability}".removesuffix(
            ", compute capability "
        )
        given = [[(card, 1)]]
        if kind.compute_capability:
            mask = model.where(capability, lambda v, c=kind.compute_capability: v.raw == c)  # type: ignore[misc]
            given.append([(capability, mask)])
        model.say(Link(relation=card, says=f"the GPU is {text}", kind="fact", source=kind.source), *given)


def _add_system(model: Model, system: SystemRow | None, mode: Mode) -> None:
    """The facts of the operating system: its name, kernel, C library, compiler, repository."""
    target, universe = model.target, model.universe
    if target.os:
        model.add_variable("os", (system.system if system else target.os, OTHER))
        _fact(model, "os", f"the operating system is {target.os}", system)
    if target.kernel:
        try:
            model.add_variable("kernel", (universe.version("kernel", target.kernel), OTHER))
        except ValueError:
            if target.driver_kind != "windows":
                raise UsageError(f"`{target.kernel}` is no kernel", hints=("for example `6.8`",)) from None
        else:
            _fact(model, "kernel", f"the kernel is {target.kernel}", None)
    if system is None:
        return
    _add_defaults(model, system, mode)


def _add_defaults(model: Model, system: SystemRow, mode: Mode) -> None:
    """What a system brings by default, where the question does not say."""
    target, universe = model.target, model.universe
    own_kernel = None if "kernel" in model or target.kernel else kernel_of(model, system)
    if own_kernel is not None:
        model.add_variable("kernel", (own_kernel[0], OTHER))
        _fact(model, "kernel", own_kernel[1], system)
    if model.delivery == "system":
        own = ".".join(map(str, system.python.parts[:2]))
        model.add_variable("python", (universe.version("python", own), OTHER))
        _fact(model, "python", f"python is {own} on {system.system}", system)
    if model.delivery != "container":
        model.add_variable("glibc", (system.glibc, OTHER))
        _fact(model, "glibc", f"glibc is {system.glibc} on {system.system}", system)
    if system.cuda_repo:
        model.add_variable("cuda-repo", (universe.version("cuda-repo", system.cuda_repo),))
    if not target.version("gcc") and _wants_compiler(model):
        gccs: set[Version] = {*universe.known("gcc"), system.gcc}
        model.add_variable("gcc", ascending(gccs))
        model.say(
            Link(
                relation="gcc",
                says=f"gcc is {system.gcc} on {system.system}",
                kind="have",
                source=system.source,
            ),
            *([[("gcc", model.one("gcc", system.gcc))]] if mode == "why" or "gcc" in target.hold else []),
        )


def _wants_compiler(model: Model) -> bool:
    return "nvcc" in model.goal.uses or "gcc" in supposed(model.target, model.goal)


def _fact(model: Model, name: str, says: str, row: SystemRow | None) -> None:
    source = row.source if row else ()
    is_weak = row is not None and name in row.unverified
    model.say(Link(relation=name, says=says, kind="fact", source=source, is_soft=is_weak), [(name, 1)])


# --- components -----------------------------------------------------------------------------------


def _active(model: Model) -> tuple[str, ...]:
    """Every component the question reaches: those named, and what their releases ask for."""
    target, goal = model.target, model.goal
    roots = [name for name in supposed(target, goal) if name not in GPU_PROPERTIES]
    roots += _of_uses(model)
    if model.delivery == "container":
        roots.append("container-toolkit")
    if any(kind.is_nvswitch and not kind.is_rack for kind in target.gpus):
        roots.append("fabric-manager")
    if target.driver_kind in ("", "data-center", "vgpu-guest"):
        roots += ["driver", "kernel-modules"]
    elif target.driver_kind == "windows":
        roots = [c for c in roots if c not in OF_DRIVER or any(t.component == c for t in goal.terms)]
    found = dict.fromkeys(roots)
    queue = list(found)
    while queue:
        for component in _asked_by(model, queue.pop(), found):
            found[component] = None
            queue.append(component)
    rows = model.universe.releases(lead(target, goal))
    if any(row.cuda or row.cuda_variants for row in rows):
        found["cuda"] = None
    if "cuda" in found and "driver" in found and takes_compat(model):
        found["cuda-compat"] = None
    return tuple(found)


def takes_compat(model: Model) -> bool:
    """Whether every GPU is known to take driver libraries newer than its driver."""
    products = [model.universe.matrix.product(kind.pci_id) for kind in model.target.gpus]
    return bool(products) and all(p is not None and p.supports_forward_compat for p in products)


def _of_uses(model: Model) -> list[str]:
    wanted = []
    if "nvcc" in model.goal.uses:
        wanted.append("cuda-toolkit")
    if "engine-build" in model.goal.uses and "tensorrt-llm" not in supposed(model.target, model.goal):
        wanted.append("tensorrt")
    named = [owner for thing in model.goal.names if (owner := _owner_of(model, thing))]
    return [*wanted, *named]


def _owner_of(model: Model, thing: NamedThing) -> str:
    """The component whose rows name a thing; an engine that the question names has the first say."""
    edition, asked = model.universe.matrix.edition, lead(model.target, model.goal)
    if asked or thing.kind == SENTENCE:
        named = {row.component for row in edition.names if row.name == thing.name}
        is_foreign = asked in SERVERS and named <= {*SERVERS}
        return (
            next(iter(named)) if asked and asked not in named and len(named) == 1 and not is_foreign else ""
        )
    tables: dict[str, list[tuple[str, str]]] = {
        "model": [(row.component, row.architecture) for row in edition.models],
        "quantization": [(row.component, row.method) for row in edition.quantization],
        "kv-cache": [(row.component, row.dtype) for row in edition.kv_cache],
    }
    rows = tables.get(thing.kind) or [(row.component, row.name) for row in edition.names]
    bare = thing.name.partition("=")[0]
    owners = [owner for owner, name in rows if name == thing.name] or [o for o, n in rows if n == bare]
    return owners[0] if owners else "vllm"


def _asked_by(model: Model, component: str, found: Iterable[str]) -> list[str]:
    """What the releases of a component ask for, where the matrix has rows of it."""
    universe = model.universe
    asked = universe.kept(
        f"asks {component}",
        lambda: tuple(dict.fromkeys(name for row in universe.releases(component) for name in row.requires)),
    )
    wanted = [name for name in asked if name not in found and _has_values(model, name)]
    if component == "tensorrt":
        wanted.append("tensorrt-variant")
    if component in ENGINES and model.delivery != "container":
        wanted.append("python")
    for relation in universe.matrix.edition.relations:
        if component in relation.when and all(
            _may_meet(model, n, s, found) for n, s in relation.when.items()
        ):
            wanted += [name for name in relation.requires if name not in found and universe.known(name)]
    return [name for name in dict.fromkeys(wanted) if name not in found]


def _may_meet(model: Model, name: str, spec: str, found: Iterable[str]) -> bool:
    """Whether a component is in question, and not at a version that a relation does not speak of."""
    there = model.target.version(name)
    return name in found and (
        not there or model.universe.set_of(name, spec).has(_parsed(model.universe, name, there))
    )


def _has_values(model: Model, name: str) -> bool:
    if name in ("glibc", "driver", "kernel"):
        return False  # they come with the machine, or not at all
    return bool(model.universe.known(name)) and not (name == "python" and model.delivery == "container")


def _values(model: Model, component: str) -> list[Value]:
    """The values of a component: what rows know, what is there, and what others pin it to."""
    universe, target = model.universe, model.target
    known: set[Version] = set(universe.known(component))
    present = target.version(component) or (target.python if component == "python" else "")
    if present:
        known.add(_parsed(universe, component, present))
    for term in specs_of(model, component):
        known.update(_beyond(model, term, known))
    known.update(_pinned(universe, component))
    if component == "cuda":
        known.update(_cudas(model, known))
    scheme_is_name = universe.scheme(component) == "name"
    values: list[Value] = [*sorted(known, key=lambda v: v.raw if scheme_is_name else v.key)]
    named = any(term.component == component for term in model.goal.terms)
    # What is there is not taken away, and what a question names is supposed to be there.
    is_needed = named or bool(present) or (component, model.delivery) == ("container-toolkit", "container")
    if (component in _OPTIONAL and not is_needed) or (component == "tensorrt-variant" and not named):
        # Of a line of TensorRT without a release the variant is not known: it has none here.
        values.insert(0, ABSENT)
    return values


def _cudas(model: Model, known: Iterable[Version]) -> list[Version]:
    """What releases were built with exists, toolkit row or not."""
    minors = {minor_of(version) for version in known}
    rows = model.universe.releases(lead(model.target, model.goal))
    built = [row.cuda for row in rows if row.cuda is not None and len(row.cuda.parts) > 1]
    return [version for version in built if minor_of(version) not in minors]


def _parsed(universe: Universe, component: str, raw: str) -> Version:
    try:
        return universe.version(component, raw)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _pinned(universe: Universe, component: str) -> tuple[Version, ...]:
    """Versions that releases of other packages pin, which need no row of their own to exist."""

    def find() -> tuple[Version, ...]:
        texts = {
            row.requires[component] for row in universe.matrix.edition.releases if component in row.requires
        }
        exact = (universe.set_of(component, text).exact for text in texts)
        return tuple(version for version in exact if version is not None)

    return universe.kept(f"pinned {component}", find)


def _beyond(model: Model, term: Term, known: Iterable[Version]) -> list[Version]:
    """The versions that a term names and no row has: an answer about them is an honest `unknown`."""
    wanted = _goal_set(model, term, known)
    if any(version in wanted for version in known):
        return []
    return [bound for bound in wanted.bounds if bound in wanted][:1]


def _goal_set(model: Model, term: Term, known: Iterable[Version]) -> VersionSet:
    """A goal's set; `==10.14.1` means that line of releases where no release has just that number."""
    universe = model.universe
    try:
        wanted = universe.set_of(term.component, term.spec)
        exact = wanted.exact
        is_line = not term.spec.endswith("*") and not lists_all(universe, term.component, exact)
        # `.*` goes behind numbers: `0.33.0+site1` and `0.33.0rc9` are no lines of releases.
        is_plain = exact is not None and set(exact.raw) <= set("0123456789.")
        if exact is not None and is_plain and is_line and exact not in known:
            # A candidate is no release of that number: `==1.3.0` does not mean 1.3.0rc29.
            line = universe.set_of(term.component, f"{term.spec}.*,>={exact}")
            if any(version in line for version in known):
                return line
    except ValueError as error:
        raise UsageError(str(error), hints=(f"`{term.text}` was given",)) from None
    return wanted


# --- what is given --------------------------------------------------------------------------------


def _give(model: Model, active: Iterable[str], mode: Mode) -> None:
    for component in active:
        if component not in model:
            continue
        known = set(model.universe.known(component))
        for term in specs_of(model, component):
            wanted = _goal_set(model, term, known)
            mask = model.where(component, lambda version, w=wanted: version in w)  # type: ignore[misc]
            model.say(
                Link(relation=f"goal:{term.text}", says=f"the goal is {term.text}", kind="goal"),
                [(component, mask)],
            )
            admit(model, component, mask)
        _give_present(model, component, mode)


def _give_present(model: Model, component: str, mode: Mode) -> None:
    target = model.target
    present = target.version(component) or (target.python if component == "python" else "")
    is_held = component in target.hold
    if present:
        value = _parsed(model.universe, component, present)
        if mode == "why" or is_held or component in _FIXED:
            kind: Literal["hold", "have"] = "hold" if is_held else "have"
            says = f"{component} stays at {present}" if is_held else f"{component} is {present}"
            model.say(
                Link(relation=f"{kind}:{component}", says=says, kind=kind),
                [(component, model.one(component, value))],
            )
            admit(model, component, model.one(component, value))
    elif (
        ABSENT in model.domain(component)
        and component != "tensorrt-variant"
        and (
            mode == "why"
            or is_held
            or component not in ("fabric-manager", "cuda-toolkit", "libnvidia-container")
        )
    ):
        if mode == "why" and component == "fabric-manager":
            return  # not said: it may well be there
        model.say(
            Link(relation=f"have:{component}", says=f"{component} is not installed", kind="have"),
            [(component, model.absent(component))],
        )
