"""What Ansible's events say of a run: each task as it ends, of its result only what may be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = ["Listener", "Played", "Told"]

_SAID_MAX = 4000
_TASK_MAX = 200
_LINES_MAX = 40


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did."""

    task: str
    state: str
    """`ok`, `changed`, `failed`, `unreachable` or `skipped`."""
    took_s: float = 0.0
    said: str = ""
    touched: bool = False
    """Of one that failed: it may have changed something before it did."""
    acting: tuple[str, ...] | None = None
    """Of the task that asks the host what is left to do: the stages that act."""
    disruptive: bool = False
    """Of the same task: whether a driver in use is changed, so that the host is drained first."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How a playbook run ended."""

    status: str
    """`successful`, `failed`, `canceled`, `timeout`."""
    code: int
    hosts: tuple[str, ...] = ()
    """Those that it reached for."""
    changed: int = 0
    unreachable: bool = False
    failures: tuple[str, ...] = ()
    acting: tuple[str, ...] | None = None
    disruptive: bool = False
    tail: str = ""
    """The last lines of output, where nothing of the host was reported."""

    @property
    def is_good(self) -> bool:
        """A run that met no host did nothing, and that is no success."""
        return self.status == "successful" and self.code == 0 and bool(self.hosts)


class Listener:
    """Handlers that never raise into ansible-runner: it would leave the playbook running, or kill it."""

    def __init__(
        self,
        on_task: Callable[[Told], None],
        should_stop: Callable[[], bool],
        scrub: Callable[[str], str],
        end: Callable[[], bool],
    ) -> None:
        self._on_task, self._should_stop, self._scrub, self._end = on_task, should_stop, scrub, end
        self.error: BaseException | None = None
        self._is_ending = False
        self._failures: list[str] = []
        self._lines: list[tuple[bool, str]] = []
        self._changed = 0
        self._hosts: tuple[str, ...] = ()
        self._unreachable = False
        self._acting: tuple[str, ...] | None = None
        self._disruptive = False

    def event(self, event: Mapping[str, Any]) -> bool:
        """ansible-runner's `event_handler`."""
        try:
            self._heard(event)
        except BaseException as error:  # noqa: BLE001 - see the class
            self.error = self.error or error
        return False  # its data are written to no file

    def cancel(self) -> bool:
        """ansible-runner's `cancel_callback`: the playbook is asked to end, and killed if it does not."""
        try:
            self._is_ending = self._is_ending or self.error is not None or self._should_stop()
            return self._is_ending and self._end()
        except BaseException as error:  # noqa: BLE001 - see the class
            self.error = self.error or error
            return True

    def _heard(self, event: Mapping[str, Any]) -> None:
        kind, data = str(event.get("event", "")), event.get("event_data") or {}
        if kind in ("verbose", "error", "warning", "system_warning"):
            said = str(event.get("stdout", ""))
            # The kind of event differs between editions of ansible-core; how an error begins, less so.
            is_error = kind == "error" or said.startswith(("[ERROR]", "ERROR!"))
            self._lines = [*self._lines[1 - _LINES_MAX :], (is_error, said)]
        if kind == "playbook_on_stats":
            self._changed = sum((data.get("changed") or {}).values())
            self._hosts = tuple(sorted(data.get("processed") or {}))
        told = self._told(kind, data)
        if told is None:
            return
        if told.state in ("failed", "unreachable"):
            self._failures.append(told.said or told.task)
            self._unreachable = self._unreachable or told.state == "unreachable"
        self._acting = told.acting if told.acting is not None else self._acting
        self._disruptive = self._disruptive or told.disruptive
        self._on_task(told)

    def _told(self, kind: str, data: Mapping[str, Any]) -> Told | None:
        """None for events that are no end of a task, and for a failure that the playbook expects."""
        state = _STATES.get(kind)
        if state is None or (state == "failed" and data.get("ignore_errors")):
            return None
        result = data.get("res") or {}
        if state == "ok" and result.get("changed"):
            state = "changed"
        action = str(data.get("task_action", "")).rpartition(".")[2]
        is_pending = action == "mopt_pending"
        acting = result.get("acting") if is_pending else None
        return Told(
            task=self._scrub(str(data.get("task", "")))[:_TASK_MAX],
            state=state,
            took_s=round(float(data.get("duration") or 0.0), 3),
            said=self._scrub(_message(result))[:_SAID_MAX] if state in ("failed", "unreachable") else "",
            touched=state == "failed" and _has_touched(action, result),
            acting=tuple(str(one) for one in acting) if isinstance(acting, list) else None,
            disruptive=is_pending and bool(result.get("disruptive")),
        )

    def played(self, status: str, code: int | None) -> Played:
        """The run as a whole, once it is over."""
        is_canceled = self._is_ending and code != 0
        return Played(
            status="canceled" if is_canceled else status,
            code=-1 if code is None else code,
            hosts=self._hosts,
            changed=self._changed,
            unreachable=self._unreachable,
            failures=tuple(dict.fromkeys(self._failures)),
            acting=self._acting,
            disruptive=self._disruptive,
            tail=self._scrub(self._tail())[-_SAID_MAX:],
        )

    def _tail(self) -> str:
        """Errors, and where there is none whatever was said."""
        errors = [line for is_error, line in self._lines if is_error and line]
        return "\n".join(errors or [line for _is_error, line in self._lines if line])


_STATES = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}


def _has_touched(action: str, result: Mapping[str, Any]) -> bool:
    """A package transaction that does not say `unchanged` may be half-way, or go on alone."""
    items = [one for one in result.get("results") or () if isinstance(one, Mapping)]
    if any(one.get("changed") for one in (result, *items)):
        return True
    failed = [one for one in items if one.get("failed")] if items else [result]
    return action == "mopt_transaction" and any(one.get("outcome") != "unchanged" for one in failed)


def _message(result: Mapping[str, Any]) -> str:
    """The message of what failed; of a loop, those of its items."""
    items = [one for one in result.get("results") or () if isinstance(one, Mapping) and one.get("failed")]
    texts = [str(one.get("msg") or "") for one in items] or [str(result.get("msg") or "")]
    return "; ".join(dict.fromkeys(text for text in texts if text))
