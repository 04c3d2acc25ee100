"""Entries of a session, inside a transaction: day by day, its last one, and what is given back by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from allotment_spawner.core.lease import EndReason

from allotment_hub.accounting.billing import Charge, Posted, Run, charges, give_back
from allotment_hub.broker.services.outages import outages_of
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.ledger import Entry, EntryKind, entries_of_lease, new_id
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["BY_RULE", "BROKER", "Posting", "is_usage", "posted_of"]

BROKER: Final = "broker"
"""Who made the entries that nobody made by hand."""

BY_RULE: Final = {
    EndReason.ENGINE_STOPPED: "the engine that ran it stopped",
    EndReason.NODE_RESTARTED: "the machine was restarted",
    EndReason.DEVICE_MISMATCH: "it did not see the device that it was given",
}
"""Ends that are the platform's fault."""


def is_usage(entry: Entry) -> bool:
    """Whether it says what the session has cost: not what was given back or corrected."""
    return entry.kind == "usage" or entry.key == f"outage:{entry.lease}"


def posted_of(entries: Sequence[Entry]) -> Posted:
    used = [entry for entry in entries if is_usage(entry)]
    return Posted(
        amount=sum((entry.amount for entry in used), Decimal(0)),
        seconds=sum((entry.seconds for entry in used), Decimal(0)),
        days=frozenset(entry.key.split(":")[2] for entry in used if entry.kind == "usage"),
    )


class Posting:
    """`due` for a session that goes on, `last` in the transaction that ends it; either may be repeated."""

    def __init__(self, *, tariffs: Tariffs, refund_minutes: int) -> None:
        self._tariffs = tariffs
        self._refund_minutes = refund_minutes

    def due(self, tx: Transaction, lease_id: str, now: datetime) -> None:
        """The days that are over."""
        lease = tx.lease(lease_id)
        if lease is not None and lease.ended_at is None:
            self._post(tx, lease, until=lease.stopped_at or now, now=now, over=False)

    def last(self, tx: Transaction, lease: Lease, now: datetime) -> None:
        """All that is not posted yet, to `stopped_at`; then what is given back by rule."""
        assert lease.stopped_at is not None, "a session that ran and ends"
        run = self._post(tx, lease, until=lease.stopped_at, now=now, over=True)
        why = None if lease.end_reason is None else BY_RULE.get(lease.end_reason)
        if run is None or why is None:
            return
        back = give_back(run, until=lease.stopped_at, minutes=self._refund_minutes)
        back = None if back is None else _at_most(back, entries_of_lease(tx.connection, lease.id))
        if back is None:
            return
        reason = f"Given back, because {why}."
        tx.post(self._entry(lease, run, back, "refund", f"refund:{lease.id}", reason, now))

    def _post(
        self, tx: Transaction, lease: Lease, *, until: datetime, now: datetime, over: bool
    ) -> Run | None:
        tariff = self._tariffs.of_lease(lease)
        if tariff is None or lease.active_at is None:
            return None
        run = Run(tariff, lease.active_at, outages_of(tx, lease))
        posted = posted_of(entries_of_lease(tx.connection, lease.id))
        for charge in charges(run, posted, until=until, over=over):
            if charge.amount >= 0 and charge.seconds >= 0:
                tx.post(self._usage(lease, run, charge, posted, now))
            elif back := _at_most(charge, entries_of_lease(tx.connection, lease.id)):
                tx.post(self._too_much(lease, run, back, now))
        return run

    def _usage(self, lease: Lease, run: Run, charge: Charge, posted: Posted, now: datetime) -> Entry:
        key = f"lease:{lease.id}:{charge.day}"
        # what was found out after that day's entry
        key = f"{key}:rest" if charge.day in posted.days else key
        return self._entry(lease, run, charge, "usage", key, "", now)

    def _too_much(self, lease: Lease, run: Run, back: Charge, now: datetime) -> Entry:
        reason = "Time that was charged before it was known that it is free."
        return self._entry(lease, run, back, "refund", f"outage:{lease.id}", reason, now)

    def _entry(
        self, lease: Lease, run: Run, charge: Charge, kind: EntryKind, key: str, reason: str, now: datetime
    ) -> Entry:
        return Entry(
            id=new_id(),
            key=key,
            kind=kind,
            owner=lease.user,
            charged_to=(lease.wants or {}).get("charged_to"),
            lease=lease.id,
            from_at=charge.from_at,
            to_at=charge.to_at,
            seconds=charge.seconds,
            gpu_seconds=charge.seconds * run.tariff.gpus,
            amount=charge.amount,
            currency=run.tariff.currency,
            flavor=lease.flavor,
            environment=lease.environment,
            queue_class=lease.queue_class,
            reason=reason,
            made_by=BROKER,
            made_at=now,
        )


def _at_most(back: Charge, entries: Sequence[Entry]) -> Charge | None:
    """Never more than was charged, less what came back by hand; None when nothing was."""
    charged = sum((entry.amount for entry in entries), Decimal(0))
    seconds = sum((entry.seconds for entry in entries), Decimal(0))
    amount = max(back.amount, -max(charged, Decimal(0)))
    given = max(back.seconds, -max(seconds, Decimal(0)))
    return replace(back, amount=amount, seconds=given) if amount or given else None
