"""Identities taken out of a bundle: hosts, users, addresses, serials, UUIDs, tokens.

Each is replaced by a pseudonym that is stable inside the bundle, so that facts and verdict stay the
same. First the identities are gathered where a format says what they are (the host's name in
`uname`, a home directory, a serial's field), then they are replaced wherever they occur, and so are
texts that are an identity by their form (UUID, MAC, e-mail, token).

A name that is also a word of the stack (`ubuntu`, `vm`, `nvidia`) is replaced only in the places
that make it a name: elsewhere it is a fact. Four numbers with dots are an IPv4 address only where no
versions are written: `9.14.0.64` is a cuDNN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from doctor.core.evidence import Evidence, Item, Meta
from doctor.errors import EvidenceError
from doctor.evidence.identities import (
    ASSIGNED_SECRET,
    AUTHORED,
    BUILDER,
    COMMON,
    DMI_IDENTITY,
    EMAIL,
    HEX_RUN,
    HOME,
    JOURNAL,
    JOURNAL_HOST,
    LOGIN,
    MAC,
    MAC_IN_NAME,
    MACHINE_ID,
    MOK_LIST,
    NO_SERIAL,
    ORGANISATION,
    SCOPE_HOME,
    SECRET_NAME,
    SERIAL,
    TOKEN,
    UNAME,
    UNIT,
    URL,
    USER_NAME,
    UUID,
    V4,
    V6,
    VERSION_BEFORE,
    VERSIONED,
    decode,
    encode,
    is_public,
    of_item,
    of_text,
    stack_words,
    texts,
)
from doctor.evidence.places import CONTAINER, IN_PLACE, LOGIN_AT, POD_UUID, PROCESS, WELL_KNOWN, Place
from doctor.evidence.pseudonyms import Pseudonyms

__all__ = ["redact", "redact_text"]

#: A host has a few dozen. Each costs time on every text, so a bundle made to hold more is refused.
_IDENTITIES_MAX = 5000
#: Read as a journal: each line may begin with a time and the name of a host.
_TEXT_LOG = "command:journalctl-of-a-text"


def redact(evidence: Evidence) -> Evidence:
    """The same evidence without identities. Redacting twice gives what redacting once gave."""
    return _Redaction(evidence).result()


def redact_text(
    text: str, *, hostname: str = "", log: Iterable[str] = (), evidence: Evidence | None = None
) -> str:
    """A text made from evidence (a saved report) without identities; `hostname` goes wherever it stands.

    What lines of a `log` and the `evidence` of a host say are identities is replaced, too. Four numbers
    with dots become an address of the documentation ranges even where they are a version: a report does
    not say which lines hold versions.
    """
    names = {"document": encode(text)}
    if hostname:
        names["file:/proc/sys/kernel/hostname"] = hostname.encode()
    if lines := "\n".join(log):
        names[_TEXT_LOG] = encode(lines)
    items = tuple(Item(key=key, status="ok", path=key, bytes=len(data)) for key, data in names.items())
    if evidence is not None:
        items, names = evidence.meta.items + items, {**evidence.blobs, **names}
    return decode(redact(Evidence(Meta(items=items), names)).blobs["document"])


class _Redaction:
    """One bundle being redacted: what was gathered, and the table of pseudonyms."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._texts = list(texts(evidence))
        self._names = Pseudonyms(t.text for t in self._texts)
        self._owners = {item.path: item.key for item in evidence.meta.items if item.path}
        self._literals: dict[str, str] = {}
        stack = stack_words(self._texts, evidence.meta.items)
        for kind, value in self._gathered():
            is_word = len(value) < 3 or value.lower() in stack or (value.isdigit() and kind != "serial")
            if not is_word:
                self._literals.setdefault(value.lower(), self._named(kind, value))
        if len(self._literals) > _IDENTITIES_MAX:
            raise EvidenceError(
                f"the bundle names more than {_IDENTITIES_MAX} hosts, users and serials: refused"
            )
        words = sorted(self._literals, key=lambda w: (-len(w), w))
        self._any_literal = (
            re.compile(
                rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])", re.IGNORECASE
            )
            if words
            else None
        )

    def result(self) -> Evidence:
        blobs, renamed = {}, {}
        for name, data in self._evidence.blobs.items():
            renamed[name] = self._path(name)
            key = self._owner(name)
            blobs[renamed[name]] = encode(self._clean(key, decode(data)))
        meta = self._evidence.meta
        items = tuple(self._item(item, blobs, renamed) for item in meta.items)
        boot_id = self._clean("meta", meta.boot_id)
        sysroot = None if meta.sysroot is None else self._clean("meta", meta.sysroot)
        cleaned = msgspec.structs.replace(meta, items=items, boot_id=boot_id, sysroot=sysroot, redacted=True)
        return Evidence(cleaned, blobs, hand_made=self._evidence.hand_made)

    # --- gathering ---

    def _gathered(self) -> Iterator[tuple[str, str]]:
        """Identities that formats point out, as (kind, value)."""
        for item in self._evidence.meta.items:
            yield from of_item(item)
        for key, text in self._texts:
            yield from of_text(key, text)

    def _named(self, kind: str, value: str) -> str:
        if kind == "secret":
            return "redacted"
        if kind == "host" and "." in value:
            # The short name is the host; its domain goes with it.
            return self._names.name("host", value.split(".", 1)[0])
        return self._names.name(kind, value)

    def _owner(self, name: str) -> str:
        """The key of the item that a blob belongs to."""
        return self._owners.get(name) or self._owners.get(name.removesuffix(".err"), name)

    # --- replacing ---

    def _item(self, item: Item, blobs: dict[str, bytes], renamed: dict[str, str]) -> Item:
        def clean(text: str | None) -> str | None:
            return None if text is None else self._clean(item.key, text)

        path = None if item.path is None else renamed.get(item.path, self._path(item.path))
        size = item.bytes
        if item.path in renamed and size == len(self._evidence.blobs[item.path]):
            size = len(blobs[renamed[item.path]])
        return msgspec.structs.replace(
            item,
            key=self._path(item.key),
            scope=self._scope(item.scope),
            path=path,
            bytes=size,
            argv=tuple(self._clean(item.key, word) for word in item.argv),
            detail=clean(item.detail),
            value=self._value(item),
            owner=None if item.owner is None else self._ownership(item.owner),
            link=clean(item.link),
        )

    def _path(self, text: str) -> str:
        """A key, or a path inside the bundle: only what paths hold."""
        text = HOME.sub(self._home, SCOPE_HOME.sub(self._home, text))
        text = CONTAINER.sub(self._container, POD_UUID.sub(self._pod, UUID.sub(self._uuid, text)))
        return self._literal(text)

    def _scope(self, scope: str) -> str:
        """As a path, with the `@` that a scope has in the names of its bytes."""
        return self._path(f"@{scope}")[1:]

    def _value(self, item: Item) -> str | None:
        name = item.key.removeprefix("env:")
        if item.value is None or SECRET_NAME.search(name):
            return item.value and "redacted"
        if USER_NAME.fullmatch(name):
            return item.value and self._names.name("user", item.value)
        if name == "HOSTNAME":
            return item.value and self._named("host", item.value)
        return self._clean(item.key, item.value)

    def _ownership(self, owner: str) -> str:
        kinds = ("user", "group")
        return ":".join(
            name if name.lower() in COMMON or name.isdigit() or not name else self._names.name(kind, name)
            for kind, name in zip(kinds, owner.split(":", 1), strict=False)
        )

    def _clean(self, key: str, text: str) -> str:
        """The text with every identity replaced, by the rules of the item it belongs to."""
        if DMI_IDENTITY.search(key):
            return self._whole(text)
        if key == "file:/proc/sys/kernel/hostname":
            return re.sub(r"\S+", lambda m: self._named("host", m[0]), text)
        for pattern, replace in self._rules(key):
            text = pattern.sub(replace, text)
        return self._literal(text)

    def _rules(self, key: str) -> Iterable[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]:
        """Patterns in the order they apply: what contains another comes first."""
        if JOURNAL.match(key):
            yield JOURNAL_HOST, lambda m: m["head"] + self._named("host", m["host"])
        if key.startswith("command:uname"):
            yield UNAME, lambda m: m["head"] + self._named("host", m["host"])
        if MOK_LIST.match(key):
            yield HEX_RUN, lambda _: "redacted"
            yield ORGANISATION, lambda m: m["head"] + self._names.name("org", m["value"])
        yield TOKEN, lambda _: "redacted"
        yield ASSIGNED_SECRET, lambda m: m["head"] + "redacted"
        if not AUTHORED.match(key):
            for place in IN_PLACE:
                yield place.pattern, self._placed(place)
            yield URL, self._url
            yield EMAIL, self._email
            yield LOGIN_AT, self._login_at
        yield BUILDER, self._builder
        yield HOME, self._home
        yield LOGIN, lambda m: m["head"] + self._names.name("user", m["user"])
        for place in PROCESS:
            yield place.pattern, self._placed(place)
        yield SERIAL, self._serial
        yield UUID, self._uuid
        yield POD_UUID, self._pod
        yield CONTAINER, self._container
        yield MACHINE_ID, lambda m: self._names.name("serial", m[0])
        yield MAC, lambda m: self._names.mac(m[0])
        yield MAC_IN_NAME, lambda m: self._names.mac(":".join(re.findall("..", m[0]))).replace(":", "")
        if not VERSIONED.match(key):
            yield V4, self._v4
            yield V6, lambda m: self._names.address(m[0])

    def _literal(self, text: str) -> str:
        if self._any_literal is None:
            return text
        return self._any_literal.sub(lambda m: self._literals[m[0].lower()], text)

    def _whole(self, text: str) -> str:
        """Each word of a file that is nothing but an identity."""
        return re.sub(
            r"\S+", lambda m: UUID.sub(self._uuid, m[0]) if UUID.fullmatch(m[0]) else self._id(m[0]), text
        )

    def _id(self, value: str) -> str:
        return value if NO_SERIAL.fullmatch(value) else self._names.name("serial", value)

    def _uuid(self, match: re.Match[str]) -> str:
        return match["head"] + self._names.uuid(match["uuid"])

    def _email(self, match: re.Match[str]) -> str:
        user, _, domain = match[0].rpartition("@")
        if domain.lower() == "example.com" or is_public(domain) or UNIT.search(domain):
            return match[0]
        return f"{self._names.name('user', user)}@example.com"

    def _url(self, match: re.Match[str]) -> str:
        login = "redacted@" if match["login"] else ""
        host = match["host"]
        if not is_public(host) and host.lower() != "localhost":
            address = self._names.address(host)
            is_number = re.fullmatch(r"[0-9.]+", host) is not None
            host = address if is_number else self._named("host", host)
        return f"{match['scheme']}{login}{host}"

    def _builder(self, match: re.Match[str]) -> str:
        host = match["host"] and self._named("host", match["host"])
        return f"({self._names.name('user', match['user'])}@{host})"

    def _home(self, match: re.Match[str]) -> str:
        return match["head"] + self._names.name("user", match["user"])

    def _placed(self, place: Place) -> Callable[[re.Match[str]], str]:
        return lambda m: m["head"] + self._stand_in(place.kind, m["value"])

    def _stand_in(self, kind: str, value: str) -> str:
        """What stands for a value that its place says to be of this kind."""
        if kind == "serial":
            return value if UUID.fullmatch(value) else self._id(value)
        if kind == "mac":
            return self._names.mac(value).replace(":", value[2])
        if kind == "name":
            return self._names.initiator(value)
        if kind == "interface":
            prefix = next(p for p in ("veth", "cali", "lxc", "tap", "br") if value.startswith(p))
            return self._names.name(prefix, value)
        if kind == "process":
            return value if WELL_KNOWN.fullmatch(value) else self._names.name(kind, value)
        if value.lower() in COMMON or value.isdigit() or (kind in ("fqdn", "domain") and is_public(value)):
            return value
        if kind == "person" and not COMMON.isdisjoint(value.lower().split()):
            return value
        return self._named({"fqdn": "host", "person": "user"}.get(kind, kind), value)

    def _login_at(self, match: re.Match[str]) -> str:
        user, host = match["user"], match["host"]
        return f"{self._stand_in('user', user)}@{host and self._stand_in('host', host)}"

    def _pod(self, match: re.Match[str]) -> str:
        mark = match[1]
        return self._names.uuid(match[0].replace(mark, "-")).replace("-", mark)

    def _container(self, match: re.Match[str]) -> str:
        return self._names.container(match[0])

    def _serial(self, match: re.Match[str]) -> str:
        value = match["value"]
        return match["head"] + (value if UUID.fullmatch(value) else self._id(value))

    def _v4(self, match: re.Match[str]) -> str:
        if match["dashed"]:
            return self._names.address(match["dashed"].replace("-", ".")).replace(".", "-")
        before = match.string[max(0, match.start() - 16) : match.start()]
        return match[0] if VERSION_BEFORE.search(before) else self._names.address(match["v4"])
