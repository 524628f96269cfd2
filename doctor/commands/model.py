"""`mopt-doctor model PATH`: what a model is, whether its files are whole, and whether it fits."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Literal

from doctor.commands.output import write_answer
from doctor.config import load_settings
from doctor.core.matrix import Matrix
from doctor.core.model_report import Fault, FileFact, Fit, ModelReport
from doctor.errors import UsageError

if TYPE_CHECKING:
    from doctor.core.evidence import Evidence
    from doctor.core.model_facts import ModelFacts
    from optimize.fit import Room
    from optimize.modeldir import ModelFolder

__all__ = ["model_report", "rooms_of", "run"]

_CONTEXT_MAX = 100_000_000
_SEQUENCES_MAX = 1_000_000


def run(options: argparse.Namespace) -> int:
    """0 whole and it fits, where that was asked; 1 broken, or it does not fit; 3 not told."""
    for name, most in (("context", _CONTEXT_MAX), ("concurrency", _SEQUENCES_MAX)):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= most:
            raise UsageError(f"`--{name}` takes 1 to {most}")
    from doctor.commands.ask import matrix_of
    from doctor.commands.model_plan import check_options

    check_options(options)
    matrix = matrix_of(options)
    if options.plan:
        from doctor.commands.model_plan import run as run_plan

        return run_plan(options, matrix)
    report = model_report(options, matrix)
    form = "json" if options.json else options.format
    if form == "json" or options.output:
        from doctor.report.machine import to_json

        write_answer(to_json(report), options.output)
    if form == "text":
        from doctor.report.model_text import render_model

        settings = load_settings(
            no_color=options.no_color, ascii_only=options.ascii, stdout_is_terminal=sys.stdout.isatty()
        )
        text = render_model(report, colour=settings.colour, ascii_only=settings.ascii_only)
        write_answer(text.encode(), None)
    return report.exit_code


def model_report(options: argparse.Namespace, matrix: Matrix) -> ModelReport:
    """The document of a model."""
    from optimize.modeldir import read_folder
    from optimize.plausible import contradictions

    folder = read_folder(options.path)
    facts, faults, files = folder.facts, list(folder.faults), folder.files
    if facts is not None and folder.config is not None:
        name = _name(options.path, folder.config)
        faults += contradictions(matrix.edition.published, facts, name)
    if options.digest:
        files, found = _digested(folder, is_quiet=options.quiet)
        faults += found
    fits = _fits(options, matrix, folder) if facts is not None else ()
    verdict, cache = _verdict(folder, faults), _cache(facts)
    return ModelReport(
        path=options.path,
        exit_code=_exit_code(verdict, fits, is_asked=bool(options.gpu)),
        verdict=verdict,
        facts=facts,
        files=files,
        faults=tuple(faults),
        stored_bytes=folder.stored_bytes,
        stored_dtypes=folder.stored_dtypes,
        kv_bytes_per_token=cache[0],
        kv_dtype=cache[1],
        state_bytes_per_sequence=cache[2],
        fits=fits,
        matrix_edition=matrix.edition.name,
        is_digested=options.digest,
    )


def _cache(facts: ModelFacts | None) -> tuple[int | None, str, int | None]:
    """Bytes a token, in which type, and bytes of state a sequence; nothing where the shapes are not known."""
    if facts is None or not (facts.attention or facts.states):
        return None, "", None
    from optimize.fit import kv_dtype_of
    from optimize.memory import kv_bytes_per_token, state_bytes_per_sequence

    dtype = kv_dtype_of(facts)
    return kv_bytes_per_token(facts, dtype), dtype, state_bytes_per_sequence(facts)


def _name(path: str, config: dict[str, object]) -> str:
    """What the model calls itself, else its folder's name; of a hub's cache the part behind `models--`."""
    said = config.get("_name_or_path")
    if isinstance(said, str) and said.strip("./"):
        return said
    path = os.path.abspath(path)  # noqa: PTH100 - a string is all that is needed
    parts = (path if os.path.isdir(path) else os.path.dirname(path)).split("/")  # noqa: PTH112, PTH120
    cached = next((part for part in reversed(parts) if part.startswith("models--")), "")
    return cached.removeprefix("models--").replace("--", "/") or parts[-1]


def _verdict(folder: ModelFolder, faults: list[Fault]) -> Literal["whole", "broken", "unknown"]:
    if any(fault.is_broken for fault in faults):
        return "broken"
    if folder.facts is None and not any(
        one.kind in ("safetensors", "gguf", "pytorch") for one in folder.files
    ):
        return "unknown"
    return "whole" if folder.facts is None or folder.facts.family else "unknown"


def _exit_code(verdict: str, fits: tuple[Fit, ...], *, is_asked: bool) -> int:
    if verdict == "broken" or any(not one.memory.fits for one in fits):
        return 1
    if verdict == "unknown" or (is_asked and not fits):
        return 3
    return 0


# --- does it fit ----------------------------------------------------------------------------------


def _fits(options: argparse.Namespace, matrix: Matrix, folder: ModelFolder) -> tuple[Fit, ...]:
    facts = folder.facts
    if facts is None or facts.parameters is None:
        return ()
    from optimize.fit import FitAsked, fit

    asked = FitAsked(
        context_tokens=options.context or facts.context_tokens or 4096,
        sequences=options.concurrency or 1,
        kv_dtype=options.kv_dtype or "",
        stored_bytes=folder.stored_bytes,
    )
    found = [fit(matrix.edition, facts, room, asked) for room in rooms_of(options, matrix)]
    return tuple(one for one in found if one is not None)


def rooms_of(options: argparse.Namespace, matrix: Matrix) -> list[Room]:
    """The GPUs that the options name; those of `--from`; or those of this host: none where it has none."""
    if options.gpu:
        if not (options.quiet or options.json or options.format == "json"):
            _tell_namesakes(matrix, options.gpu)
        return [_named(matrix, text) for text in options.gpu]
    return _of_host(options, matrix)


def _tell_namesakes(matrix: Matrix, names: list[str]) -> None:
    """Which card a name was taken for, where it has several of them."""
    from doctor.core.target import find_gpu, namesakes
    from doctor.report.escape import escape_line

    for text in names:
        others = namesakes(matrix, text)
        if others:
            taken = find_gpu(matrix, text).name
            line = f"mopt-doctor: `{text}` is taken for {taken}; of its name are {', '.join(others)}, too"
            sys.stderr.write(f"{escape_line(line)}\n")


def _named(matrix: Matrix, text: str) -> Room:
    from doctor.core.target import find_gpu
    from optimize.fit import room_of_card

    kind = find_gpu(matrix, text)
    room = room_of_card(matrix.edition, kind.name, kind.pci_id, kind.architecture, kind.count)
    if room is None:
        near = (
            f"nearest: {', '.join(kind.nearest)}"
            if kind.nearest
            else "`mopt-doctor matrix show gpu` lists them"
        )
        raise UsageError(f"the matrix does not know the memory of `{text}`", hints=(near,))
    return room


def _of_host(options: argparse.Namespace, matrix: Matrix) -> list[Room]:
    """By NVML or nvidia-smi, each kind with its count; a mixed machine has several."""
    from doctor.core.host import known
    from doctor.facts.read import read_host
    from optimize.fit import Room

    host = read_host(_evidence(options))
    answered = known(host.driver.nvml) or known(host.driver.smi)
    counted: dict[tuple[str, str, int], int] = {}
    devices = {one.address: one.device_id for one in host.gpus_on_bus}
    for gpu in answered.gpus if answered is not None else ():
        if gpu.memory_bytes:
            key = (gpu.name or "GPU", devices.get(gpu.pci_address, ""), gpu.memory_bytes)
            counted[key] = counted.get(key, 0) + 1
    rooms = []
    for (name, pci_id, size), count in counted.items():
        row, product = matrix.gpu(pci_id), matrix.product(pci_id)
        rooms.append(
            Room(
                gpu=name,
                count=count,
                bytes=size,
                pci_id=pci_id,
                architecture=row.architecture if row else "",
                memory_type=product.memory_type if product else "",
                is_here=not options.bundle,
            )
        )
    return rooms


def _evidence(options: argparse.Namespace) -> Evidence:
    if options.bundle:
        from doctor.evidence.open import open_evidence

        return open_evidence(options.bundle)
    from doctor.evidence.live import start_collecting

    settings = load_settings(no_color=True, ascii_only=False, stdout_is_terminal=False)
    with start_collecting(budget_s=settings.timeout_s, sysroot=None) as live:
        return live.evidence()


# --- digests --------------------------------------------------------------------------------------


def _digested(folder: ModelFolder, *, is_quiet: bool) -> tuple[tuple[FileFact, ...], tuple[Fault, ...]]:
    """The files with their SHA-256, and those that are not what a hub's cache calls them."""
    import msgspec

    from optimize.digests import digest_files, judge_digests, load_kept, save_kept

    where = folder.path if os.path.isdir(folder.path) else os.path.dirname(folder.path) or "."  # noqa: PTH112, PTH120
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    path = os.path.join(cache, "mopt-doctor", "digests.json")  # noqa: PTH118
    kept = load_kept(path)
    show = None if is_quiet or not sys.stderr.isatty() else _Progress()
    names = [one.name for one in folder.files if one.bytes]
    try:
        digests = digest_files(where, names, kept=kept, progress=show)
    finally:
        save_kept(path, kept)
        if show is not None:
            show.end()
    files = tuple(msgspec.structs.replace(one, sha256=digests.get(one.name, "")) for one in folder.files)
    return files, judge_digests(where, digests)


class _Progress:
    """One line on a terminal, at most ten times a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        from time import monotonic

        now = monotonic()
        if now - self._last >= 0.1 or done == total:
            self._last = now
            share = 100 * done // total if total else 100
            sys.stderr.write(f"\rhashing: {done / 1e9:.1f} of {total / 1e9:.1f} GB ({share} %)")
            sys.stderr.flush()

    def end(self) -> None:
        sys.stderr.write("\n")
