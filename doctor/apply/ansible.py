"""One playbook run through ansible-runner: the only module that imports it.

What its release 2.4.3 does by itself and must not (read in its source, and tried): it writes extra variables,
passwords and the whole environment to files that stay, reads such files of an earlier run, switches host key
checking off, ends a run when a handler raises, and cancels by SIGKILL.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from doctor.errors import ConfigError

__all__ = [
    "CONTROLLER_VARIABLES",
    "Played",
    "Told",
    "controller_environment",
    "find_playbook_program",
    "play",
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
_SAID_MAX = 4000


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did, of its result only what may be kept."""

    task: str
    state: str
    """`ok`, `changed`, `failed`, `unreachable` or `skipped`."""
    took_s: float = 0.0
    said: str = ""
    acting: tuple[str, ...] | None = None
    """Of the task that asks the host what is left to do: the stages that act."""
    disruptive: bool = False
    """Of the same task: whether a driver in use is changed, so that the host is drained first."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How a playbook run ended."""

    status: str
    """`successful`, `failed`, `canceled`, `timeout`."""
    code: int
    changed: int = 0
    unreachable: bool = False
    failures: tuple[str, ...] = ()
    acting: tuple[str, ...] | None = None
    disruptive: bool = False
    tail: str = ""
    """The last lines of output, where nothing of the host was reported."""

    @property
    def is_good(self) -> bool:
        return self.status == "successful" and self.code == 0


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


def controller_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a run and its children get: a token exported in the caller's shell is not in it."""
    kept = {name: environ[name] for name in CONTROLLER_VARIABLES if name in environ}
    program = str(Path(sys.executable).parent)
    return kept | {"PATH": f"{program}:{_PATH}", "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}


def play(  # noqa: PLR0913 - one for each thing that a run is given
    playbook: Path,
    *,
    folder: Path,
    inventory: Path,
    limit: str,
    variables: Mapping[str, Any],
    variable_files: Sequence[Path] = (),
    is_dry: bool,
    on_task: Callable[[Told], None],
    should_stop: Callable[[], bool],
) -> Played:
    """Run a playbook on one host of an inventory; `on_task` hears of each task as it ends.

    `variables` travel in a file of mode 0600 that is gone afterwards, with everything else that was written.
    An exception of `on_task` ends the run before the next task, and is raised here.
    """
    program = find_playbook_program()
    private = Path(tempfile.mkdtemp(prefix="ansible-", dir=folder))
    try:
        return _play(
            program,
            private,
            playbook=playbook,
            inventory=inventory,
            limit=limit,
            variables=variables,
            variable_files=variable_files,
            is_dry=is_dry,
            hears=_Hears(on_task, should_stop),
        )
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _play(  # noqa: PLR0913
    program: str,
    private: Path,
    *,
    playbook: Path,
    inventory: Path,
    limit: str,
    variables: Mapping[str, Any],
    variable_files: Sequence[Path],
    is_dry: bool,
    hears: _Hears,
) -> Played:
    import ansible_runner

    given = private / "variables.json"
    with os.fdopen(os.open(given, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(msgspec.json.encode(variables))
    # Names of files alone are on the command line, which every user of the host can read. What the plan says
    # comes last, so that a site's file cannot change it.
    words = [word for one in (*variable_files, given) for word in ("-e", f"@{one}")]
    words += ["--check"] if is_dry else []
    result = ansible_runner.run(
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
        settings={"pexpect_timeout": 1, "idle_timeout": None},
        suppress_env_files=False,
        quiet=True,
        event_handler=hears.event,
        cancel_callback=hears.cancel,
    )
    if hears.error is not None:
        raise hears.error
    return hears.played(result)


class _Hears:
    """Handlers that never raise into ansible-runner: it would leave the playbook running, or kill it."""

    def __init__(self, on_task: Callable[[Told], None], should_stop: Callable[[], bool]) -> None:
        self._on_task, self._should_stop = on_task, should_stop
        self.error: BaseException | None = None
        self._failures: list[str] = []
        self._lines: list[str] = []
        self._changed = 0
        self._unreachable = False
        self._acting: tuple[str, ...] | None = None
        self._disruptive = False

    def event(self, event: Mapping[str, Any]) -> bool:
        try:
            self._heard(event)
        except BaseException as error:  # noqa: BLE001 - see the class
            self.error = self.error or error
        return False  # its data are written to no file

    def cancel(self) -> bool:
        return self.error is not None or self._should_stop()

    def _heard(self, event: Mapping[str, Any]) -> None:
        kind, data = str(event.get("event", "")), event.get("event_data") or {}
        if kind == "verbose" or kind.startswith("playbook_on_no"):
            self._lines = [*self._lines[-40:], str(event.get("stdout", ""))]
        if kind == "playbook_on_stats":
            self._changed = sum((data.get("changed") or {}).values())
        told = _told(kind, data)
        if told is None:
            return
        if told.state in ("failed", "unreachable"):
            self._failures.append(told.said or told.task)
            self._unreachable = self._unreachable or told.state == "unreachable"
        self._acting = told.acting if told.acting is not None else self._acting
        self._disruptive = self._disruptive or told.disruptive
        self._on_task(told)

    def played(self, result: Any) -> Played:
        return Played(
            status=str(result.status),
            code=int(result.rc if result.rc is not None else -1),
            changed=self._changed,
            unreachable=self._unreachable,
            failures=tuple(self._failures),
            acting=self._acting,
            disruptive=self._disruptive,
            tail="\n".join(self._lines)[-_SAID_MAX:],
        )


_STATES = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}


def _told(kind: str, data: Mapping[str, Any]) -> Told | None:
    """None for events that are no end of a task, and for a failure that the playbook expects."""
    state = _STATES.get(kind)
    if state is None or (state == "failed" and data.get("ignore_errors")):
        return None
    result = data.get("res") or {}
    if state == "ok" and result.get("changed"):
        state = "changed"
    is_pending = str(data.get("task_action", "")).endswith("mopt_pending")
    acting = result.get("acting") if is_pending else None
    return Told(
        task=str(data.get("task", ""))[:200],
        state=state,
        took_s=round(float(data.get("duration") or 0.0), 3),
        said=_message(result) if state in ("failed", "unreachable") else "",
        acting=tuple(str(one) for one in acting) if isinstance(acting, list) else None,
        disruptive=is_pending and bool(result.get("disruptive")),
    )


def _message(result: Mapping[str, Any]) -> str:
    """The message of what failed; of a loop, those of its items."""
    items = [one for one in result.get("results") or () if isinstance(one, Mapping) and one.get("failed")]
    texts = [str(one.get("msg") or "") for one in items] or [str(result.get("msg") or "")]
    return "; ".join(dict.fromkeys(text for text in texts if text))[:_SAID_MAX]
