"""Server-sent events: keep-alives, a limit per caller, an end when the client or the broker goes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from allotment_hub.broker.identity import Caller
from allotment_hub.broker.problems import TooManyStreams

__all__ = ["EventStream", "Streams"]

_PER_PERSON: Final = 24
_PER_SERVICE: Final = 4096
Event = tuple[str, Mapping[str, Any] | str]
"""(name, data); a str is JSON already."""
_log = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """A stream that calls `over` when it has ended (it may be called twice), also when its client left before
    it began."""

    media_type = "text/event-stream"
    over: Callable[[], None] = staticmethod(lambda: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.over()


class Streams:
    """All open streams of this broker. One more than a caller may have raises `TooManyStreams`."""

    def __init__(self, *, keep_alive_s: float = 10.0, per_person: int = _PER_PERSON) -> None:
        self._keep_alive_s = keep_alive_s
        self._per_person = per_person
        self._open: Counter[tuple[str, str]] = Counter()
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def open_streams(self) -> int:
        return self._open.total()

    def close(self) -> None:
        """End every stream, so that a server that waits for its connections can stop."""
        for pump in list(self._pumps):
            pump.cancel()

    async def response(self, caller: Caller, events: AsyncIterator[Event]) -> EventStream:
        """A streaming answer of (event name, JSON data) pairs.

        Waits for the first one, so that a refusal still becomes a problem with its own status.
        """
        limit = self._per_person if caller.kind == "person" else _PER_SERVICE
        if self._open[(caller.kind, caller.name)] >= limit:
            raise TooManyStreams(
                "You have too many live views open.", "Close some of Allotment's pages and try again."
            )
        # counted before anything is awaited: many that come together must not all find room
        with ExitStack() as count:
            count.enter_context(self._counted(caller))
            first = await anext(events, None)
            over = count.pop_all().close
        stream = EventStream(self._body(first, events, over), headers={"X-Accel-Buffering": "no"})
        stream.over = over
        return stream

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        key = (caller.kind, caller.name)
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if self._open[key] <= 0:
                del self._open[key]

    async def _body(
        self, first: Event | None, events: AsyncIterator[Event], over: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue(maxsize=1)
        # The source runs in a task of its own: when the client goes, this generator is cancelled in
        # the middle of an await and could not await the source's own clean-up any more.
        pump = asyncio.ensure_future(_pump(events, queue))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        pump.add_done_callback(lambda done: _pumped(done, queue))
        try:
            if first is not None:
                yield _encoded(first)
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), self._keep_alive_s)
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
                    continue
                if event is None:
                    return
                yield _encoded(event)
        finally:
            pump.cancel()
            over()


def _encoded(event: Event) -> bytes:
    name, data = event
    return format_sse_event(event=name, data_str=data if isinstance(data, str) else json.dumps(data))


async def _pump(events: AsyncIterator[Event], queue: asyncio.Queue[Event | None]) -> None:
    try:
        async for event in events:
            await queue.put(event)
        await queue.put(None)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _pumped(pump: asyncio.Task[None], queue: asyncio.Queue[Event | None]) -> None:
    """Ends the stream of a pump that was cancelled or broke; the end takes an unread event's place,
    because the reader may be slow. The status line is long gone: the client asks again."""
    error = None if pump.cancelled() else pump.exception()
    if error is not None:
        _log.error("a stream broke", exc_info=error)
    if pump.cancelled() or error is not None:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
