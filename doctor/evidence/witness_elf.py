"""What binaries say of themselves, read without loading them: version strings, and what an ELF file asks for.

Used by `witness_env.py`, beside which it lies. Python 3.6 syntax, the standard library alone. Everything is
read with bounds, from descriptors of regular files.
"""

import os
import re
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from doctor.evidence.collector import Root

    Document = dict[str, object]

PTXAS_RELEASE = rb"Cuda compilation tools, release (\d{1,2}\.\d{1,2})"
GLIBCXX = rb"GLIBCXX_(3\.4\.\d{1,3})\b"
GLIBC = rb"GLIBC_(2\.\d{1,3}(?:\.\d{1,2})?)\b"

#: ptxas has 30 MB.
SCAN_MAX = 96 << 20
#: The string table of libtorch_cuda.so has 4 MB.
TABLE_MAX = 8 << 20
SEGMENTS_MAX = 128

LOAD, DYNAMIC = 1, 2
NEEDED, STRTAB, STRSZ = 1, 5, 10


def scan(root: "Root", path: str, wanted: bytes, most: int = SCAN_MAX) -> str:
    """The highest version that a binary's strings name; empty where it is not there or names none."""
    try:
        fd = root.open_file(path)
    except OSError:
        return ""
    found = set()  # type: set[bytes]
    tail = b""
    try:
        while most > 0:
            block = os.read(fd, 1 << 20)
            if not block:
                break
            most -= len(block)
            found.update(re.findall(wanted, tail + block))
            tail = block[-128:]
    except OSError:
        return ""
    finally:
        os.close(fd)
    return _highest(found)


def linked(root: "Root", path: str) -> "Document":
    """What an ELF file asks of others: libraries, and the newest C and C++ library symbols.

    Empty where it is no 64-bit little-endian ELF file that can be read.
    """
    try:
        fd = root.open_file(path)
    except OSError:
        return {}
    try:
        return _dynamic(fd)
    except (OSError, struct.error, ValueError):
        return {}
    finally:
        os.close(fd)


def _dynamic(fd: int) -> "Document":
    """Of the dynamic section. Raises ValueError, struct.error and OSError on what is not as it should be."""
    segments = _segments(fd)
    place, size = next((s[2], s[5]) for s in [*segments, (0,) * 8] if s[0] in (DYNAMIC, 0))
    data = os.pread(fd, min(size, 1 << 16), place)
    entries = [struct.unpack_from("<qQ", data, i * 16) for i in range(len(data) // 16)]
    strings = _strings(fd, segments, dict(entries))
    needed = [_text_at(strings, value) for tag, value in entries if tag == NEEDED]
    return {
        "needs": needed[:60],
        "glibc": _highest(set(re.findall(GLIBC, strings))),
        "glibcxx": _highest(set(re.findall(GLIBCXX, strings))),
    }


def _segments(fd: int) -> "list[tuple[int, ...]]":
    """(type, flags, offset, address, _, size in the file, size in memory, alignment) of each segment."""
    head = os.pread(fd, 64, 0)
    size, count = struct.unpack_from("<HH", head, 54)
    if head[:6] != b"\x7fELF\x02\x01" or size != 56:
        raise ValueError("no 64-bit little-endian ELF file")
    table = os.pread(fd, size * min(count, SEGMENTS_MAX), struct.unpack_from("<Q", head, 32)[0])
    return [struct.unpack_from("<IIQQQQQQ", table, i * size) for i in range(len(table) // size)]


def _strings(fd: int, segments: "list[tuple[int, ...]]", values: "dict[int, int]") -> bytes:
    """The string table: its address is one in memory, and a segment says where that lies in the file."""
    address = values.get(STRTAB, -1)
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == LOAD and start <= address < start + size:
            return os.pread(fd, min(values.get(STRSZ, 0), TABLE_MAX), offset + address - start)
    raise ValueError("no string table")


def _text_at(strings: bytes, place: int) -> str:
    return strings[place : place + 100].split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _highest(versions: "set[bytes]") -> str:
    numbers = sorted(tuple(int(part) for part in v.split(b".")) for v in versions)
    return ".".join(map(str, numbers[-1])) if numbers else ""
