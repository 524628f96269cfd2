"""What is worth knowing beside an answer: rules that stood behind a yes, bulletins, ended branches."""

from __future__ import annotations

from doctor.core.relate.names import behind
from doctor.core.resolve import Resolution
from doctor.core.solve.costs import advisories_open, is_ended
from doctor.core.solve.model import ABSENT, Model
from doctor.core.solve.universe import minor_of
from doctor.core.stack import Because
from doctor.core.versions import Dotted, Version

__all__ = ["advice", "is_kernel_told", "notes"]


def notes(resolution: Resolution) -> tuple[Because, ...]:
    """Rules that explain why a `yes` is one: which compatibility carries it, what a number does not mean."""
    model = resolution.model
    driver, cuda = _version(resolution, "driver"), _version(resolution, "cuda")
    found: list[Because | None] = []
    if driver is not None and cuda is not None:
        found += _carried(resolution, driver, cuda)
    if driver is not None and _version(resolution, "cuda-toolkit") is not None:
        found.append(_rule(model, "cuda-toolkit", "smi-column-is-driver", "cuda-column-of-nvidia-smi"))
        found.append(_rule(model, "cuda-toolkit", "nvcc-not-driver", "nvcc-ignores-driver"))
    if driver is not None:
        found.append(_standing(model, driver))
    found += [_safe_tool(resolution), *_code(resolution), *_names(model)]
    return tuple(note for note in found if note is not None)


def _names(model: Model) -> list[Because | None]:
    """The rows of names and sentences that hold."""
    found: list[Because | None] = []
    for named in model.goal.names:
        told = behind(model, named)
        if told is not None:
            relation, text, row, source = told
            found.append(
                Because(
                    component=named.text,
                    relation=relation,
                    text=text,
                    kind="note",
                    source=source,
                    confidence=row.confidence,
                )
            )
    return found


def _version(resolution: Resolution, name: str) -> Version | None:
    value = resolution.value(name)
    return value if isinstance(value, Version) else None


def _rule(model: Model, component: str, relation: str, rule_id: str) -> Because | None:
    row = model.universe.matrix.rule(rule_id)
    if row is None:
        return None
    return Because(
        component=component,
        relation=relation,
        text=row.fact,
        kind="note",
        source=row.source,
        confidence=row.confidence,
    )


def _carried(resolution: Resolution, driver: Version, cuda: Version) -> list[Because | None]:
    """Backward, minor-version or forward compatibility."""
    model = resolution.model
    branch = model.universe.branches.get(minor_of(driver)[0])
    ceiling = branch.cuda_version if branch else None
    compat = resolution.value("cuda-compat")
    if compat not in (None, ABSENT) and ceiling is not None and minor_of(ceiling)[0] < minor_of(cuda)[0]:
        return [
            _rule(model, "cuda-compat", "forward-compat", "fwd-compat"),
            _rule(model, "cuda-compat", "forward-compat-device", "fwd-compat"),
            _rule(model, "cuda-compat", "toolkit-compat-libs", "fwd-compat-containers"),
        ]
    if ceiling is None:
        return []
    if minor_of(ceiling) >= minor_of(cuda):
        return [_rule(model, "cuda", "backward-compat", "backward-compat")]
    if minor_of(ceiling)[0] == minor_of(cuda)[0]:
        return [
            _rule(model, "cuda", "minor-compat", "floor-not-exact"),
            _rule(model, "cuda", "ptx-jit-limit", "mvc"),
        ]
    return []


def _standing(model: Model, driver: Version) -> Because | None:
    """That a driver has support and no open bulletin."""
    branch = model.universe.branches.get(minor_of(driver)[0])
    if branch is None or is_ended(model, "driver", driver) or advisories_open(model, "driver", driver):
        return None
    ends = f" until {branch.ends}" if branch.ends else ""
    return Because(
        component="driver",
        relation="driver-branch-supported",
        text=f"{branch.branch} is supported{ends}, and {driver} has no open bulletin",
        kind="note",
        source=branch.source,
        confidence=branch.confidence,
    )


def _safe_tool(resolution: Resolution) -> Because | None:
    """That a container toolkit has no open bulletin."""
    model, value = resolution.model, _version(resolution, "container-toolkit")
    if value is None or advisories_open(model, "container-toolkit", value):
        return None
    return _rule(model, "container-toolkit", "toolkit-security-floor", "container-toolkit-floor")


def _code(resolution: Resolution) -> list[Because | None]:
    """Where a wheel's code for one capability serves another of the same major."""
    model = resolution.model
    found: list[Because | None] = []
    for name in ("vllm", "torch"):
        value = resolution.value(name)
        row = next((r for r in model.universe.releases(name) if r.version == value), None)
        if row is None or not row.compute_capability:
            continue
        for kind, _card, _capability in model.gpus:
            own = kind.compute_capability
            if own and own not in row.compute_capability:
                major, minor = minor_of(Dotted(own))
                below = [c for c in map(Dotted, row.compute_capability) if minor_of(c)[0] == major]
                serving = [c for c in below if minor_of(c)[1] <= minor]
                if serving:
                    text = (
                        f"code for {serving[-1]} in {name} {value} runs on {own}: same major, minor not below"
                    )
                    found.append(
                        Because(
                            component=name,
                            relation="sass-same-major",
                            text=text,
                            kind="note",
                            source=row.source,
                        )
                    )
    return found


def advice(resolution: Resolution) -> tuple[str, ...]:
    """Bulletins and ended branches: worth a change, and no reason for a no."""
    model = resolution.model
    found = []
    for name in ("driver", "container-toolkit"):
        value = resolution.value(name)
        if not isinstance(value, Version):
            raw = model.target.version(name)
            value = model.universe.version(name, raw) if raw else None
        if value is None or name not in model or (name == "driver" and _is_of_others(model)):
            continue
        bulletins = advisories_open(model, name, value)
        if bulletins:
            found.append(f"{name} {value} has open bulletins: {', '.join(bulletins)}")
        if is_ended(model, name, value):
            found.append(f"{name} {value} is of a branch without support")
    return (*found, *_untold_kernel(model), *_unread(resolution))


def _is_of_others(model: Model) -> bool:
    """Whether driver and kernel are of a maker of whole systems, whose bulletins and numbers are others."""
    return model.target.driver_kind in ("jetpack", "windows")


def is_kernel_told(model: Model) -> bool:
    """Whether the kernel is given: named, or the only one of the system."""
    return any(link.kind == "fact" and link.relation == "kernel" for link in model.links)


def _untold_kernel(model: Model) -> list[str]:
    """A kernel that is older than every row: nothing speaks for or against a driver on it."""
    is_told = not _is_of_others(model) and is_kernel_told(model)
    kernel = model.domain("kernel")[0] if is_told and "driver" in model else None
    oldest = min((row.kernel for row in model.universe.matrix.edition.kernels), default=None)
    if not isinstance(kernel, Version) or oldest is None or minor_of(kernel) >= minor_of(oldest):
        return []
    return [f"which drivers build on kernel {kernel} no row tells: the oldest is of {oldest}"]


def _unread(resolution: Resolution) -> list[str]:
    """Wheels for another processor than the one whose wheel was read."""
    model, arch, found = resolution.model, resolution.model.target.arch, []
    for name in model.names:
        value = resolution.value(name)
        row = next((r for r in model.universe.releases(name) if r.version == value), None)
        if row is not None and row.compute_capability and arch != "x86_64" and arch not in row.cpu:
            found.append(f"which GPUs the {arch} wheel of {name} {value} has code for was not read")
    return found
