"""`mopt-doctor` with its state in a folder: `driver.py STATE COMMAND…`. Root's places are fixed otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    state = Path(sys.argv[1])
    os.environ["XDG_STATE_HOME"] = str(state)
    sys.path.insert(0, str(ROOT))
    from doctor.apply import launch, places

    places._STATE, places._LOCKS = state / "mopt-doctor", state / "locks"
    launch._DOCTOR = (sys.executable, "-I", __file__, str(state))
    if os.environ.get("MOPT_TEST_BOOT"):
        from doctor.apply import restart

        restart.boot_id = lambda: os.environ["MOPT_TEST_BOOT"]
    if os.environ.get("MOPT_TEST_EVIDENCE"):
        _see(os.environ["MOPT_TEST_EVIDENCE"])
    from doctor.cli import program

    sys.argv = ["mopt-doctor", *sys.argv[2:]]
    program()


def _see(bundle: str) -> None:
    """This host is the recorded one."""
    from doctor.apply import work
    from doctor.commands import apply_before
    from doctor.evidence.open import open_evidence

    for module in (work, apply_before):
        true = module.observe
        module.observe = lambda *, inventory, true=true, **more: (
            true(inventory=inventory, **more) if inventory else open_evidence(bundle)
        )


if __name__ == "__main__":
    main()
