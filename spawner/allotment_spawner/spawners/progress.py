"""What a start is doing now, for every page that watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from allotment_spawner.wire import ExpectedStart, LeaseReply, Work

__all__ = ["Board", "queue_sentence"]

_LOCAL_FORMAT = "%H:%M UTC"


class Board:
    """The latest step; `follow()` yields it and each later one, to any number of watchers.

    A step is the hub's progress event (`progress` 0-100, `message`) with one member of ours,
    `allotment`: {"stage", "lease", "place", "expected_start", "work"}; the hub passes it on unchanged.
    `work` is a `Work` as JSON: what is on its way, with bytes so far and in all where they are known.
    """

    def __init__(self) -> None:
        self._step: dict[str, object] = _step(2, "Asking for a device", stage="asking")
        self._changed = asyncio.Event()

    @property
    def latest(self) -> dict[str, object]:
        return dict(self._step)

    def queued(self, reply: LeaseReply) -> None:
        lease = reply.lease
        expected = lease.expected_start
        self._set(
            _step(
                10,
                queue_sentence(lease.place, expected)
                if reply.waits_for is None
                else reply.waits_for.sentence,
                stage="queued",
                lease=lease.id,
                place=lease.place,
                expected_start=expected.model_dump(mode="json") if expected else None,
                work=reply.waits_for.model_dump(mode="json") if reply.waits_for else None,
            )
        )

    def broker_away(self) -> None:
        """The broker restarts: the place is in its database."""
        self._set(_step(10, "Allotment is restarting; your place is kept.", stage="queued_away"))

    def granted(self, reply: LeaseReply) -> None:
        self._set(_step(40, "Your device is ready.", stage="granted", lease=reply.lease.id))

    def making(self) -> None:
        self._set(_step(50, "Making your server.", stage="making"))

    def pulling(self, work: Work) -> None:
        """The image is not on this machine and is brought here; said anew as bytes arrive."""
        self._set(_step(45, work.sentence, stage="pulling", work=work.model_dump(mode="json")))

    def starting(self) -> None:
        self._set(_step(70, "Starting your server.", stage="starting"))

    def answering(self) -> None:
        self._set(_step(90, "Your server answers.", stage="answering"))

    async def follow(self) -> AsyncIterator[dict[str, object]]:
        while True:
            changed = self._changed
            # a copy: the hub takes members out of what it is given
            yield dict(self._step)
            await changed.wait()

    def _set(self, step: dict[str, object]) -> None:
        if step == self._step:
            return
        self._step = step
        self._changed.set()
        self._changed = asyncio.Event()


def queue_sentence(place: int | None, expected: ExpectedStart | None) -> str:
    """Where a waiting person stands, for reading aloud."""
    where = "Waiting for a device"
    where += "." if place is None else f": you are number {place} in line."
    if expected is None:
        return f"{where} When it starts is not known yet."
    return f"{where} Expected start between {_clock(expected.earliest)} and {_clock(expected.latest)}."


def _clock(moment: datetime) -> str:
    return moment.strftime(_LOCAL_FORMAT)


def _step(progress: int, message: str, **ours: object) -> dict[str, object]:
    return {"progress": progress, "message": message, "allotment": ours}
