"""Serves the repositories under the vendors' host names, and fails on demand.

A vendor's address `https://HOST/PATH` is the file `HOST/PATH` of the folder. Faults are set from a test:
a path pattern and what happens to a request that matches.
"""

from __future__ import annotations

import fnmatch
import http.server
import os
import shutil
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.lab.authority import Authority

__all__ = ["Fault", "Server"]

Fault = Literal["missing", "cut", "hang", "error"]


class Server:
    """HTTP on 80 and HTTPS on 443 of the bridge's address."""

    def __init__(self, folders: Sequence[Path], authority: Authority, address: str) -> None:
        self.folders = tuple(folders)
        self.authority = authority
        self.requests: list[str] = []
        self.faults: dict[str, Fault] = {}
        """Pattern of `HOST/PATH` to what happens."""
        self.overlay: Path | None = None
        """A folder that is looked into first: a test's own repositories."""
        self.released = threading.Event()
        self.servers = [self._listen(address, 80, tls=False), self._listen(address, 443, tls=True)]

    def _listen(self, address: str, port: int, *, tls: bool) -> http.server.ThreadingHTTPServer:
        outer = self

        class Bound(_Request):
            owner = outer

        server = http.server.ThreadingHTTPServer((address, port), Bound, bind_and_activate=False)
        server.daemon_threads = True
        server.allow_reuse_address = True
        server.request_queue_size = 64
        server.server_bind()
        server.server_activate()
        if tls:
            # The handshake happens in the request's thread: a client that stalls must not stop the others.
            server.socket = self.authority.server_context().wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def find(self, where: str) -> Path | None:
        """The file for `HOST/PATH`, from the test's own folder first."""
        for top in (self.overlay, *self.folders):
            if top is not None and (top / where).is_file():
                return top / where
        return None

    def fault(self, where: str) -> Fault | None:
        return next((f for pattern, f in self.faults.items() if fnmatch.fnmatch(where, pattern)), None)

    def close(self) -> None:
        self.released.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()


class _Request(http.server.BaseHTTPRequestHandler):
    owner: Server
    # apt takes the unannounced close of HTTP/1.0 inside TLS for an attack.
    protocol_version = "HTTP/1.1"
    timeout = 120

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        where = (self.headers.get("Host") or "").partition(":")[0] + os.path.normpath(
            "/" + self.path.partition("?")[0]
        )
        where = (
            where.replace("%2b", "+")
            .replace("%2B", "+")
            .replace("%3a", ":")
            .replace("%3A", ":")
            .replace("%7e", "~")
        )
        self.owner.requests.append(where)
        fault = self.owner.fault(where)
        path = self.owner.find(where)
        if fault == "hang":
            self.owner.released.wait(600)
        if fault == "error":
            return self._say(503)
        if path is None or fault == "missing":
            return self._say(404)
        size = path.stat().st_size
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        if not body:
            return None
        with path.open("rb") as handle:
            if fault == "cut":
                self.wfile.write(handle.read(max(1, size // 2)))
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                shutil.copyfileobj(handle, self.wfile)
        return None

    def _say(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The list of requests is the log."""
