"""What pip knows of a project: `python -I pip_child.py files NAME…`, `metadata NAME FILE…`, or `where`.

A program of its own, because pip has no public interface for this and its inner one moves: whatever goes
wrong ends here, as an `error` in the answer. pip finds the index, signs in, and trusts certificates as its
configuration says; no address of an index stands here, and none is in the answer.

A wheel of torch has half a gigabyte. Its METADATA comes from the file that the index keeps beside it (PEP
658), or else from the wheel by ranges. pip's own reader of ranges takes 320 requests and 17 s for torch
2.15.0 (pip 23.2); blocks of 512 kB take 4 requests, 1.8 MB and 2 s.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urljoin

__all__ = ["main"]

#: Read at once, and at most of one file. The list of a wheel's files has 1.3 MB in torch 2.15.0.
_BLOCK = 512 * 1024
_RANGES_MAX = 64 * 1024 * 1024
#: A file that is taken whole, where it is no wheel or its server knows no ranges; a stub has 20 kB.
_WHOLE_MAX = 8 * 1024 * 1024
_METADATA_MAX = 1024 * 1024
_FILES_MAX = 50_000


def main(argv: list[str]) -> int:
    """Answer on stdout, as JSON."""
    what, *names = argv
    if what == "where":
        # Found and not imported: root looks whose files they are first.
        spec = import_module("importlib.util").find_spec("pip")
        json.dump({"pip": next(iter(spec.submodule_search_locations or ()), "") if spec else ""}, sys.stdout)
        return 0
    # pip is no dependency of the doctor: another environment's may run this file.
    pip = import_module("pip")
    answer: dict[str, Any] = {"pip": pip.__version__}
    command = import_module("pip._internal.commands").create_command("download")
    options, _ = command.parse_args(["--no-deps", names[0]])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)  # noqa: SLF001 - see above
        if what == "files":
            answer["projects"] = {name: _project(finder, name) for name in names}
        else:
            answer["metadata"] = _metadata(session, finder, names[0], names[1:])
    json.dump(answer, sys.stdout)
    return 0


def _project(finder: Any, name: str) -> dict[str, Any]:
    """The files of a project, or `error`."""
    try:
        return {"files": [{k: v for k, v in file.items() if k != "url"} for file in _files(finder, name)]}
    except Exception as error:  # noqa: BLE001 - a border: pip's errors are its own, and there are many
        return {"error": _words(error)}


def _words(error: Exception) -> str:
    """An error without the address that it may quote."""
    text = " ".join(word for word in str(error).split() if "://" not in word and "host=" not in word)
    return f"{type(error).__name__}: {text}"[:400]


def _files(finder: Any, name: str) -> list[dict[str, Any]]:
    link = import_module("pip._internal.models.link").Link
    indexes = finder.search_scope.get_index_urls_locations(name)
    if not indexes:
        raise LookupError("pip is set up to ask no index")
    found: dict[str, dict[str, Any]] = {}
    for url in indexes:
        page = finder._link_collector.fetch_response(link(url))  # noqa: SLF001 - see above
        if page is not None:
            for file in _listed(page):
                found.setdefault(file["filename"], file)
    if not found:
        raise LookupError(f"no index that pip asks has a project {name}")
    return list(found.values())[:_FILES_MAX]


def _listed(page: Any) -> Iterator[dict[str, Any]]:
    """The files of an index page: JSON (PEP 691, with days and sizes by PEP 700), or HTML without them."""
    if not page.content_type.lower().startswith("application/vnd.pypi.simple.v1+json"):
        for link in import_module("pip._internal.index.collector").parse_links(page):
            yield {
                "filename": link.filename,
                "url": link.url_without_fragment,
                "requires_python": link.requires_python or "",
                "yanked": link.yanked_reason is not None,
            }
        return
    for file in json.loads(page.content)["files"]:
        yield {
            "filename": str(file["filename"]),
            "url": urljoin(page.url, file["url"]),
            "size": file.get("size"),
            "uploaded": str(file.get("upload-time") or "")[:10],
            "requires_python": file.get("requires-python") or "",
            "yanked": bool(file.get("yanked")),
            "has_metadata": bool(file.get("core-metadata") or file.get("dist-info-metadata")),
        }


def _metadata(session: Any, finder: Any, name: str, filenames: list[str]) -> dict[str, Any]:
    """The METADATA of files by their name: `text` and what it cost, or `error`."""
    try:
        files = {file["filename"]: file for file in _files(finder, name)}
    except Exception as error:  # noqa: BLE001 - see `_project`
        return {filename: {"error": _words(error)} for filename in filenames}
    found: dict[str, Any] = {}
    for filename in filenames:
        source = _Remote(session, files[filename]) if filename in files else None
        try:
            if source is None:
                raise LookupError("the index no longer lists it")  # noqa: TRY301 - one border for all
            found[filename] = {"text": source.metadata().decode("utf-8", "replace"), **source.cost()}
        except Exception as error:  # noqa: BLE001 - see `_project`
            found[filename] = {"error": _words(error)}
    return found


class _Remote(io.RawIOBase):
    """A file of the index as zipfile reads it: in blocks, none twice."""

    def __init__(self, session: Any, file: dict[str, Any]) -> None:
        self._session = session
        self._file = file
        self._blocks: dict[int, bytes] = {}
        self._at = 0
        self._size = 0
        self._requests = 0
        self._bytes = 0

    def cost(self) -> dict[str, int]:
        return {"requests": self._requests, "bytes": self._bytes}

    def metadata(self) -> bytes:
        """The METADATA of a wheel, the PKG-INFO of a source archive."""
        name = self._file["filename"]
        if self._file.get("has_metadata"):
            return self._fetch(self._file["url"] + ".metadata", _METADATA_MAX)
        if not name.endswith(".whl"):
            return _of_sdist(self._fetch(self._file["url"], _WHOLE_MAX))
        self._size = int(self._file.get("size") or self._length())
        if self._size <= _WHOLE_MAX:
            return _of_wheel(io.BytesIO(self._fetch(self._file["url"], _WHOLE_MAX)))
        return _of_wheel(io.BufferedReader(self, 1024))

    def _length(self) -> int:
        self._requests += 1
        answer = self._session.head(self._file["url"], headers={"Accept-Encoding": "identity"})
        answer.raise_for_status()
        return int(answer.headers["Content-Length"])

    def _fetch(self, url: str, limit: int) -> bytes:
        """A whole file of `limit` bytes at most; no more of it is taken."""
        self._requests += 1
        with self._session.get(url, headers={"Accept-Encoding": "identity"}, stream=True) as answer:
            answer.raise_for_status()
            data: bytes = answer.raw.read(limit + 1)
        self._bytes += len(data)
        if len(data) > limit:
            raise ValueError(f"{self._file['filename']} is larger than {limit} bytes")
        return data

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            first = number * _BLOCK
            last = min(first + _BLOCK, self._size) - 1
            if self._bytes + _BLOCK > _RANGES_MAX:
                raise ValueError(f"METADATA was not found in {_RANGES_MAX} bytes")
            self._requests += 1
            headers = {"Accept-Encoding": "identity", "Range": f"bytes={first}-{last}"}
            with self._session.get(self._file["url"], headers=headers, stream=True) as answer:
                if answer.status_code != 206:
                    raise ValueError(f"the index serves no part of a file (HTTP {answer.status_code})")
                data: bytes = answer.raw.read(_BLOCK + 1)
            if len(data) != last - first + 1:
                raise ValueError(f"the index sent {len(data)} bytes where {last - first + 1} were asked for")
            self._bytes += len(data)
            self._blocks[number] = data
        return self._blocks[number]

    # --- what zipfile asks for ---

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        start = self._at % _BLOCK
        data = self._block(self._at // _BLOCK)[start : start + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _of_wheel(file: Any) -> bytes:
    with zipfile.ZipFile(file) as wheel:
        for member in wheel.infolist():
            folder, _, name = member.filename.partition("/")
            if folder.endswith(".dist-info") and name == "METADATA":
                with wheel.open(member) as metadata:
                    return _bounded(metadata)
    raise LookupError("the wheel has no METADATA")


def _of_sdist(data: bytes) -> bytes:
    # `r|` reads on and never back: what unpacks to more than it should is left at its cap.
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
        for member in archive:
            if member.isreg() and member.name.count("/") == 1 and member.name.endswith("/PKG-INFO"):
                found = archive.extractfile(member)
                if found is not None:
                    return _bounded(found)
            if archive.offset > _RANGES_MAX:
                break
    raise LookupError("the source archive has no PKG-INFO")


def _bounded(file: Any) -> bytes:
    data: bytes = file.read(_METADATA_MAX + 1)
    if len(data) > _METADATA_MAX:
        raise ValueError(f"METADATA is larger than {_METADATA_MAX} bytes")
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
