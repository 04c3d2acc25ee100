"""A registry on loopback, and a slow line to it: Debian's docker-registry behind a throttling relay."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from allotment_testing.docker_daemon import wait_until

__all__ = ["Registry", "running_registry"]

_CONFIG = """\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {folder}/blobs}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_CHUNK = 32 * 1024


class Registry:
    """`name` is its HOST:PORT for people who push and pull. What it sends is counted, and slowed down to
    `bytes_per_s` while that is set."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inner = _free_port()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.bytes_per_s: float | None = None
        self.sent_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()

    def start(self) -> None:
        config = self._folder / "registry.yml"
        config.write_text(_CONFIG.format(folder=self._folder, port=self._inner))
        with (self._folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["docker-registry", "serve", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._answers, limit_s=30, what="the registry answers")
        threading.Thread(target=self._accept, name="registry-relay", daemon=True).start()

    def stop(self) -> None:
        """The registry is away; what is connected is cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self._closed.set()
        self.stop()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self._inner}/v2/", trust_env=False).status_code == 200
        return False

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                caller, _ = self._listening.accept()
            except OSError:
                continue
            try:
                inner = socket.create_connection(("127.0.0.1", self._inner))
            except OSError:
                caller.close()
                continue
            for one, other, slow in ((caller, inner, False), (inner, caller, True)):
                threading.Thread(target=self._copy, args=(one, other, slow), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if slow:
                    self.sent_bytes += len(chunk)
                    if self.bytes_per_s:
                        time.sleep(len(chunk) / self.bytes_per_s)
                target.sendall(chunk)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextlib.contextmanager
def running_registry(folder: Path) -> Iterator[Registry]:
    """In the caller's network."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Registry(folder)
    try:
        made.start()
        yield made
    finally:
        made.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
