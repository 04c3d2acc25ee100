"""What a container prints, piece by piece from the engine's own stream, with a limit for each silence."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["STDERR", "STDOUT", "attached", "frames"]

STDOUT: Final = 1
STDERR: Final = 2
_HEADER: Final = struct.Struct(">BxxxL")
_MOST: Final = 1 << 16


@contextmanager
def attached(client: Any, container: str) -> Iterator[Any]:
    """The open stream of a container that is not started yet; reads end after the client's own timeout.

    docker-py's reader waits for ever and leaves its socket open.
    """
    stream = client.attach_socket(container, params={"stdout": 1, "stderr": 1, "stream": 1})
    try:
        yield stream
    finally:
        # the connection left the client's pool when it was upgraded: nobody else closes it
        connection = getattr(stream, "_sock", None)
        response = getattr(stream, "_response", None)
        for each in (response, stream, connection):
            if each is not None:
                each.close()


def frames(stream: Any) -> Iterator[tuple[int, bytes]]:
    """(STDOUT or STDERR, piece) until the end. Raises OSError (TimeoutError) and EOFError in the middle."""
    while header := _header(stream):
        kind, left = _HEADER.unpack(header)
        while left > 0:
            piece = stream.read(min(left, _MOST))
            if not piece:
                raise EOFError("the engine ended the stream in the middle")
            left -= len(piece)
            yield kind, piece


def _header(stream: Any) -> bytes:
    """Empty at the end."""
    found = b""
    while len(found) < _HEADER.size:
        piece = stream.read(_HEADER.size - len(found))
        if not piece:
            if found:
                raise EOFError("the engine ended the stream in the middle")
            return b""
        found += piece
    return found
