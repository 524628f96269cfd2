"""`python -I -m doctor`: the same as the console script, which is the documented start."""

from __future__ import annotations

import os
import sys

from doctor.cli import program

if __name__ == "__main__":
    if os.geteuid() == 0 and not sys.flags.isolated:
        # Without -I the current directory comes first on the path: a `doctor/` there would run as root.
        sys.stderr.write("mopt-doctor: as root start it as `mopt-doctor`, or as `python -I -m doctor`\n")
        sys.exit(2)
    program()
