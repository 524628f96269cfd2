"""`mopt-doctor config show`: each setting and where it came from."""

from __future__ import annotations

import argparse
import sys

from doctor.config import load_settings

__all__ = ["show"]


def show(options: argparse.Namespace) -> int:
    """Print the settings; 0."""
    settings = load_settings(
        timeout_s=options.timeout,
        no_color=options.no_color,
        ascii_only=options.ascii,
        stdout_is_terminal=sys.stdout.isatty(),
    )
    if options.json:
        import msgspec

        from doctor.report.machine import printable

        sys.stdout.buffer.write(printable(msgspec.json.encode(settings.origins)))
        return 0
    for one in settings.origins:
        sys.stdout.write(f"{one.name:<10} {one.value:<44} {one.origin}\n")
    return 0
