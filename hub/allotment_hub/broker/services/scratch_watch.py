"""What sessions are told of their scratch space: that it is full, or that there is none."""

from __future__ import annotations

from typing import Final

from allotment_spawner.disk.base import FolderVerbs, Usage

from allotment_hub.broker.services.notices import Notices, Words
from allotment_hub.broker.store.records import Lease

__all__ = ["ScratchWatch"]

_GIB: Final = 2**30
_FULL: Final = 0.95
_WHO: Final = "allotment"


class ScratchWatch:
    """Each session once."""

    def __init__(self, *, size_bytes: int, folders: FolderVerbs, notices: Notices) -> None:
        self._size = size_bytes
        self._folders = folders
        self._notices = notices
        self._told: set[str] = set()

    def forget(self, lease: Lease) -> None:
        """It is over."""
        self._told.discard(lease.id)

    async def fullness(self, lease: Lease) -> None:
        """Tell whoever holds more than is allowed, or nearly so where more is refused. Raises a `Refusal`."""
        if lease.id in self._told:
            return
        usage = await self._folders.folder_usage("scratch", lease.id)
        if usage is None or usage.used_bytes is None:
            return
        words = self._words(usage, usage.used_bytes)
        if words is not None:
            await self._tell(lease, words)

    async def none(self, lease: Lease, why: str) -> None:
        """Tell a session that started without one."""
        if lease.id not in self._told:
            words = Words(
                "info",
                f"This session has no scratch space of its own: {why}",
                "Keep large temporary files in your home, and tell an operator.",
            )
            await self._tell(lease, words)

    async def _tell(self, lease: Lease, words: Words) -> None:
        self._told.add(lease.id)
        await self._notices.tell(lease.id, words, made_by=_WHO)

    def _words(self, usage: Usage, used_bytes: int) -> Words | None:
        share = f"{used_bytes / _GIB:.1f} of {self._size / _GIB:g} GiB"
        if used_bytes > self._size:
            return Words(
                "warning",
                f"Your session's scratch space holds more than it may: {share}.",
                "Delete what you do not need in /scratch and /tmp; a full disk stops everybody's work.",
            )
        if usage.enforced and used_bytes >= _FULL * self._size:
            return Words(
                "warning",
                f"Your session's scratch space is nearly full: {share}.",
                "Delete what you do not need in /scratch and /tmp, or programs there fail soon.",
            )
        return None
