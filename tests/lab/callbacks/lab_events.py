"""Writes what each task did to the file named by LAB_EVENTS, one JSON object a line."""

from __future__ import annotations

import json
import os
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lab_events
type: notification
short_description: one JSON object a task and host
description: For the tests of the lab.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "lab_events"
    CALLBACK_NEEDS_ENABLED = True

    started = 0.0

    def v2_playbook_on_task_start(self, task, is_conditional):  # noqa: ARG002 - the interface
        self.started = time.monotonic()

    def _write(self, row):
        with open(os.environ["LAB_EVENTS"], "a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, default=str) + "\n")

    @staticmethod
    def _said(found):
        """The words of a task; of a loop those of the items that failed, since its own are the same always."""
        rows = [row for row in found.get("results") or () if isinstance(row, dict) and row.get("failed")]
        return "; ".join(
            str(row.get("msg") or row.get("stderr") or row.get("exception") or "") for row in rows or [found]
        )

    def _task(self, status, result):
        found = dict(result._result)
        self._write(
            {
                "kind": "task",
                "status": "changed" if status == "ok" and found.get("changed") else status,
                "host": result._host.get_name(),
                "task": result._task.get_name(),
                "module": result._task.action,
                "seconds": round(time.monotonic() - self.started, 2),
                "message": self._said(found)[:4000],
                "result": {k: v for k, v in found.items() if not k.startswith("_") and k != "invocation"},
            }
        )

    def v2_runner_on_ok(self, result):
        self._task("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._task("ignored" if ignore_errors else "failed", result)

    def v2_runner_item_on_failed(self, result):
        self._task("failed", result)

    def v2_runner_on_skipped(self, result):
        self._task("skipped", result)

    def v2_runner_on_unreachable(self, result):
        self._task("unreachable", result)

    def v2_playbook_on_stats(self, stats):
        self._write({"kind": "stats", "stats": {host: stats.summarize(host) for host in stats.processed}})
