"""Where requests go: the URL taken apart, the key kept apart from it. Pure but for `tls_context`."""

from __future__ import annotations

import ssl
from urllib.parse import unquote, urlsplit

import msgspec

from optimize.load.bodies import PATHS, Endpoint

__all__ = ["Address", "AddressError", "check_key", "parse_url", "tls_context"]

_KEY_CHARS_MAX = 8192


class AddressError(ValueError):
    """The URL or the key cannot be used; `hint` names a next step. Never carries a key or a password."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint's server: TCP, TLS, or a unix socket; `base` is the path before `/chat/completions`."""

    is_tls: bool = False
    host: str = "localhost"
    port: int = 0
    unix: str = ""
    base: str = "/v1"
    #: the endpoint that the URL names, or empty
    endpoint: str = ""

    @property
    def url(self) -> str:
        """For people and reports: what was given, without anything secret (nothing secret is accepted)."""
        if self.unix:
            return f"unix://{self.unix}"
        scheme = "https" if self.is_tls else "http"
        return f"{scheme}://{self.authority}{self.base}"

    @property
    def authority(self) -> str:
        """The Host header."""
        if self.unix:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def root(self) -> str:
        """The path above `/v1`, where `/metrics` is."""
        return self.base.removesuffix("/v1")

    @property
    def is_local(self) -> bool:
        """Whether it is this host, as far as the name tells."""
        return bool(self.unix) or self.host in ("localhost", "::1") or self.host.startswith("127.")


def parse_url(text: str) -> Address:
    """`http://host:8000`, with `/v1` or an endpoint behind it; `unix:///run/x.sock`. Raises AddressError."""
    if text.startswith(("unix:", "/")):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/") or "\0" in path:
            raise AddressError("a unix socket has an absolute path", "for example `unix:///run/vllm.sock`")
        return Address(unix=path)
    parts, port = _split(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        hint = f"for example `http://{text}`" if "//" not in text and "@" not in text else ""
        raise AddressError("the URL names no server: it begins with http://, https:// or unix://", hint)
    if parts.username is not None or parts.password is not None:
        raise AddressError(
            "the URL carries a user name or a password, which other users of this host can read",
            "keys: `--api-key-env NAME` or `--api-key-file FILE`",
        )
    if parts.query or parts.fragment:
        raise AddressError("the URL has a query or a fragment; an endpoint has none")
    if any(not 0x21 <= ord(char) < 0x7F for char in parts.netloc + parts.path):
        raise AddressError("the URL has spaces, control characters, or characters beyond ASCII")
    base, endpoint = _base(parts.path)
    is_tls = parts.scheme == "https"
    port = port or (443 if is_tls else 80)
    return Address(is_tls=is_tls, host=unquote(parts.hostname), port=port, base=base, endpoint=endpoint)


def _split(text: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - SplitResult and its port
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"the URL cannot be read: {error}") from None
    return parts, port


def _base(path: str) -> tuple[str, str]:
    path = path.rstrip("/")
    found: Endpoint | str = ""
    for endpoint in ("chat", "completions", "embeddings"):
        if path.endswith(PATHS[endpoint]):
            path, found = path.removesuffix(PATHS[endpoint]), endpoint
            break
    return (path or ("" if found else "/v1")), found


def check_key(text: str) -> str:
    """The key, stripped. Raises AddressError for what no header may carry; the message does not show it."""
    key = text.strip()
    if len(key) > _KEY_CHARS_MAX or any(not 0x21 <= ord(char) < 0x7F for char in key):
        raise AddressError("the key is no printable ASCII word: is the file or the variable the right one?")
    return key


def tls_context(ca_file: str = "") -> ssl.SSLContext:
    """Verification as the system has it, plus the authorities in a PEM file; it cannot be switched off.

    Raises OSError and ssl.SSLError for a file that is not there or no PEM.
    """
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    return context
