"""Settings, paths and the ownership rule: one place that says where each choice came from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor.errors import ConfigError, UsageError
from doctor.timeouts import COLLECT_BUDGET_S

__all__ = [
    "Setting",
    "Settings",
    "check_root_ownership",
    "data_dir",
    "load_settings",
    "overlay_folders",
    "ownership_faults",
    "refuse_engine_mix",
    "refuse_untrusted",
]

#: Everything `MOPT_*` that is read; `config show` prints the same list.
_VARIABLES = {
    "data": "MOPT_DATA",
    "timeout_s": "MOPT_TIMEOUT",
    "no_color": "NO_COLOR",
    "ascii": "MOPT_ASCII",
    "overlays": "MOPT_OVERLAY",
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
    overlays: tuple[str, ...] = ()
    """Folders of site overlays, the later ones over the earlier."""
    origins: tuple[Setting, ...] = ()


def _package_parent() -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def data_dir(name: str) -> str:
    """Where `matrices` or `playbooks` lie: beside the `doctor` package, in tree, editable and wheel alike.

    `MOPT_DATA` names another parent folder. The current directory and PYTHONPATH never matter:
    `importlib.resources` would merge a hostile `matrices/` of the working directory.
    """
    return os.path.join(os.environ.get(_VARIABLES["data"]) or _package_parent(), name)


def load_settings(  # noqa: PLR0913 - one for each option
    *,
    timeout_s: str | None = None,
    no_color: bool = False,
    ascii_only: bool = False,
    overlays: Sequence[str] = (),
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
    sites, sites_origin = _overlays(overlays, environ)
    return Settings(
        data=data or _package_parent(),
        timeout_s=budget,
        colour=colour,
        ascii_only=plain,
        overlays=sites,
        origins=(
            Setting(
                name="data",
                value=data or _package_parent(),
                origin="environment MOPT_DATA" if data else "default: beside the doctor package",
            ),
            Setting(name="timeout_s", value=f"{budget:g}", origin=origin),
            Setting(name="colour", value=str(colour).lower(), origin=colour_origin),
            Setting(name="ascii", value=str(plain).lower(), origin=plain_origin),
            Setting(name="overlays", value=os.pathsep.join(sites) or "none", origin=sites_origin),
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


def _overlays(options: Sequence[str], environ: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Those of the options, else those of the environment. Raises UsageError on a name of nothing."""
    if options:
        if "" in options:
            raise UsageError("`--overlay` is given, and names nothing")
        return tuple(options), "option --overlay"
    named = tuple(part for part in (environ.get("MOPT_OVERLAY") or "").split(os.pathsep) if part)
    return named, "environment MOPT_OVERLAY" if named else "default"


def overlay_folders(options: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The folders of site overlays, each of which is there and may be believed.

    Raises UsageError on one that is no folder; as root, ConfigError on one that somebody else can change.
    """
    folders, origin = _overlays(options, environ)
    for folder in folders:
        if not os.path.isdir(folder):
            raise UsageError(f"the overlay `{folder}` ({origin}) is not a directory")
        refuse_untrusted(folder, "the overlay")
    return folders


# --- the ownership rule ---------------------------------------------------------------------------


def ownership_faults(path: str) -> Iterator[str]:
    """Why a file or folder may not be trusted by root: what somebody else could replace or rewrite.

    As sshd's StrictModes: it, every link on the way to it, every parent of both, and everything inside
    are owned by root and not writable by group or others. A sticky parent (`/tmp`) is no fault: others
    cannot rename or remove root's entry in it.
    """
    seen: set[str] = set()
    for step in _way_to(os.path.abspath(path)):
        yield from _faults_of_way(step, seen)
    yield from _faults_inside(os.path.realpath(path))


def _way_to(path: str) -> Iterator[str]:
    """The path, and what each link in it leads to; at most 40 links, as the kernel follows."""
    for _ in range(40):
        yield path
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    yield os.path.realpath(path)


def _faults_of_way(path: str, seen: set[str]) -> Iterator[str]:
    """Faults of a path itself, links not followed, and of each of its parents."""
    is_parent = False
    while path not in seen:
        seen.add(path)
        yield from _faults_of(path, is_parent=is_parent)
        path, is_parent = os.path.dirname(path), True


def _faults_inside(folder: str) -> Iterator[str]:
    if not os.path.isdir(folder):
        return
    # scandir rather than walk: 2 ms of CPU for 400 files instead of 6.
    with os.scandir(folder) as entries:
        for entry in entries:
            yield from _faults_of(entry.path, is_parent=False)
            if entry.is_dir(follow_symlinks=False):
                yield from _faults_inside(entry.path)


def _faults_of(step: str, *, is_parent: bool) -> Iterator[str]:
    try:
        status = os.lstat(step)
    except OSError as error:
        yield f"`{step}` cannot be examined: {error.strerror}"
        return
    if status.st_uid != 0:
        yield f"`{step}` is owned by uid {status.st_uid}, not by root"
    elif not stat.S_ISLNK(status.st_mode) and _is_writable_by_others(status.st_mode, is_parent=is_parent):
        yield f"`{step}` is writable by group or others (mode {stat.S_IMODE(status.st_mode):04o})"


def _is_writable_by_others(mode: int, *, is_parent: bool) -> bool:
    return bool(mode & 0o022) and not (is_parent and mode & stat.S_ISVTX)


#: What is imported beside the doctor, by itself or by its witnesses.
_DEPENDENCIES = ("msgspec", "psutil", "distro", "pynvml.py", "yaml", "packaging")
_FAULTS_SHOWN = 5


def _trusted(settings: Settings) -> Iterator[str]:
    """Everything that root would run or believe: code, interpreter, environment, data."""
    import sys

    yield os.path.dirname(__file__)
    yield os.path.join(settings.data, "matrices")
    yield sys.executable
    site = os.path.dirname(os.path.dirname(msgspec.__file__ or __file__))
    for name in os.listdir(site):
        # A .pth file may import at start, whatever is asked for.
        if name in _DEPENDENCIES or name.endswith(".pth"):
            yield os.path.join(site, name)
    marker = os.path.join(sys.prefix, "pyvenv.cfg")
    if os.path.exists(marker):
        yield marker
        yield os.path.dirname(sys.executable)


def check_root_ownership(settings: Settings) -> None:
    """Refuse to run as root from files that somebody else could have written. Does nothing otherwise.

    Raises ConfigError naming the faults and the commands that make a root-owned installation.
    """
    if os.geteuid() != 0:
        return
    faults = list(dict.fromkeys(fault for path in _trusted(settings) for fault in ownership_faults(path)))
    if faults:
        shown = [*faults[:_FAULTS_SHOWN], *_rest(len(faults) - _FAULTS_SHOWN)]
        raise ConfigError(
            "root would run code or data that another user can change:\n  " + "\n  ".join(shown),
            hints=(
                "`python3 -m venv /opt/mopt-doctor`",
                "`/opt/mopt-doctor/bin/pip install PATH` of a clone or wheel that you trust",
                "`/opt/mopt-doctor/bin/mopt-doctor check`",
                "or run it as the owner: most of `check` needs no root",
            ),
        )


def refuse_untrusted(path: str, what: str) -> None:
    """Root believes no overlay and no goal file that somebody else could have written. Else does nothing.

    Raises ConfigError with the commands that mend it.
    """
    if os.geteuid() != 0:
        return
    faults = list(dict.fromkeys(ownership_faults(path)))
    if faults:
        shown = [*faults[:_FAULTS_SHOWN], *_rest(len(faults) - _FAULTS_SHOWN)]
        raise ConfigError(
            f"root would believe {what} `{path}`, which another user can change:\n  " + "\n  ".join(shown),
            hints=(f"`chown -R root:root {path}`", f"`chmod -R go-w {path}`", "the same for its parents"),
        )


def _rest(count: int) -> tuple[str, ...]:
    return (f"and {count} more",) if count > 0 else ()


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
                "and mopt-doctor its own: `pipx install PATH` of its clone or wheel",
            ),
        )
