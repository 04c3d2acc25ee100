"""A web server on loopback with ranges, ETags and the faults that real ones have."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FileServer", "file_server"]

_PIECE = 64 * 1024


@dataclass
class FileServer:
    """`files` by path. Asked counts and ranges are kept in `asked` as (path, Range header).

    `redirects`: path -> Location. `break_after`: byte counts after which one answer each breaks off.
    `hold`: set to let answers go on beyond their first half. `etags` False: nothing names a version.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    hold: threading.Event | None = None
    etags: bool = True
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def etag(self, path: str) -> str:
        return f'"{hashlib.sha256(self.files[path]).hexdigest()[:16]}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        told = self.server.told
        told.asked.append((self.path, self.headers.get("Range")))
        if self.path in told.redirects:
            return self._short(302, {"Location": told.redirects[self.path]})
        if told.statuses:
            return self._short(told.statuses.pop(0), {})
        if self.path not in told.files:
            return self._short(404, {})
        return self._file(told, told.files[self.path])

    def _short(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": "0"}).items():
            self.send_header(name, value)
        self.end_headers()

    def _file(self, told: FileServer, body: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, told.etag(self.path))
        start = int(asked[1]) if asked and same and told.ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if told.etags:
            self.send_header("ETag", told.etag(self.path))
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self._send(told, body[start:])

    def _send(self, told: FileServer, body: bytes) -> None:
        most = told.break_after.pop(0) if told.break_after else len(body)
        for at in range(0, min(most, len(body)), _PIECE):
            if told.hold is not None and at >= len(body) // 2:
                told.hold.wait(60)
            with suppress(OSError):
                self.wfile.write(body[at : min(at + _PIECE, most)])
        if most < len(body):
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    told: FileServer

    def handle_error(self, *_: Any) -> None:
        """A client that was killed is what these tests are about."""


@contextmanager
def file_server(**files: bytes) -> Iterator[FileServer]:
    """Serves until the block ends; `files` by name without the slash."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.told = FileServer(files={f"/{name}": body for name, body in files.items()})
    server.told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.told
    finally:
        if server.told.hold is not None:
            server.told.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
