"""Ask pip: a child process of the interpreter that has it, its answer as a snapshot to draft from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from doctor.config import ownership_faults
from doctor.edition.draft.choose import Found, releases_of
from doctor.edition.draft.release import Known, companions
from doctor.edition.draft.snapshot import IndexFile, Snapshot
from doctor.errors import ConfigError, ProbeError
from doctor.timeouts import INDEX_ANSWER_BYTES_MAX, INDEX_ANSWER_S

__all__ = ["ask_index"]

_CHILD = str(Path(__file__).with_name("pip_child.py"))

T = TypeVar("T")


class _Project(msgspec.Struct, frozen=True):
    files: tuple[IndexFile, ...] = ()
    error: str = ""


class _Text(msgspec.Struct, frozen=True):
    text: str = ""
    error: str = ""
    requests: int = 0
    bytes: int = 0


class _Where(msgspec.Struct, frozen=True):
    pip: str


class _Projects(msgspec.Struct, frozen=True):
    pip: str
    projects: dict[str, _Project]


class _Texts(msgspec.Struct, frozen=True):
    pip: str
    metadata: dict[str, _Text]


def ask_index(
    python: str,
    known: Known,
    choose: Callable[[Sequence[Found]], Sequence[Found]],
    *,
    today: str,
    say: Callable[[str], None],
) -> Snapshot:
    """The files of a component's projects, and METADATA of the releases that `choose` takes.

    `say` is told what was fetched. Raises `ProbeError` when pip is not there, or gives no answer, and
    `ConfigError` when root would run somebody else's.
    """
    if os.geteuid() == 0:
        _refuse_others_pip(python)
    package = known.component.package
    listed = _run(python, ["files", package, *companions(known)], _Projects)
    if package not in listed.projects or listed.projects[package].error:
        error = listed.projects[package].error if package in listed.projects else "no answer"
        raise ProbeError(
            f"pip {listed.pip} of `{python}` could not list {package}: {error}",
            hints=(f"`{python} -m pip index versions {package}` shows what pip itself sees",),
        )
    files = {name: project.files for name, project in listed.projects.items()}
    speakers = [one.speaker for one in choose(releases_of(files[package], package))]
    names = [speaker.file.filename for speaker in speakers if speaker is not None]
    texts = _run(python, ["metadata", package, *names], _Texts).metadata if names else {}
    for name, text in texts.items():
        said = text.error or f"{text.bytes} bytes in {text.requests} requests"
        say(f"METADATA of {name}: {said}")
    unread = {name: project.error for name, project in listed.projects.items() if project.error}
    return Snapshot(
        schema="mopt.index/1",
        component=known.component.component,
        read_on=today,
        pip=listed.pip,
        projects=files,
        metadata={name: text.text for name, text in texts.items() if not text.error},
        unread=unread | {name: text.error for name, text in texts.items() if text.error},
    )


def _refuse_others_pip(python: str) -> None:
    """Root runs no pip that somebody else could have written: the same rule as for the doctor's own files."""
    place = _run(python, ["where"], _Where).pip
    faults = [fault for path in (python, place) if path for fault in ownership_faults(path)]
    if faults:
        raise ConfigError(
            f"root would run a pip that another user can change: {faults[0]}",
            hints=("run `matrix import` as the owner: it needs no root",),
        )


def _run(python: str, arguments: Sequence[str], kind: type[T]) -> T:
    """The child's answer. It inherits the environment: pip's settings are the user's."""
    argv = [python, "-I", _CHILD, *arguments]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    try:
        ended = subprocess.run(  # noqa: S603 - the interpreter that the caller named, or our own
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=INDEX_ANSWER_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProbeError(
            f"pip of `{python}` gave no answer in {INDEX_ANSWER_S:g} s",
            hints=("see whether the index of its configuration can be reached: `pip config list`",),
        ) from None
    except OSError as error:
        raise ProbeError(f"`{python}` cannot be started: {error.strerror}") from None
    if ended.returncode != 0 or len(ended.stdout) > INDEX_ANSWER_BYTES_MAX:
        raise _failed(python, ended)
    try:
        return msgspec.json.decode(ended.stdout, type=kind)
    except msgspec.DecodeError as error:
        raise ProbeError(f"pip of `{python}` gave an answer that cannot be read: {error}") from None


def _failed(python: str, ended: subprocess.CompletedProcess[bytes]) -> ProbeError:
    """Why there is no answer: the last line of what the child said."""
    last = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
    reason = last or f"exit code {ended.returncode}, {len(ended.stdout)} bytes"
    hints = ["`--python PYTHON` names an interpreter with pip 22.3 or newer"]
    if "No module named 'pip'" in last:
        hints.insert(0, f"`{python} -m ensurepip` adds it")
    return ProbeError(f"pip of `{python}` could not be asked: {reason}", hints=hints)
