"""`matrix why --env` and `--image`: would what lies there run on this host, or on a named machine."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from doctor.commands.ask import named_target
from doctor.core.check import Case
from doctor.core.claims.fabric import fabric_manager_down
from doctor.core.evidence import Evidence
from doctor.core.fit.ground import Ground, ground_of_host
from doctor.core.fit.of_target import ground_of_target
from doctor.core.fit.why import elsewhere, why_environment
from doctor.core.goal import parse_term
from doctor.core.host import Environment, Host, Known
from doctor.core.matrix import Matrix
from doctor.core.stack import WhyReport
from doctor.core.target import Target
from doctor.core.target_host import target_of
from doctor.core.versions import Dotted
from doctor.errors import UsageError
from doctor.evidence.live import start_collecting, whole_paths
from doctor.facts.read import read_scopes

__all__ = ["explain_place"]

_IMAGE_BYTES_MAX = 4 << 20


def explain_place(options: argparse.Namespace, matrix: Matrix) -> WhyReport:
    """The document of such a question. Raises `UsageError` on what cannot be meant or read."""
    _refuse(options)
    if options.env is not None and not options.bundle:
        options.env = whole_paths([options.env], None)[0]
    evidence = _evidence(options)
    hosts = read_scopes(evidence) if evidence is not None else ()
    if options.image is not None:
        environment, name = _image(options.image), f"the image of `{options.image}`"
    else:
        environment, name = _environment(options, hosts), f"the environment `{options.env}`"
    target, ground = _machine(options, matrix, hosts)
    return why_environment(matrix, environment, ground, target=target, question=f"would {name} run")


def _refuse(options: argparse.Namespace) -> None:
    if options.env is not None and options.image is not None:
        raise UsageError("`--env` and `--image` are two questions", hints=("ask them one by one",))
    if options.spec or options.goal:
        given = " ".join([*options.spec, *options.goal])
        raise UsageError(
            f"`--env` and `--image` ask about what lies there, and take no combination beside it: `{given}`",
            hints=("`--have NAME==VERSION` says what the machine has",),
        )


# --- the machine ----------------------------------------------------------------------------------


def _is_named(options: argparse.Namespace) -> bool:
    return bool(options.gpu or options.os or options.kernel or options.arch)


def _evidence(options: argparse.Namespace) -> Evidence | None:
    """The bundle, or this host; None where the machine is named and no environment has to be read."""
    if options.bundle:
        if _is_named(options):
            raise UsageError("`--from` and options such as `--gpu` name two machines")
        from doctor.evidence.open import open_evidence

        return open_evidence(options.bundle)
    if _is_named(options):
        return None
    return _collected([options.env] if options.env else [], is_narrow=False)


def _collected(paths: list[str], *, is_narrow: bool) -> Evidence:
    from doctor.config import load_settings

    settings = load_settings(timeout_s=None, no_color=True, ascii_only=False, stdout_is_terminal=False)
    with start_collecting(
        budget_s=settings.timeout_s, sysroot=None, environments=paths, is_narrow=is_narrow
    ) as live:
        return live.evidence()


def _machine(options: argparse.Namespace, matrix: Matrix, hosts: tuple[Host, ...]) -> tuple[Target, Ground]:
    if not hosts:
        target = named_target(options, matrix)
        return target, ground_of_target(matrix, target)
    host = _holder(options, hosts)
    said = {term.component: term for term in (parse_term(text) for text in options.have)}
    target, ground = target_of(matrix, host), ground_of_host(matrix, host)
    also = {**{term.component: term for term in target.have}, **said}
    target = msgspec.structs.replace(target, have=tuple(also.values()))
    if "fabric-manager" not in said and fabric_manager_down(Case(host=host, matrix=matrix)).holds:
        ground = msgspec.structs.replace(ground, has_fabric_manager=False)
    for term in said.values():
        if term.component == "cuda-compat":
            ground = msgspec.structs.replace(ground, compat=Dotted(term.spec.removeprefix("==")))
        if term.component == "driver":
            version = Dotted(term.spec.removeprefix("=="))
            branch = matrix.branch(version)
            ground = msgspec.structs.replace(
                ground, driver=version, driver_cuda=branch.cuda_version if branch else None
            )
    return target, ground


def _holder(options: argparse.Namespace, hosts: tuple[Host, ...]) -> Host:
    """The scope that the environment lies in: its container, where the bundle says so; else the host."""
    container = next((h.scope.partition("@")[2] for h in hosts if _is_scope_of(h, options.env)), "")
    places = [h for h in hosts if not h.scope.startswith("venv:")]
    return next((h for h in places if h.scope == container), (places or list(hosts))[0])


def _is_scope_of(host: Host, path: str | None) -> bool:
    return path is not None and (host.scope == f"venv:{path}" or host.scope.startswith(f"venv:{path}@"))


# --- what is asked about --------------------------------------------------------------------------


def _environment(options: argparse.Namespace, hosts: tuple[Host, ...]) -> Environment:
    """Of the bundle where that holds it, else of this machine's disk."""
    for host in hosts if options.bundle else ():
        if _is_scope_of(host, options.env) and isinstance(host.environment, Known):
            return host.environment.value
    is_elsewhere = bool(options.bundle) or not hosts
    if is_elsewhere:
        options.env = whole_paths([options.env], None)[0]
        hosts = read_scopes(_collected([options.env], is_narrow=True))
    told = [h.environment.value for h in hosts if isinstance(h.environment, Known)]
    mine = [one for one in told if one.is_meant and one.is_listed and _is_of(one, options.env)]
    if not mine or not (mine[0].packages or mine[0].python):
        _refuse_empty(options.env)
    return elsewhere(mine[0]) if is_elsewhere else mine[0]


def _is_of(environment: Environment, path: str) -> bool:
    return path == environment.prefix or path.startswith(f"{environment.prefix}/")


def _refuse_empty(path: str) -> None:
    raise UsageError(
        f"`{path}` holds no Python environment that could be read",
        hints=("a prefix with lib/python3.*/site-packages below it, or its bin/python", "root reads more"),
    )


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _image(path: str) -> Environment:
    """The configuration in a file, or on stdin for `-`. Raises `UsageError` where it is none."""
    from doctor.facts.imageconfig import read_image

    try:
        if path == "-":
            data = sys.stdin.buffer.read(_IMAGE_BYTES_MAX + 1)
        else:
            # Opening a pipe would wait without end for somebody to write to it; reading it then ends at once.
            with open(path, "rb", opener=_without_waiting) as handle:
                os.set_blocking(handle.fileno(), True)
                data = handle.read(_IMAGE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from error
    if len(data) > _IMAGE_BYTES_MAX:
        raise UsageError(f"`{path}` has more than {_IMAGE_BYTES_MAX} bytes: it is no image's configuration")
    try:
        environment = read_image(msgspec.json.decode(data))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        environment = None
    if environment is None:
        raise UsageError(
            f"`{path}` is no image's configuration",
            hints=("`docker inspect IMAGE`, or `skopeo inspect --config docker://IMAGE`",),
        )
    return environment
