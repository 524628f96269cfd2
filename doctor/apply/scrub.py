"""Takes secrets out of what Ansible says before it is kept: messages quote URLs, arguments and variables."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from doctor.evidence.identities import ASSIGNED_SECRET, SECRET_NAME, TOKEN

__all__ = ["PASSWORD_FILES", "Scrub", "secrets_in"]

#: Variables of Ansible that name files of passwords.
PASSWORD_FILES = ("ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_BECOME_PASSWORD_FILE")

#: A shorter one would be cut out of words that are none; nobody guards anything with it.
_LENGTH_MIN = 6
_BYTES_MAX = 1024 * 1024
_IN_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@\"'<>]{1,200}@", re.IGNORECASE)
#: `name: value`, `name=value`, `"name": "value"`, of which the name is to sound like a secret.
_PAIR = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,80})[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
    r"(?P<value>\"[^\"\n]{1,500}\"|'[^'\n]{1,500}'|[^\s\"',}]{1,500})"
)
_IN_ADDRESS = re.compile(r"://(?P<user>[^\s/@:\"']{1,200})?(?::(?P<password>[^\s/@\"']{1,200}))?@")
_VAULT = "$ANSIBLE_VAULT;"
_HEX = frozenset("0123456789abcdef")
_BLOBS_MAX = 50
_HIDDEN = "***"


class Scrub:
    """Texts without the secrets that are known, and without what has the form of one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        words = sorted({word for word in secrets if len(word) >= _LENGTH_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(_HIDDEN, text)
        text = _IN_URL.sub(rf"\g<scheme>{_HIDDEN}@", text)
        return ASSIGNED_SECRET.sub(rf"\g<head>{_HIDDEN}", TOKEN.sub(_HIDDEN, text))


def secrets_in(variable_files: Iterable[Path], environment: dict[str, str]) -> set[str]:
    """Secrets that this run is given in files: passwords whole, of variables those with such a name.

    What is encrypted is asked of Ansible's own program, and is kept in memory alone. A password that a
    program gives, not a file, is scrubbed by its form alone.
    """
    found: set[str] = set()
    for name in PASSWORD_FILES:
        path = Path(environment.get(name, ""))
        if environment.get(name) and not os.access(path, os.X_OK):
            found.add(_text(path).strip())
    for path in variable_files:
        text = _text(path)
        for blob in itertools.islice(_vaults(text), _BLOBS_MAX):
            plain = _opened(blob, tuple(sorted(environment.items())))
            found |= {pair["value"].strip("\"'") for pair in _PAIR.finditer(plain)}
            found |= {line.strip() for line in plain.splitlines()}
        for pair in _PAIR.finditer(text):
            if SECRET_NAME.search(pair["name"]):
                found.add(pair["value"].strip("\"'"))
        found |= {address["password"] or address["user"] or "" for address in _IN_ADDRESS.finditer(text)}
    return found


def _vaults(text: str) -> Iterator[str]:
    """What is encrypted in a file: the whole, or single values, each indented as YAML wants it."""
    blob: list[str] = []
    for line in (*text.splitlines(), ""):
        word = line.strip()
        if blob and word and _HEX.issuperset(word):
            blob.append(word)
            continue
        if len(blob) > 1:
            yield "\n".join(blob) + "\n"
        blob = [word] if word.startswith(_VAULT) else []


@functools.lru_cache(maxsize=64)
def _opened(blob: str, environment: tuple[tuple[str, str], ...]) -> str:
    """What a vault holds; empty where it cannot be opened: then Ansible will say so."""
    beside = Path(sys.executable).with_name("ansible-vault")
    names = dict(environment)
    program = str(beside) if beside.exists() else shutil.which("ansible-vault", path=names.get("PATH"))
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603
            [program, "decrypt", "--output=-"],
            input=blob.encode(),
            capture_output=True,
            check=False,
            env=names,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")[:_BYTES_MAX]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
