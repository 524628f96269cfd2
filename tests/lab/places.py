"""Where the lab keeps what it builds once, and the few names that all its parts share."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["BRIDGE_ADDRESS", "CACHE", "LAB", "NETWORK", "RUN", "SUITE", "SYSTEMS", "TREE"]

#: `tests/lab` and the project's root.
LAB = Path(__file__).resolve().parent
TREE = LAB.parent.parent

#: Bases, layers, repositories and controllers; outside the tree, safe to delete.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mopt-doctor" / "lab"

#: bookworm has dnf 4.14 as Rocky 9 has, and apt 2.6 between Ubuntu 22.04's 2.4 and 24.04's 2.7.
SUITE = os.environ.get("MOPT_LAB_SUITE", "bookworm")

SYSTEMS = ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "rocky-8", "rocky-9", "rocky-10")

#: A memory file system that only the session's own mount namespace sees.
RUN = Path("/run/mopt-lab")

NETWORK = "10.77.0"
BRIDGE_ADDRESS = f"{NETWORK}.1"
