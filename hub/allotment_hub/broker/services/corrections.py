"""Entries that an operator makes by hand: what was charged wrongly, and what is given back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal

from allotment_spawner.core.errors import BadOptions, NoSuchEntry
from allotment_spawner.money_wire import EntryView

from allotment_hub.broker.services.steps import no_such_lease
from allotment_hub.broker.store.ledger import (
    Entry,
    entries_of_lease,
    entries_referring_to,
    entry_by_key,
    find_entry,
    new_id,
)
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["MOST", "ByHand", "Corrections", "entry_view"]

_log = logging.getLogger(__name__)
MOST: Final = Decimal(1_000_000_000)
_LONGEST: Final = 500
_DIGITS: Final = -6


@dataclass(frozen=True, slots=True)
class ByHand:
    """`lease` or `entry`, one of them. `amount`: of a refund what is given back, above 0; of a correction
    what is charged more, or below 0 less. `key`: the caller's own; the same again is the same entry."""

    kind: Literal["refund", "correction"]
    operator: str
    amount: Decimal
    reason: str
    key: str
    lease: str | None = None
    entry: str | None = None

    @property
    def change(self) -> Decimal:
        return -self.amount if self.kind == "refund" else self.amount


class Corrections:
    """Whoever calls has made sure that it is an operator."""

    def __init__(
        self, *, store: Store, currency_of: Callable[[Lease], str], clock: Callable[[], datetime]
    ) -> None:
        """`currency_of`: of a session that nothing was charged for yet."""
        self._store = store
        self._currency_of = currency_of
        self._clock = clock

    async def make(self, told: ByHand) -> EntryView:
        """Raises `BadOptions`, `NoSuchLease` or `NoSuchEntry`."""
        _check(told)
        made = await self._store.write("correct", lambda tx: self._make(tx, told))
        _log.info(
            "an entry was made by hand",
            extra={"entry": made.id, "kind": made.kind, "amount": str(made.amount), "by": made.made_by},
        )
        return entry_view(made)

    def _make(self, tx: Transaction, told: ByHand) -> Entry:
        key = f"manual:{told.key}"
        known = entry_by_key(tx.connection, key)
        entry = self._entry(tx, told, key)
        if known is not None:
            return _same(known, entry, told)
        left = sum((one.amount for one in _concerned(tx, entry)), entry.amount)
        if entry.amount < 0 and left < 0:
            charged = format(left - entry.amount, "f")
            raise BadOptions(
                f"Only {charged} {entry.currency} stand in the books for this, less what was given back.",
                "Give back at most that. A session that runs is charged when its day is over, or it ends.",
            )
        return tx.post(entry)

    def _entry(self, tx: Transaction, told: ByHand, key: str) -> Entry:
        now = self._clock()
        of, lease = _subject(tx, told)
        if of is not None:
            known = _like(of)
        else:
            assert lease is not None
            known = {
                "owner": lease.user,
                "charged_to": (lease.wants or {}).get("charged_to"),
                "lease": lease.id,
                "from_at": now,
                "to_at": now,
                "currency": self._currency_of(lease),
                "flavor": lease.flavor,
                "environment": lease.environment,
                "queue_class": lease.queue_class,
            }
        return Entry(
            id=new_id(),
            key=key,
            kind=told.kind,
            seconds=Decimal(0),
            gpu_seconds=Decimal(0),
            amount=told.change,
            reason=told.reason,
            made_by=told.operator,
            made_at=now,
            **known,
        )


def _like(of: Entry) -> dict[str, Any]:
    """For the same owner, time and thing. Of storage always the first entry is referred to, so that all that
    concerns it is found by that."""
    names = ("owner", "charged_to", "lease", "volume", "from_at", "to_at", "currency", "flavor")
    known = {name: getattr(of, name) for name in (*names, "environment", "queue_class")}
    return known | {"refers_to": of.id if of.volume is None else of.refers_to or of.id}


def _subject(tx: Transaction, told: ByHand) -> tuple[Entry | None, Lease | None]:
    """The entry that it is about (of a lease its last one of usage), or the lease without any."""
    if told.entry is not None:
        found = find_entry(tx.connection, told.entry)
        if found is None:
            raise NoSuchEntry("There is no such entry.", "See: allot usage.")
        return found, None
    lease = None if told.lease is None else tx.lease(told.lease)
    if lease is None:
        raise no_such_lease()
    used = [entry for entry in entries_of_lease(tx.connection, lease.id) if entry.kind == "usage"]
    return (used[-1] if used else None), lease


def _concerned(tx: Transaction, entry: Entry) -> Sequence[Entry]:
    """All that was charged and given back for the same thing: a lease, or a home on a day."""
    if entry.lease is not None:
        return entries_of_lease(tx.connection, entry.lease)
    return [] if entry.refers_to is None else entries_referring_to(tx.connection, entry.refers_to)


def _same(known: Entry, wanted: Entry, told: ByHand) -> Entry:
    """The subject's last entry may be another one by now."""
    names = ["kind", "lease", "volume", "owner", "amount", "reason"]
    names += [] if told.entry is None else ["refers_to"]
    if any(getattr(known, name) != getattr(wanted, name) for name in names):
        raise BadOptions("This Idempotency-Key was used for another entry.", "Use a new key for a new entry.")
    return known


def _check(told: ByHand) -> None:
    if (told.lease is None) == (told.entry is None):
        raise BadOptions("Name either a lease or an entry.", "See: allot usage.")
    amount, reason = told.amount, told.reason
    if not amount.is_finite() or amount == 0 or (told.kind == "refund" and amount < 0):
        what = "above 0" if told.kind == "refund" else "other than 0"
        raise BadOptions(f"The amount must be {what}.", "A refund gives back; a correction may also charge.")
    exponent = amount.as_tuple().exponent
    if abs(amount) > MOST or not isinstance(exponent, int) or exponent < _DIGITS:
        raise BadOptions(
            f"The amount has more than 6 digits after the point, or is above {MOST}.", "Write it shorter."
        )
    if not reason.strip() or len(reason) > _LONGEST or not reason.isprintable():
        raise BadOptions(
            f"The reason must be one line of 1 to {_LONGEST} characters.", "Say why, in a sentence."
        )


def entry_view(entry: Entry) -> EntryView:
    """As the wire shows it: without who made it."""
    return EntryView(
        id=entry.id,
        kind=entry.kind,
        owner=entry.owner,
        charged_to=entry.charged_to,
        lease=entry.lease,
        volume=entry.volume,
        from_=entry.from_at,
        to=entry.to_at,
        seconds=entry.seconds,
        gpu_seconds=entry.gpu_seconds,
        amount=entry.amount,
        currency=entry.currency,
        flavor=entry.flavor,
        environment=entry.environment,
        reason=entry.reason,
        made_at=entry.made_at,
        refers_to=entry.refers_to,
    )
