"""Build hook: compile the matrix, so that wheel and sdist carry `matrices/edition.json`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EDITION = "matrices/edition.json"


class MatrixBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # BuilderConfig is of no use here
    """Runs for wheel, editable wheel and sdist alike; a fault in the YAML stops the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's name
        """Write the edition and list it as an artifact: git ignores the file, the archives must not."""
        # The package that is being built is not installed yet: it is imported from its source.
        sys.path.insert(0, self.root)
        try:
            from doctor.edition.build import build, write
            from doctor.errors import MatrixError
        finally:
            sys.path.remove(self.root)
        try:
            edition = build(Path(self.root, "matrices"))
        except MatrixError as error:
            raise SystemExit("\n".join((f"{error.message}:", *error.problems))) from error
        write(edition, Path(self.root, EDITION))
        build_data["artifacts"].append(f"/{EDITION}")
