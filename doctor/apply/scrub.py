"""Takes secrets out of what Ansible says before it is kept: messages quote URLs, arguments and variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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

    A file that is encrypted or a program tells nothing, and what it holds is scrubbed by its form alone.
    """
    found: set[str] = set()
    for name in PASSWORD_FILES:
        path = Path(environment.get(name, ""))
        if environment.get(name) and not os.access(path, os.X_OK):
            found.add(_text(path).strip())
    for path in variable_files:
        text = _text(path)
        for pair in _PAIR.finditer(text):
            if SECRET_NAME.search(pair["name"]):
                found.add(pair["value"].strip("\"'"))
        found |= {address["password"] or address["user"] or "" for address in _IN_ADDRESS.finditer(text)}
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
