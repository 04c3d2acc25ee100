"""Runs the ASGI application until a signal, then ends its streams and stops politely."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from allotment_hub.broker.streams import Streams

__all__ = ["Server", "bind"]

GRACE_S = 5
KEEP_ALIVE_S = 75


class Server(uvicorn.Server):
    """`stop()` ends the streams first: uvicorn waits for open connections, and a stream never ends itself."""

    def __init__(self, app: FastAPI, *, streams: Streams) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._streams = streams

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn raises the signal again when it is done, before our own clean-up: we listen ourselves."""
        loop = asyncio.get_running_loop()
        in_main = threading.current_thread() is threading.main_thread()
        heard = (signal.SIGTERM, signal.SIGINT) if in_main else ()
        for number in heard:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; `OSError` at once when somebody else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.set_inheritable(False)
    return bound
