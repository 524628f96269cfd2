"""Questions beside the load: models, metrics, the mock's truth. HTTP of the standard library, bounded."""

from __future__ import annotations

import http.client
import socket

from optimize.load.target import Address, tls_context

__all__ = ["ANSWER_BYTES_MAX", "ask"]

#: /metrics of an engine has 100 kB; the truth of a calibration 30 bytes a request.
ANSWER_BYTES_MAX = 32 * 1024 * 1024


class _Unix(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(
    address: Address, path: str, *, key: str = "", ca_file: str = "", timeout_s: float = 10.0
) -> tuple[int, bytes]:
    """Status code and body of a GET. Raises OSError, or http.client.HTTPException for what is not HTTP.

    No proxy is used and no redirect followed: the key goes to the server that was named, and nowhere else.
    """
    connection: http.client.HTTPConnection
    if address.unix:
        connection = _Unix(address.unix, timeout_s)
    elif address.is_tls:
        context = tls_context(ca_file)
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
