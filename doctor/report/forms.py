"""Every form that a check can be written in, one table; a form's module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from doctor.core.finding import CheckReport

__all__ = ["CHECK_FORMS", "write_check"]

#: Form → the module below `doctor.report` and its function from a report to bytes. `text` is rendered with
#: the settings of the terminal, by whoever has them.
CHECK_FORMS: dict[str, tuple[str, str]] = {
    "json": ("machine", "to_json"),
    "jsonl": ("lines", "to_jsonl"),
    "html": ("html", "to_html"),
    "junit": ("junit", "to_junit"),
    "prometheus": ("prometheus", "to_prometheus"),
    "ansible-facts": ("ansible_facts", "to_ansible_facts"),
    "nhc": ("nhc", "to_nhc"),
}


def write_check(report: CheckReport, form: str) -> bytes:
    """The report in a form of `CHECK_FORMS`. Raises KeyError on another."""
    module, function = CHECK_FORMS[form]
    write: Callable[[CheckReport], bytes] = getattr(import_module(f"doctor.report.{module}"), function)
    return write(report)
