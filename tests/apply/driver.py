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
    from doctor.cli import program

    sys.argv = ["mopt-doctor", *sys.argv[2:]]
    program()


if __name__ == "__main__":
    main()
