"""Whether a server answers: asked every 0.1 s, because the hub's own back-off leaves CPUs idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from allotment_spawner.core.errors import StartFailed

__all__ = ["INTERVAL_S", "answers", "wait_until_answers"]

INTERVAL_S: Final = 0.1
_ANSWER_S: Final = 5.0
_ALIVE_EVERY_S: Final = 1.0


async def answers(url: str) -> bool:
    """Whether an HTTP server says anything but a 5xx below `url`, as the hub itself judges.

    Plain asyncio instead of an HTTP client: ten starts at once ask a hundred times a second on
    CPUs that the servers need, and nearly all of it is a refused connection.
    """
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/api"
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            with closing(writer):
                if parts.scheme == "https":
                    # only the hub has the certificates; it asks once more itself
                    return True
                request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode("ascii"))
                words = (await reader.readline()).split()
    except (OSError, TimeoutError, ValueError):
        return False
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return False
    return int(words[1]) < HTTPStatus.INTERNAL_SERVER_ERROR


async def wait_until_answers(
    url: Callable[[], Awaitable[str]], exited: Callable[[], Awaitable[object | None]], *, limit_s: float
) -> str:
    """The URL once its server answers. `exited` says why the workload is gone, None while it runs.

    Raises `StartFailed` when it exits first or stays silent for `limit_s` seconds.
    """
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(limit_s):
            where = await url()
            looked = clock()
            while not await answers(where):
                # by the clock: connecting to an address that is gone takes seconds each time
                look = clock() - looked >= _ALIVE_EVERY_S
                looked = clock() if look else looked
                if look and (status := await exited()) is not None:
                    raise StartFailed(
                        f"The server stopped while it started ({status}).",
                        "Start again; tell an operator if it stays. The server's log says more.",
                    )
                await asyncio.sleep(INTERVAL_S)
            return where
    except TimeoutError:
        raise StartFailed(
            f"The server did not answer within {limit_s:.0f} seconds.",
            "Start again; tell an operator if it stays. The server's log says more.",
        ) from None
