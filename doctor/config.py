"""Settings, paths and the ownership rule: one place that says where each choice came from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

import msgspec

from doctor.errors import ConfigError, UsageError
from doctor.timeouts import COLLECT_BUDGET_S

__all__ = [
    "Setting",
    "Settings",
    "check_root_ownership",
    "data_dir",
    "load_settings",
    "ownership_faults",
    "refuse_engine_mix",
]

#: Everything `MOPT_*` that is read; `config show` prints the same list.
_VARIABLES = {
    "data": "MOPT_DATA",
    "timeout_s": "MOPT_TIMEOUT",
    "no_color": "NO_COLOR",
    "ascii": "MOPT_ASCII",
}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A value and where it came from: `default`, `environment NAME`, `option --NAME`."""

    name: str
    value: str
    origin: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a command works with."""

    data: str
    """The folder that `matrices` and `playbooks` lie in."""
    timeout_s: float
    colour: bool
    ascii_only: bool
    origins: tuple[Setting, ...] = ()


def _package_parent() -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def data_dir(name: str) -> str:
    """Where `matrices` or `playbooks` lie: beside the `doctor` package, in tree, editable and wheel alike.

    `MOPT_DATA` names another parent folder. The current directory and PYTHONPATH never matter:
    `importlib.resources` would merge a hostile `matrices/` of the working directory.
    """
    return os.path.join(os.environ.get(_VARIABLES["data"]) or _package_parent(), name)


def load_settings(
    *,
    timeout_s: str | None = None,
    no_color: bool = False,
    ascii_only: bool = False,
    environ: Mapping[str, str] = os.environ,
    stdout_is_terminal: bool = False,
) -> Settings:
    """Settings from options, then the environment, then defaults. Raises UsageError on a bad value."""
    raw, origin = _first(
        (timeout_s, "option --timeout"),
        (environ.get("MOPT_TIMEOUT"), "environment MOPT_TIMEOUT"),
        (str(COLLECT_BUDGET_S), "default"),
    )
    budget = _seconds(raw, origin)
    colour, colour_origin = _colour(no_color, environ, stdout_is_terminal)
    plain, plain_origin = _first_true(
        (ascii_only, "option --ascii"), (bool(environ.get("MOPT_ASCII")), "environment MOPT_ASCII")
    )
    data = environ.get("MOPT_DATA")
    return Settings(
        data=data or _package_parent(),
        timeout_s=budget,
        colour=colour,
        ascii_only=plain,
        origins=(
            Setting(
                name="data",
                value=data or _package_parent(),
                origin="environment MOPT_DATA" if data else "default: beside the doctor package",
            ),
            Setting(name="timeout_s", value=f"{budget:g}", origin=origin),
            Setting(name="colour", value=str(colour).lower(), origin=colour_origin),
            Setting(name="ascii", value=str(plain).lower(), origin=plain_origin),
        ),
    )


def _first(*choices: tuple[str | None, str]) -> tuple[str, str]:
    return next((value, origin) for value, origin in choices if value is not None)


def _first_true(*choices: tuple[bool, str]) -> tuple[bool, str]:
    return next(((True, origin) for value, origin in choices if value), (False, "default"))


def _seconds(raw: str, origin: str) -> float:
    try:
        value = float(raw)
    except ValueError:
        value = float("nan")
    if not 0.5 <= value <= 600:
        raise UsageError(
            f"the timeout `{raw}` ({origin}) is not a number of seconds between 0.5 and 600",
            hints=("use `--timeout 30` for a node whose first NVML call is slow",),
        )
    return value


def _colour(no_color: bool, environ: Mapping[str, str], terminal: bool) -> tuple[bool, str]:
    if no_color:
        return False, "option --no-color"
    if environ.get("NO_COLOR"):
        return False, "environment NO_COLOR"
    if environ.get("TERM") == "dumb":
        return False, "environment TERM=dumb"
    return terminal, "stdout is a terminal" if terminal else "stdout is no terminal"


# --- the ownership rule ---------------------------------------------------------------------------


def ownership_faults(path: str) -> Iterator[str]:
    """Why a file or folder may not be trusted by root: what somebody else could replace or rewrite.

    As sshd's StrictModes: it, every parent, and everything inside are owned by root and not writable by
    group or others. A sticky parent (`/tmp`) is no fault: others cannot rename or remove root's entry.
    """
    resolved = os.path.realpath(path)
    yield from _faults_of(resolved, is_parent=False)
    if os.path.isdir(resolved):
        yield from _faults_inside(resolved)
    while resolved != os.path.dirname(resolved):
        resolved = os.path.dirname(resolved)
        yield from _faults_of(resolved, is_parent=True)


def _faults_inside(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*folders, *files, "__pycache__"):
            if name != "__pycache__" or os.path.isdir(os.path.join(parent, name)):
                yield from _faults_of(os.path.join(parent, name), is_parent=False)


def _faults_of(step: str, *, is_parent: bool) -> Iterator[str]:
    try:
        status = os.stat(step)
    except OSError as error:
        yield f"`{step}` cannot be examined: {error.strerror}"
        return
    if status.st_uid != 0:
        yield f"`{step}` is owned by uid {status.st_uid}, not by root"
    elif _is_writable_by_others(status.st_mode, is_parent=is_parent):
        yield f"`{step}` is writable by group or others (mode {stat.S_IMODE(status.st_mode):04o})"


def _is_writable_by_others(mode: int, *, is_parent: bool) -> bool:
    return bool(mode & 0o022) and not (is_parent and mode & stat.S_ISVTX)


def check_root_ownership(settings: Settings) -> None:
    """Refuse to run as root from files that somebody else could have written. Does nothing otherwise.

    Raises ConfigError naming each fault and the commands that make a root-owned installation.
    """
    if os.geteuid() != 0:
        return
    import sys

    trusted = {
        os.path.dirname(__file__),
        sys.executable,
        os.path.join(settings.data, "matrices"),
        *(os.path.dirname(m.__file__) for m in (msgspec,) if m.__file__),
    }
    faults = sorted({fault for path in trusted for fault in ownership_faults(path)})
    if faults:
        raise ConfigError(
            "root would run code or data that another user can change:\n  " + "\n  ".join(faults),
            hints=(
                "`python3 -m venv /opt/mopt-doctor`",
                "`/opt/mopt-doctor/bin/pip install mopt-doctor`",
                "`/opt/mopt-doctor/bin/mopt-doctor check`",
                "or run it as the owner: most of `check` needs no root",
            ),
        )


# --- engines --------------------------------------------------------------------------------------

#: Packages whose extras are declared in conflict; installers other than uv do not know of it.
_ENGINES = {"vllm": "vLLM", "tensorrt_llm": "TensorRT-LLM"}


def refuse_engine_mix(site: str | os.PathLike[str] | None = None) -> None:
    """Refuse an environment into which both engines were installed beside the doctor.

    `site` is the folder the doctor's own dependencies come from. Two `stat` calls; nothing is imported.
    Raises ConfigError.
    """
    if site is None:
        if not msgspec.__file__:
            return
        site = os.path.dirname(os.path.dirname(msgspec.__file__))
    if all(os.path.isdir(os.path.join(site, package)) for package in _ENGINES):
        raise ConfigError(
            f"`{os.fspath(site)}` holds {' and '.join(_ENGINES.values())} beside mopt-doctor: they pin"
            " different versions of PyTorch and CUDA, and one of them was installed over the other",
            hints=(
                "give each engine an environment of its own: `python3 -m venv /opt/vllm`",
                "and mopt-doctor its own: `pipx install mopt-doctor`",
            ),
        )
