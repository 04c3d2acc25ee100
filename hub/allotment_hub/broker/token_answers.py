"""What the hub said about tokens, remembered for seconds: bounded, by hash, one question at a time each."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

__all__ = ["TokenAnswers"]

Model = Mapping[str, Any]
_KNOWN_FOR: Final = timedelta(seconds=30)
_UNKNOWN_FOR: Final = timedelta(seconds=5)
_AT_ONCE: Final = 16


class TokenAnswers:
    """`answer(token)` gives the hub's model, or None for a token that it does not know.

    A known token is believed at most 30 s (a revoked one works no longer than that), an unknown one
    5 s. Raises what `ask` raises; failures are not remembered. Tokens are kept as keyed hashes only.
    """

    def __init__(
        self,
        *,
        ask: Callable[[str], Awaitable[Model | None]],
        clock: Callable[[], datetime],
        capacity: int = 4096,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._capacity = capacity
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._key = secrets.token_bytes(32)
        self._answers: OrderedDict[bytes, tuple[datetime, Model | None]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Model | None]] = {}

    async def answer(self, token: str) -> Model | None:
        digest = hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()
        known = self._answers.get(digest)
        if known is not None and self._clock() < known[0]:
            self._answers.move_to_end(digest)
            return known[1]
        # A notebook opens many calls at once with one token: they share one question. It runs as a
        # task of its own, so that a caller who hangs up does not fail the others.
        task = self._asking.get(digest)
        if task is None:
            task = asyncio.ensure_future(self._ask_hub(digest, token))
            self._asking[digest] = task
            task.add_done_callback(lambda done: self._asked(digest, done))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Ask again for every token."""
        self._answers.clear()

    async def _ask_hub(self, digest: bytes, token: str) -> Model | None:
        # A flood of made-up tokens may not take all the connections that the broker has to the hub.
        async with self._limit:
            model = await self._ask(token)
        kept = _UNKNOWN_FOR if model is None else _KNOWN_FOR
        self._answers[digest] = (self._clock() + kept, model)
        self._answers.move_to_end(digest)
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
        return model

    def _asked(self, digest: bytes, task: asyncio.Task[Model | None]) -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            task.exception()  # read here too: every waiter may have hung up
