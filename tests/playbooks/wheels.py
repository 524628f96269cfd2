"""Tiny wheels, made here: an engine's environment is installed from a folder of them, without a network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

__all__ = ["hash_of", "lock", "make_wheel"]


def make_wheel(
    folder: Path, name: str, version: str, *, needs: tuple[str, ...] = (), body: str = "", seed: str = ""
) -> Path:
    """A wheel with one module of that name. `seed` makes other bytes of the same version."""
    stem = f"{name}-{version}"
    requires = [f"Requires-Dist: {need}" for need in needs]
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    files = {
        f"{name}.py": f"__version__ = {version!r}\n{body}\n",
        f"{stem}.dist-info/METADATA": "\n".join([*head, *requires, "", seed]),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_record(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{stem}.dist-info/RECORD"] = "\n".join([*rows, f"{stem}.dist-info/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return target


def _record(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def hash_of(wheel: Path) -> str:
    return "sha256:" + hashlib.sha256(wheel.read_bytes()).hexdigest()


def lock(*wheels: Path) -> str:
    """Pins with hashes, as `uv pip compile --generate-hashes` writes them."""
    rows = []
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        rows.append(f"{name}=={version} \\\n    --hash={hash_of(wheel)}\n")
    return "".join(rows)
