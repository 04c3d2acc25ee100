"""The agent's folder verbs: in threads of each root's own, each with a deadline."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, get_args

from allotment_spawner.core.errors import AgentUnavailable, Refusal
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.disk.base import Folder, RootName, RootState, Usage
from allotment_spawner.disk.keeper import FolderKeeper

__all__ = ["Folders"]

_log = logging.getLogger("allotment.agent")
_T = TypeVar("_T")
_THREADS = 4


class _Closing(Exception):
    """The agent stops: what is left of a wipe is done at its next start."""


class Folders:
    """`FolderVerbs` over a keeper. One change of a root at a time, so that a repeated call finds a finished
    one; measuring and wiping go on beside it. Homes on a server that hangs hold up no scratch folder."""

    def __init__(self, *, keeper: FolderKeeper, deadline_s: float = 45.0) -> None:
        self._keeper = keeper
        self._deadline_s = deadline_s
        roots: tuple[RootName, ...] = get_args(RootName)
        self._changing = {root: threading.Lock() for root in roots}
        self._threads = {root: DaemonThreads(_THREADS, name=f"folders-{root}") for root in roots}
        self._wiping = ThreadPoolExecutor(1, thread_name_prefix="wipe")
        self._closing = threading.Event()

    async def make_folder(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder:
        def work() -> Folder:
            with self._changing[root]:
                return self._keeper.make(root, name, uid=uid, gid=gid, mode=mode, limit_bytes=limit_bytes)

        return await self._do("make_folder", root, work)

    async def remove_folder(self, root: RootName, name: str) -> None:
        def work() -> None:
            with self._changing[root]:
                self._keeper.remove(root, name)

        await self._do("remove_folder", root, work)
        self.sweep()

    async def folder_usage(self, root: RootName, name: str) -> Usage | None:
        return await self._do("folder_usage", root, lambda: self._keeper.usage(root, name))

    async def list_folders(self, root: RootName) -> list[str]:
        return await self._do("list_folders", root, lambda: self._keeper.names(root))

    async def folder_root(self, root: RootName) -> RootState:
        return await self._do("folder_root", root, lambda: self._keeper.state(root))

    def sweep(self) -> None:
        """Wipe in the background what was removed."""
        if not self._closing.is_set():
            self._wiping.submit(self._sweep)

    def close(self) -> None:
        """A wipe that runs stops after its next thousand names."""
        self._closing.set()
        self._wiping.shutdown(wait=False, cancel_futures=True)

    def _sweep(self) -> None:
        try:
            self._keeper.sweep(between=self._pause)
        except _Closing:
            return
        except Refusal as refusal:
            _log.warning("nothing is wiped: %s", refusal.sentence)
        except Exception:  # noqa: BLE001 - nobody waits for this thread's answer
            _log.exception("wiping failed; the next removal tries again")

    def _pause(self) -> None:
        if self._closing.is_set():
            raise _Closing

    async def _do(self, verb: str, root: RootName, work: Callable[[], _T]) -> _T:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._threads[root].run(work)
        except TimeoutError as error:
            raise AgentUnavailable(
                f"The agent's {verb} did not end within {self._deadline_s:g} s: that disk is slow or hangs.",
                "Try again in a minute; if it goes on, tell your operator.",
                verb=verb,
            ) from error
