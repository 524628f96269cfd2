"""One playbook run through ansible-runner: the only module that imports it.

What its release 2.4.3 does by itself and must not (read in its source, and tried): it writes extra variables,
results and the whole environment to files that stay, reads such files of an earlier run, switches host key
checking off, ends a run when a handler raises, and cancels by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from doctor.apply.ending import Ending
from doctor.apply.scrub import PASSWORD_FILES, Scrub, secrets_in
from doctor.apply.told import Listener, Played, Told
from doctor.config import data_dir, refuse_untrusted
from doctor.errors import ApplyError, ConfigError

__all__ = [
    "CONTROLLER_VARIABLES",
    "controller_environment",
    "find_playbook_program",
    "play",
    "sweep",
    "trust_what_runs",
]

#: What of the caller's environment a run gets: where things are, never what they say.
CONTROLLER_VARIABLES = (
    "HOME",
    "USER",
    "LOGNAME",
    "SSH_AUTH_SOCK",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "MOPT_DATA",
    "MOPT_OVERLAY",
    "ANSIBLE_CONFIG",
    "ANSIBLE_VAULT_PASSWORD_FILE",
    "ANSIBLE_BECOME_PASSWORD_FILE",
    "ANSIBLE_PRIVATE_KEY_FILE",
    "ANSIBLE_SSH_ARGS",
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_playbook_program() -> str:
    """`ansible-playbook` beside this interpreter, else of the fixed PATH.

    Raises ConfigError where ansible-core or ansible-runner is missing.
    """
    import importlib.util

    beside = Path(sys.executable).parent / "ansible-playbook"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("ansible-playbook", path=_PATH)
    missing = [] if found else ["ansible-core"]
    if importlib.util.find_spec("ansible_runner") is None:
        missing.append("ansible-runner")
    if not found or missing:
        raise ConfigError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed beside"
            " mopt-doctor: a host is changed by Ansible",
            hints=(
                f"`{sys.executable} -m pip install 'ansible-runner>=2.4' 'ansible-core>=2.18'`",
                "or install mopt-doctor with its extra `provision`",
            ),
        )
    return found


def trust_what_runs() -> None:
    """Root runs no Ansible and no playbook that somebody else could have written. Raises ConfigError."""
    import importlib.util

    if os.geteuid() != 0:
        return
    refuse_untrusted(data_dir("playbooks"), "the playbooks")
    refuse_untrusted(find_playbook_program(), "the program")
    for name in ("ansible", "ansible_runner"):
        package = importlib.util.find_spec(name)
        if package is not None and package.origin:
            refuse_untrusted(str(Path(package.origin).parent), "the package")
    for name in ("ANSIBLE_CONFIG", *PASSWORD_FILES, "ANSIBLE_PRIVATE_KEY_FILE"):
        path = os.environ.get(name, "")
        if path and os.path.exists(path):  # noqa: PTH110 - it may hold `~`, which is Ansible's to read
            refuse_untrusted(path, f"{name},")


def controller_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a run and its children get: a token exported in the caller's shell is not in it."""
    kept = {name: environ[name] for name in CONTROLLER_VARIABLES if name in environ}
    if os.geteuid() == 0:
        # Ansible reads plugins and settings below HOME, and sudo may leave that of the caller.
        kept["HOME"] = pwd.getpwuid(0).pw_dir
    program = str(Path(sys.executable).parent)
    return kept | {"PATH": f"{program}:{_PATH}", "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}


def sweep(folder: Path) -> None:
    """Remove what a killed run of this folder has left in the places for its files."""
    for parent in _parents(folder):
        for left in parent.glob(f"{_prefix(folder)}*"):
            if left.lstat().st_uid == os.geteuid() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)


def _prefix(folder: Path) -> str:
    return f"mopt-ansible-{folder.name}-"


def _parents(folder: Path) -> list[Path]:
    """Where a run's files may lie for as long as it lasts: in memory if the host allows, never kept.

    Ansible's callback writes each result, arguments included, to a file before it is read here.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    wanted = [Path(runtime)] if runtime.startswith("/") and os.geteuid() != 0 else []
    wanted += [Path("/dev/shm"), folder]  # noqa: S108 - mkdtemp makes it, 0700
    return [path for path in wanted if path.is_dir() and os.access(path, os.W_OK | os.X_OK)]


def _place(folder: Path) -> Path:
    """A fresh folder of mode 0700. Raises ApplyError where none can be made."""
    parent = next(iter(_parents(folder)), folder)
    try:
        return Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=parent))
    except OSError as error:
        raise ApplyError(
            f"no place for Ansible's files below `{parent}`: {error.strerror}", end="unchanged"
        ) from None


def play(  # noqa: PLR0913 - one for each thing that a run is given
    playbook: Path,
    *,
    folder: Path,
    inventory: Path,
    limit: str,
    variables: Mapping[str, Any],
    variable_files: Sequence[Path] = (),
    is_dry: bool = False,
    on_task: Callable[[Told], None] = lambda _told: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Played:
    """Run a playbook on one host of an inventory; `on_task` hears of each task as it ends.

    `variables` travel in a file of mode 0600 that is gone afterwards, with everything else that was written.
    An exception of `on_task` ends the run before the next task, and is raised here.
    """
    program = find_playbook_program()
    _refuse_templates(variables)
    environment = controller_environment()
    scrub = Scrub(secrets_in(variable_files, environment))
    private = _place(folder)
    ending = Ending(str(private))
    listener = Listener(on_task, should_stop, scrub, ending.ask)
    try:
        given = private / "variables.json"
        with os.fdopen(os.open(given, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(msgspec.json.encode(variables))
        # Names of files alone are on the command line, which every user of the host can read. What the plan
        # says comes last, so that a site's file cannot change it.
        words = [word for one in (*variable_files, given) for word in ("-e", f"@{one}")]
        words += ["--check"] if is_dry else []
        with _only(environment):
            runner = _runner(program, private, playbook, inventory, limit, words, listener)
        runner.run()
    finally:
        ending.finish()
        shutil.rmtree(private, ignore_errors=True)
    if listener.error is not None:
        raise listener.error
    return listener.played(str(runner.status), runner.rc)


def _runner(  # noqa: PLR0913, PLR0917 - of `play` alone
    program: str,
    private: Path,
    playbook: Path,
    inventory: Path,
    limit: str,
    words: Sequence[str],
    listener: Listener,
) -> Any:
    import ansible_runner.interface

    return ansible_runner.interface.init_runner(
        private_data_dir=str(private),
        ident="run",
        playbook=str(playbook),
        inventory=str(inventory),
        limit=limit,
        cmdline=shlex.join(words),
        envvars={
            # With `binary` it would leave the playbook out (2.4.3): the program is found by this path.
            "PATH": f"{Path(program).parent}:{_PATH}",
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_GATHER_TIMEOUT": "60",
        },
        settings={"pexpect_timeout": 1, "idle_timeout": None, "suppress_output_file": True},
        suppress_env_files=False,
        quiet=True,
        event_handler=listener.event,
        cancel_callback=listener.cancel,
    )


@contextlib.contextmanager
def _only(environment: Mapping[str, str]) -> Iterator[None]:
    """ansible-runner takes the whole environment of its process: this much of it is there while it does."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _refuse_templates(value: Any, name: str = "variables") -> None:
    """Ansible would carry out a template in extra variables, and a plan's texts come from files."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_templates(str(key), f"{name}.{key}")
            _refuse_templates(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            _refuse_templates(inner, f"{name}[{number}]")
    elif isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#")):
        raise ApplyError(
            f"`{name}` holds a template, `{value[:60]}`, which Ansible would carry out. Nothing was changed",
            end="unchanged",
        )
