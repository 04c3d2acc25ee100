"""The moment before a server is stopped: its open pages save what they show, a few seconds at most."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from allotment_spawner.wire import LastCall

from allotment_hub.broker.services.notices import Boxes

__all__ = ["LastCalls"]


@dataclass
class _Call:
    id: str
    listeners: int
    answers: list[tuple[int, int]] = field(default_factory=list)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class LastCalls:
    """Held in memory only: a call that a crash interrupts is over, and the stop goes on without it."""

    def __init__(self, *, boxes: Boxes) -> None:
        self._boxes = boxes
        self._listening: Counter[str] = Counter()
        self._calls: dict[str, _Call] = {}

    @contextmanager
    def listening(self, lease_id: str) -> Iterator[None]:
        """While open, a last call of this session is answered by somebody."""
        self._listening[lease_id] += 1
        try:
            yield
        finally:
            self._listening[lease_id] -= 1
            if self._listening[lease_id] <= 0:
                del self._listening[lease_id]
                call = self._calls.get(lease_id)
                if call is not None:
                    # everybody who could answer has left: nobody waits for them
                    call.complete.set()

    async def call(self, lease_id: str, *, wait_s: float) -> LastCall:
        """Returns when every listener has answered or left, or after `wait_s`; at once without listeners."""
        listeners = self._listening[lease_id]
        if listeners == 0:
            return LastCall(listeners=0, answered=0, saved=0, failed=0)
        call = self._calls.get(lease_id)
        if call is None:
            call = self._calls[lease_id] = _Call(id=uuid4().hex, listeners=listeners)
            self._boxes.put(lease_id, ("last_call", {"id": call.id, "wait_s": wait_s}))
        try:
            async with asyncio.timeout(wait_s):
                await call.complete.wait()
        except TimeoutError:
            call.complete.set()
        finally:
            if self._calls.get(lease_id) is call:
                del self._calls[lease_id]
        return LastCall(
            listeners=call.listeners,
            answered=len(call.answers),
            saved=sum(saved for saved, _ in call.answers),
            failed=sum(failed for _, failed in call.answers),
        )

    def answer(self, lease_id: str, call_id: str, *, saved: int, failed: int) -> None:
        """One listener is done. Too late, or of another call: nothing."""
        call = self._calls.get(lease_id)
        if call is None or call.id != call_id or call.complete.is_set():
            return
        call.answers.append((saved, failed))
        if len(call.answers) >= call.listeners:
            call.complete.set()
