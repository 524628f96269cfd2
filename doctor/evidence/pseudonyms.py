"""Names that stand for identities: the same one for the same identity throughout a bundle.

Shapes stay what readers expect: a UUID stays a UUID, and addresses come from the ranges set aside
for documentation (RFC 5737, RFC 3849, RFC 7042). Whatever already has such a shape is taken for a
pseudonym and kept, so that redacting twice changes nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

__all__ = ["Pseudonyms"]

#: UUIDs that name a kind of EFI variable, not a machine: the same ones everywhere.
_PUBLIC_UUIDS = {
    "8be4df61-93ca-11d2-aa0d-00e098032b8c",  # EFI global variables (UEFI specification, 3.3)
    "605dab50-e046-4300-abb6-3dd810dd8b23",  # shim
    "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",  # systemd-boot loader
}

_OURS = re.compile(
    r"(?:host|user|group|serial|process|domain|org|veth|cali|lxc|tap|br)-\d{1,6}|redacted"
    r"|999000\d{7}|00000000-0000-0000-0000-\d{12}"
    r"|00:00:5[eE]:00:53:[0-9a-fA-F]{2}|02:00:5[eE](?::[0-9a-fA-F]{2}){3}"
)
_IN_TEXT = re.compile(
    rf"(?<![0-9A-Za-z-])(?:{_OURS.pattern}|(?:192\.0\.2|198\.51\.100|203\.0\.113|198\.1[89]\.\d{{1,3}})\.\d{{1,3}}"
    r"|2001:db8:[0-9a-f:]{1,32})(?![0-9A-Za-z])"
)

#: The same behind another word (`pod…`, `docker-…`) or with other separators: group 1 a MAC, 2 a UUID.
_RESHAPED = re.compile(
    r"(?<=-)((?:00-00-5e-00-53|02-00-5e-[0-9a-f]{2}-[0-9a-f]{2})-[0-9a-f]{2})(?![0-9a-z-])"
    r"|(00000000[-_]0000[-_]0000[-_]0000[-_]\d{12})|(?<![0-9A-Za-z])0{56}\d{8}(?![0-9A-Za-z])"
)

#: The name authority that RFC 3720 uses in its examples.
_EXAMPLE_AUTHORITY = "2001-04.com.example:"

_V4_RANGES = tuple(
    ipaddress.ip_network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")
)
_V6_RANGE = ipaddress.ip_network("2001:db8::/32")


class Pseudonyms:
    """A growing table identity → pseudonym. `texts` are searched for pseudonyms already in use."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._taken: set[str] = set()
        for text in texts:
            self._taken.update(_IN_TEXT.findall(text))
            for match in _RESHAPED.finditer(text):
                mac, uuid = match.groups()
                self._taken.add(mac.replace("-", ":") if mac else (uuid or match[0]).replace("_", "-"))

    def name(self, kind: str, value: str) -> str:
        """`host-1`, `user-2`, `serial-1`, …; case tells users apart, not hosts."""
        if _OURS.fullmatch(value):
            return value
        if kind == "serial" and value.isdigit():
            # A number stays a number: in JSON it may stand without quotes. NVIDIA's have 13 digits.
            return self._new(kind, value, lambda n: f"999000{n:07d}")
        same = value.lower() if kind in ("host", "domain") else value
        return self._new(kind, same, lambda n: f"{kind}-{n}")

    def uuid(self, value: str) -> str:
        """The UUID's stand-in: `00000000-0000-0000-0000-000000000001`."""
        low = value.lower()
        if low in _PUBLIC_UUIDS or _OURS.fullmatch(low):
            return value
        return self._new("uuid", low, lambda n: f"00000000-0000-0000-0000-{n:012d}")

    def mac(self, value: str) -> str:
        """`00:00:5e:00:53:01`; after 255 of them, locally administered ones."""
        low = value.lower().replace("-", ":")
        if _OURS.fullmatch(low) or low in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"):
            return value
        return self._new("mac", low, _mac)

    def container(self, value: str) -> str:
        """64 digits for the 64 of a container's id."""
        if re.fullmatch(r"0{56}\d{8}", value):
            return value
        return self._new("container", value, lambda n: f"{n:064d}")

    def initiator(self, value: str) -> str:
        """The rest of an iSCSI or NVMe name: `2001-04.com.example:serial-1`."""
        if value.startswith(_EXAMPLE_AUTHORITY):
            return value
        return _EXAMPLE_AUTHORITY + self.name("serial", value)

    def address(self, text: str) -> str:
        """The stand-in of an IP address; loopback, masks and what is no address stay as they are."""
        try:
            found = ipaddress.ip_address(text)
        except ValueError:
            return text
        if found.is_loopback or found.is_unspecified or found.is_multicast or text.startswith("255."):
            return text
        if isinstance(found, ipaddress.IPv6Address):
            return (
                text
                if found in _V6_RANGE
                else self._new("v6", str(found), lambda n: str(_V6_RANGE.network_address + n))
            )
        return text if any(found in r for r in _V4_RANGES) else self._new("v4", text, _v4)

    def _new(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        known = self._given.get((kind, value))
        while known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            made = make(self._counts[kind])
            known = None if made in self._taken else made
        self._given[(kind, value)] = known
        return known


def _mac(number: int) -> str:
    if number < 0x100:
        return f"00:00:5e:00:53:{number:02x}"
    return "02:00:5e:" + ":".join(f"{number >> shift & 0xFF:02x}" for shift in (16, 8, 0))


def _v4(number: int) -> str:
    """The address with this number over all ranges, each without its first and last."""
    for network in _V4_RANGES:
        room = network.num_addresses - 2
        if number <= room:
            return str(network.network_address + number)
        number -= room
    return "192.0.2.0"
