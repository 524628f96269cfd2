"""`python -m tests.lab.keys < VARS > VARS`: the true fingerprints of signing keys become the lab's.

Nobody but a vendor can sign with a vendor's key, so the lab signs with its own, and a run there says so, as a
site does that mirrors and signs again. Nothing else of the variables is touched.
"""

from __future__ import annotations

import sys

from tests.lab.authority import ensure_authority

__all__ = ["with_lab_keys"]


def with_lab_keys(text: str) -> str:
    """The same document with fingerprints that the lab's repositories are signed by."""
    for true, own in sorted(ensure_authority().replacements().items(), key=lambda pair: -len(pair[0])):
        text = text.replace(f'"{true}"', f'"{own}"')
    return text


if __name__ == "__main__":
    sys.stdout.write(with_lab_keys(sys.stdin.read()))
