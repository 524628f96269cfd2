"""EDGE: SHA-256 of large files, several at once, with progress; none is hashed twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock

from doctor.core.model_report import Fault
from optimize.modeldir import open_regular

__all__ = ["digest_files", "expected_digest", "judge_digests", "load_kept", "save_kept"]

_CHUNK_BYTES = 8 * 1024 * 1024
_WORKERS_MAX = 8
_KEPT_MAX = 50_000
_KEPT_BYTES_MAX = 32 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[int, int], None]
"""Bytes done, and bytes in all."""


def digest_files(
    folder: str,
    names: Iterable[str],
    *,
    kept: dict[str, str] | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> dict[str, str]:
    """The digest of each file that can be read. `kept` holds those of earlier runs by the file's identity
    (device, inode, size, time of change), and is filled as files end: an interrupted run goes on behind them.
    """
    kept = {} if kept is None else kept
    paths = {name: os.path.join(folder, name) for name in names}  # noqa: PTH118
    sizes = {name: _identity(path) for name, path in paths.items()}
    total = sum(size for _, size in sizes.values())
    done, lock, stop = [0], Lock(), Event()

    def tell(count: int) -> None:
        with lock:
            done[0] += count
            if progress is not None:
                progress(done[0], total)

    def one(name: str) -> str:
        key, size = sizes[name]
        if key and key in kept:
            tell(size)
            return kept[key]
        found = _digest(paths[name], tell, stop)
        # A file that changed while it was read has another identity now, and no digest.
        if found and key and _identity(paths[name])[0] == key:
            kept[key] = found
            return found
        return ""

    # hashlib lets other threads run while it hashes, so threads are enough.
    count = min(workers or os.cpu_count() or 1, _WORKERS_MAX, max(1, len(paths)))
    pool = ThreadPoolExecutor(count)
    try:
        found = dict(zip(paths, pool.map(one, paths), strict=True))
    except BaseException:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return {name: digest for name, digest in found.items() if digest}


def _identity(path: str) -> tuple[str, int]:
    """What tells that a file is the one it was, and its size; empty text where it cannot be asked."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return "", 0
    return (
        f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}",
        found.st_size,
    )


def _digest(path: str, tell: Callable[[int], None], stop: Event) -> str:
    digest = hashlib.sha256()
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK_BYTES):
                if stop.is_set():
                    return ""
                digest.update(chunk)
                tell(len(chunk))
    except OSError:
        return ""
    return digest.hexdigest()


def expected_digest(folder: str, name: str) -> str:
    """What a file's digest must be, where a hub's cache says so: blobs of large files are named by it."""
    try:
        target = os.readlink(os.path.join(folder, name))  # noqa: PTH115, PTH118
    except OSError:
        return ""
    last = target.rpartition("/")[2]
    return last if _HEX.fullmatch(last) and "/blobs/" in target else ""


def judge_digests(folder: str, digests: Mapping[str, str]) -> tuple[Fault, ...]:
    """Files whose bytes are not those that the cache's own name for them promises."""
    return tuple(
        Fault(
            kind="digest",
            file=name,
            message=f"its SHA-256 is {found}, the cache names it {wanted}: damaged, fetch it again",
        )
        for name, found in sorted(digests.items())
        if (wanted := expected_digest(folder, name)) and wanted != found
    )


def load_kept(path: str) -> dict[str, str]:
    """Digests of earlier runs; none where there is no such file, or a damaged one."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            raw = file.read(_KEPT_BYTES_MAX)
        found = json.loads(raw)
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str) and _HEX.fullmatch(v)}


def save_kept(path: str, kept: Mapping[str, str]) -> None:
    """Keeps the newest digests, the file whole or not at all. What cannot be written is left."""
    folder = os.path.dirname(path)  # noqa: PTH120
    beside = f"{path}.{os.getpid()}"
    newest = dict(list(kept.items())[-_KEPT_MAX:])
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(beside, flags, 0o600), "w") as file:
            json.dump(newest, file)
        os.replace(beside, path)  # noqa: PTH105
    except OSError:
        return
