"""Free space of the disks that Allotment writes on, and the floor below which nothing new is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from allotment_spawner.core.errors import DiskFull, Refusal
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.disk.base import RootState
from allotment_spawner.disk.space import Space, space_of
from allotment_spawner.wire import Launch
from pydantic import BaseModel, ConfigDict

from allotment_hub.broker.services.changes import Changes
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.store.records import Lease

__all__ = ["Disk", "DiskApi", "DiskView", "Place", "PlaceView", "Places"]

_log = logging.getLogger(__name__)
_GIB: Final = 2**30
_LOOK_EVERY_S: Final = 5.0
_LOOK_LIMIT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """A folder by its use. `guarded`: nothing new is started while its disk is below the floor."""

    name: str
    what: str
    path: Path
    guarded: bool = True


Places = Callable[[], Awaitable[list[Place]]]
"""Asked at each look: where the engine keeps its data is known only while it answers."""


class PlaceView(BaseModel):
    """One folder. None is unknown."""

    model_config = ConfigDict(frozen=True)

    name: str
    path: str
    free_bytes: int | None
    total_bytes: int | None
    guarded: bool
    low: bool


class DiskView(BaseModel):
    """`ok` False: nothing new is started (`reason` says why). `quota`: what limits scratch folders."""

    model_config = ConfigDict(frozen=True)

    ok: bool
    reason: str | None
    floor_bytes: int
    places: tuple[PlaceView, ...]
    quota: str | None = None
    quota_note: str | None = None
    leftovers: int | None = None
    """Scratch folders of ended sessions that are not wiped yet."""


class DiskApi(Protocol):
    async def view(self) -> DiskView:
        """For operators; looks now."""

    def reason(self) -> str | None:
        """Why nothing new is started, as of the last look; None when there is room."""


class Disk:
    """The part "disk floor" of a start. Looks on its own every few seconds, and at each request."""

    needs_groups = False

    def __init__(
        self,
        *,
        floor_bytes: int,
        places: Places,
        changes: Changes,
        kick: Callable[[], object],
        scratch_root: Callable[[], Awaitable[RootState | None]],
        space: Callable[[Path], Space | None] = space_of,
    ) -> None:
        """`scratch_root`: what limits scratch folders; None where there are none, or it is unknown."""
        self._floor = floor_bytes
        self._places = places
        self._changes = changes
        self._kick = kick
        self._scratch_root = scratch_root
        self._space = space
        self._threads: dict[Path, DaemonThreads] = {}
        """One a place: a disk that hangs holds up one look at itself, and no other disk."""
        self._seen: list[tuple[Place, Space | None]] = []
        self._low: str | None = None

    async def look(self) -> None:
        """Read the disks; one that hangs (a network's) is unknown, and unknown refuses nobody."""
        places = await self._places()
        found = await asyncio.gather(*(self._read(place.path) for place in places))
        self._seen = list(zip(places, found, strict=True))
        was, self._low = self._low, self._why_low()
        if (was is None) != (self._low is None):
            _log.warning(self._low or "the disks have room again")
            self._changes.bump()
            self._kick()

    async def _read(self, path: Path) -> Space | None:
        thread = self._threads.setdefault(path, DaemonThreads(1, name="disk-space"))
        try:
            async with asyncio.timeout(_LOOK_LIMIT_S):
                return await thread.run(lambda: self._space(path))
        except TimeoutError:
            return None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - one bad look must not stop all later ones
                _log.exception("the disks could not be looked at; the next look tries again")
            await asyncio.sleep(_LOOK_EVERY_S)

    def reason(self) -> str | None:
        """Why nothing new is started, as of the last look; None when there is room."""
        return self._low

    async def view(self) -> DiskView:
        """For operators; looks now."""
        await self.look()
        root = await self._scratch_root()
        return DiskView(
            ok=self._low is None,
            reason=self._low,
            floor_bytes=self._floor,
            places=tuple(self._view(place, space) for place, space in self._seen),
            quota=None if root is None else root.quota,
            quota_note=None if root is None else root.note,
            leftovers=None if root is None else root.leftovers,
        )

    # Extra
    async def check(self, ask: Ask) -> Mapping[str, Any]:
        await self.look()
        if self._low is not None:
            raise DiskFull(
                self._low,
                "Nothing is wrong with your files. Try again later, or ask an operator to make room.",
            )
        return {}

    def ready(self, lease: Lease) -> bool:
        return self._low is None

    def problem(self, lease: Lease) -> Refusal | None:
        return None

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        return launch

    def _is_low(self, place: Place, space: Space | None) -> bool:
        return place.guarded and space is not None and space.free_bytes < self._floor

    def _why_low(self) -> str | None:
        for place, space in self._seen:
            if space is not None and self._is_low(place, space):
                return (
                    f"The disk for {place.what} has {space.free_bytes / _GIB:.1f} GiB left; below "
                    f"{self._floor / _GIB:g} GiB nothing new is started, so that what runs is not harmed."
                )
        return None

    def _view(self, place: Place, space: Space | None) -> PlaceView:
        return PlaceView(
            name=place.name,
            path=str(place.path),
            free_bytes=None if space is None else space.free_bytes,
            total_bytes=None if space is None else space.total_bytes,
            guarded=place.guarded,
            low=self._is_low(place, space),
        )
