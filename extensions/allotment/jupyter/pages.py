"""The browser pages that show this session: they are told everything, and asked to save before a stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from allotment.jupyter.sse import Event

__all__ = ["Page", "Pages"]

_BEFORE_S = 0.5
"""The pages' answers must be on their way to the broker before its own wait is over."""


class Page(Protocol):
    """An open page; `send` does not wait and does not fail when the page has gone."""

    def send(self, message: dict[str, Any]) -> None: ...


@dataclass
class _Call:
    waiting: set[Page]
    saved: int = 0
    failed: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)


Follow = Callable[[], AsyncIterator[Event]]
Answer = Callable[[str, int, int], Awaitable[None]]
"""Answer a last call: (its id, documents saved, documents that could not be)."""


class Pages:
    """Follows the broker only while a page is open: a session that nobody looks at costs nothing, and its
    stop need not wait for an answer that nobody could give."""

    def __init__(self, *, follow: Follow, answer: Answer, failed: Callable[[BaseException], None]) -> None:
        self._follow = follow
        self._answer = answer
        self._failed = failed
        self._pages: set[Page] = set()
        self._known: dict[str, Any] | None = None
        self._calls: dict[str, _Call] = {}
        self._reader: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def enter(self, page: Page) -> None:
        """The page learns at once what is known."""
        self._pages.add(page)
        if self._known is not None:
            page.send(self._known)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read())
            self._reader.add_done_callback(self._ended)

    def leave(self, page: Page) -> None:
        self._pages.discard(page)
        for call in self._calls.values():
            _done(call, page)
        if not self._pages and self._reader is not None:
            self._reader.cancel()
            self._reader, self._known = None, None

    def answer(self, page: Page, call_id: str, *, saved: int, failed: int) -> None:
        """A page has saved what it shows. Of an unknown call: nothing."""
        call = self._calls.get(call_id)
        if call is not None and page in call.waiting:
            call.saved += saved
            call.failed += failed
            _done(call, page)

    async def close(self) -> None:
        tasks = [*self._answering, *([self._reader] if self._reader is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        async with aclosing(self._follow()) as found:  # type: ignore[type-var]
            async for name, data in found:
                self._tell(name, data)

    def _tell(self, name: str, data: dict[str, Any]) -> None:
        message = {"type": name, **data}
        if name == "notices":
            self._known = message
        elif self._known is not None and name in ("notice", "withdrawn"):
            self._known = _updated(self._known, name, data)
        if name == "last_call":
            self._call(str(data.get("id", "")), float(data.get("wait_s", 0.0)))
        for page in list(self._pages):
            page.send(message)

    def _call(self, call_id: str, wait_s: float) -> None:
        call = self._calls[call_id] = _Call(waiting=set(self._pages))
        task = asyncio.get_running_loop().create_task(self._collect(call_id, call, wait_s))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        task.add_done_callback(self._ended)

    async def _collect(self, call_id: str, call: _Call, wait_s: float) -> None:
        try:
            async with asyncio.timeout(max(wait_s - _BEFORE_S, 0.1)):
                if call.waiting:
                    await call.complete.wait()
        except TimeoutError:
            call.failed += len(call.waiting)
        finally:
            del self._calls[call_id]
        await self._answer(call_id, call.saved, call.failed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)


def _done(call: _Call, page: Page) -> None:
    call.waiting.discard(page)
    if not call.waiting:
        call.complete.set()


def _updated(known: dict[str, Any], name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The list as a page that opens now must see it."""
    found = [one for one in known.get("list", []) if one.get("id") != data.get("id")]
    return {**known, "list": [*found, data] if name == "notice" else found}
