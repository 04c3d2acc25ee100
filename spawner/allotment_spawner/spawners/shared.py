"""What all spawners and handlers of one hub share: the broker's client, clean-ups, one stream of changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, MutableMapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from allotment_spawner.core.errors import Refusal
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.cleanup import Cleaner

__all__ = ["Changes", "HubSide", "hub_side"]

_KEY = "allotment_hub_side"
_AGAIN_S = 1.0
_log = logging.getLogger(__name__)


class Changes:
    """Version numbers from ONE upstream stream to any number of pages; idle while nobody watches."""

    def __init__(self, *, broker: BrokerClient) -> None:
        self._broker = broker
        self._watchers: set[asyncio.Queue[int]] = set()
        self._reader: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncGenerator[int, None]:
        """Yield a version for each change; a slow watcher sees only the latest."""
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        self._watchers.add(queue)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)
            if not self._watchers and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def _read(self) -> None:
        while True:
            try:
                async with aclosing(self._broker.changes()) as changes:
                    async for version in changes:
                        self._tell(version)
            except Refusal as refusal:
                _log.info("no stream of changes from the broker: %s", refusal.code)
            await asyncio.sleep(_AGAIN_S)
            # what was missed meanwhile is unknown, so everybody looks again
            self._tell(0)

    def _tell(self, version: int) -> None:
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(version)


class HubSide:
    """One for a hub process, kept in its tornado settings."""

    def __init__(self, *, broker: BrokerClient) -> None:
        self.broker = broker
        self.cleaner = Cleaner()
        self.changes = Changes(broker=broker)
        self._tasks: set[asyncio.Task[None]] = set()

    def background(self, work: Coroutine[Any, Any, None], *, what: str) -> None:
        """Run `work` to its end; a failure is logged as failed `what`."""

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("%s failed", what, exc_info=error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)


def hub_side(settings: MutableMapping[str, Any], *, url: str, token_file: str) -> HubSide:
    """The hub's one `HubSide`, made at the first call."""
    side = settings.get(_KEY)
    if not isinstance(side, HubSide):
        side = settings[_KEY] = HubSide(broker=BrokerClient(url=url, token_file=Path(token_file)))
    return side
