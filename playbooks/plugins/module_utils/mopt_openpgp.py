"""Fingerprints of OpenPGP public keys, armoured or not, without gpg. Python 3.6 syntax."""

import base64
import hashlib
import re

__all__ = ["dearmoured", "fingerprints", "is_armoured"]

_BLOCK = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
_PUBLIC_KEYS = (6, 14)


def is_armoured(data):
    return b"-----BEGIN PGP PUBLIC KEY BLOCK-----" in data


def dearmoured(data):
    """The packets of every key block. Raises ValueError where there is none, or base64 is broken."""
    if not is_armoured(data):
        return data
    found = b""
    for block in _BLOCK.findall(data):
        lines = block.replace(b"\r", b"").split(b"\n")
        # Header lines end with an empty one; a line `=abcd` is the checksum.
        body = lines[lines.index(b"") + 1 :] if b"" in lines[:-1] else lines
        text = b"".join(line.strip() for line in body if not line.startswith(b"="))
        found += base64.b64decode(text, validate=True)
    if not found:
        raise ValueError("no complete key block")
    return found


def _packets(data):
    """`(tag, body)` of each packet. Raises ValueError where the lengths do not fit."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("no OpenPGP packet at byte %d" % at)
        at += 1
        try:
            if head & 0x40:
                tag = head & 0x3F
                size, used = _new_length(data, at)
            else:
                tag = (head >> 2) & 0xF
                used = 1 << (head & 3)
                if used == 8:
                    raise ValueError("a packet without a length")
                size = int.from_bytes(data[at : at + used], "big")
        except IndexError:
            raise ValueError("the key ends within a packet")
        at += used
        body = data[at : at + size]
        if len(body) != size:
            raise ValueError("the key ends within a packet")
        at += size
        yield tag, body


def _new_length(data, at):
    first = data[at]
    if first < 192:
        return first, 1
    if first < 224:
        return ((first - 192) << 8) + data[at + 1] + 192, 2
    if first == 255:
        return int.from_bytes(data[at + 1 : at + 5], "big"), 5
    raise ValueError("a packet in parts")


def fingerprints(data):
    """Fingerprints of the keys and their subkeys, in capitals. Raises ValueError for what is no key."""
    found = []
    for tag, body in _packets(dearmoured(data)):
        if tag not in _PUBLIC_KEYS:
            continue
        if body[:1] == b"\x04":
            digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)
        elif body[:1] == b"\x06":
            digest = hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body)
        else:
            continue
        found.append(digest.hexdigest().upper())
    if not found:
        raise ValueError("no public key in it")
    return found
