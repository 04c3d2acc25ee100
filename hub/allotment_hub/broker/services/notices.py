"""What running sessions are told: kept in the database, and sent at once to whoever listens."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar
from uuid import uuid4

from allotment_spawner.core.errors import BrokerUnavailable, WrongState
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.wire import NoticeView

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Signals
from allotment_hub.broker.services.steps import no_such_lease
from allotment_hub.broker.store import notices as table
from allotment_hub.broker.store.notices import Notice
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["PLATFORM", "Boxes", "Event", "Level", "Notices", "Words", "notice_view"]

PLATFORM: Final = "broker/"
"""How whoever ends sessions by rule is called: the hub allows no slash in a person's name, so nobody can take
such an end back as their own, and no number of them is too many."""

Level = Literal["info", "warning", "error"]
Event = tuple[str, dict[str, Any]]
"""`notices` {list}: all that is to be shown; then `notice`, `withdrawn` {id}, `last_call` {id, wait_s}."""

T = TypeVar("T")
_UNREAD = 200
_MOST_STOPS = 100
_STARTED = (LeaseState.GRANTED, LeaseState.ACTIVE)


@dataclass(frozen=True, slots=True)
class Words:
    level: Level
    sentence: str
    next_step: str = ""


class Boxes:
    """One box of unread events for each open stream. The lease's own signal wakes its reader, so that one
    wait covers both a new event and the end of the lease."""

    def __init__(self, *, signals: Signals) -> None:
        self._signals = signals
        self._boxes: dict[str, list[deque[Event]]] = {}

    @contextmanager
    def of(self, lease_id: str) -> Iterator[deque[Event]]:
        box: deque[Event] = deque(maxlen=_UNREAD)
        self._boxes.setdefault(lease_id, []).append(box)
        try:
            yield box
        finally:
            # by identity: two empty boxes are equal
            left = [one for one in self._boxes[lease_id] if one is not box]
            if left:
                self._boxes[lease_id] = left
            else:
                del self._boxes[lease_id]

    def put(self, lease_id: str, event: Event) -> None:
        for box in self._boxes.get(lease_id, ()):
            box.append(event)
        self._signals.touch([lease_id])


class Notices:
    """Every method raises `NoSuchLease` for one that is unknown or over, `WrongState` for one that waits."""

    def __init__(
        self, *, store: Store, book: Book, boxes: Boxes, signals: Signals, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._book = book
        self._boxes = boxes
        self._signals = signals
        self._clock = clock
        self.stops: dict[str, datetime] = {}
        """Lease -> when it ends, of those whose end was announced. Written after the commit only."""
        self.stopping: set[str] = set()
        """Leases whose announced end has come and of which the hub was asked."""
        self.unsure = False
        """Whether `stops` may lack a commit that was not answered."""

    async def load(self) -> None:
        """The announced ends, after a start."""
        found = await self._store.read(lambda tx: table.announced_stops(tx.connection))
        self.stops.clear()
        self._remember(found)
        self.stopping.intersection_update(self.stops)
        self.unsure = False

    async def settle(self) -> None:
        """A commit that was not answered may have arrived all the same: read what is true."""
        if self.unsure:
            await self.load()

    async def tell(self, lease_id: str, words: Words, *, made_by: str) -> NoticeView:
        """One session."""
        return (await self._add([lease_id], words, made_by))[0]

    async def tell_all(self, words: Words, *, made_by: str) -> int:
        """Every session that runs or is being started; returns how many."""
        running = [lease.id for lease in self._book.in_state(*_STARTED)]
        return len(await self._add(running, words, made_by))

    async def tell_some(self, lease_ids: Sequence[str], words: Words, *, made_by: str) -> int:
        """These sessions, all or none; those that are over by then are told nothing. Returns how many."""
        started = {lease.id for lease in self._book.in_state(*_STARTED)}
        return len(await self._add([one for one in lease_ids if one in started], words, made_by))

    async def announce_stop(self, lease_id: str, words: Words, *, after_s: float, made_by: str) -> NoticeView:
        """The session ends then, whatever happens to this process meanwhile."""
        return (await self._add([lease_id], words, made_by, timedelta(seconds=after_s)))[0]

    async def withdraw_stop(self, lease_id: str, *, made_by: str | None) -> int:
        """Take announced ends back, of `made_by` only unless None; returns how many. `WrongState` once the
        hub was asked to stop it: it would end all the same."""
        if lease_id in self.stopping:
            raise WrongState("This session is being stopped right now.", "Start it again when it is over.")

        def work(tx: Transaction) -> tuple[list[Notice], list[Notice]]:
            gone = table.withdraw_stops(tx.connection, lease_id, made_by=made_by, now=self._clock())
            return gone, table.announced_stops(tx.connection, lease_id)

        gone, left = await self._write("withdraw", work)
        self.stops.pop(lease_id, None)
        self._remember(left)
        for notice in gone:
            self._boxes.put(lease_id, ("withdrawn", {"id": notice.id}))
        return len(gone)

    async def of(self, lease_id: str) -> list[NoticeView]:
        """Oldest first."""
        found = await self._store.read(lambda tx: table.of_lease(tx.connection, lease_id))
        return [notice_view(notice) for notice in found]

    async def watch(self, lease_id: str) -> AsyncIterator[Event]:
        """All that is to be shown, then each event; ends with the lease."""
        with ExitStack() as open_:
            news = open_.enter_context(self._signals.of(lease_id))
            box = open_.enter_context(self._boxes.of(lease_id))
            found = [view.model_dump(mode="json") for view in await self.of(lease_id)]
            yield "notices", {"list": found}
            while self._book.get(lease_id) is not None:
                news.clear()
                while box:
                    yield box.popleft()
                await news.wait()

    async def _add(
        self, lease_ids: Sequence[str], words: Words, made_by: str, after: timedelta | None = None
    ) -> list[NoticeView]:
        now = self._clock()
        made = [
            Notice(
                id=uuid4().hex,
                lease=lease_id,
                level=words.level,
                sentence=words.sentence,
                next_step=words.next_step,
                made_by=made_by,
                made_at=now,
                stop_at=None if after is None else now + after,
            )
            for lease_id in lease_ids
        ]

        def work(tx: Transaction) -> None:
            if len(made) == 1:
                _check_started(tx, made[0].lease)
            by_hand = after is not None and not made_by.startswith(PLATFORM)
            if by_hand and table.stops_by(tx.connection, made[0].lease, made_by) >= _MOST_STOPS:
                raise WrongState(
                    f"You have announced the end of this session {_MOST_STOPS} times already.",
                    "Stop it now: allot stop LEASE.",
                )
            table.add(tx.connection, made)

        await self._write("tell", work)
        self._remember(made)
        views = [notice_view(notice) for notice in made]
        for notice, view in zip(made, views, strict=True):
            self._boxes.put(notice.lease, ("notice", view.model_dump(mode="json")))
        return views

    async def _write(self, step: str, work: Callable[[Transaction], T]) -> T:
        try:
            return await self._store.write(step, work)
        except BrokerUnavailable:
            self.unsure = True
            raise

    def _remember(self, found: Sequence[Notice]) -> None:
        """Of several ends the earliest counts."""
        for notice in found:
            if notice.stop_at is not None:
                known = self.stops.get(notice.lease, notice.stop_at)
                self.stops[notice.lease] = min(known, notice.stop_at)


def notice_view(notice: Notice) -> NoticeView:
    """Without who made it: people need not know which operator."""
    return NoticeView.model_validate(
        {name: getattr(notice, name) for name in NoticeView.model_fields}, from_attributes=False
    )


def _check_started(tx: Transaction, lease_id: str) -> None:
    lease = tx.lease(lease_id)
    if lease is None or lease.state in (LeaseState.ENDING, LeaseState.ENDED):
        raise no_such_lease() if lease is None else WrongState("This session is over.", "See: allot leases.")
    if lease.state not in _STARTED:
        raise WrongState("This session still waits in line.", "Give its place up: allot stop LEASE.")
