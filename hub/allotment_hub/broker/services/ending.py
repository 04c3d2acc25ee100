"""How a lease ends, inside a transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from allotment_spawner.core.lease import EndReason, LeaseState

from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["begin_end", "finish", "mark_stopped", "set_note"]


def begin_end(
    tx: Transaction,
    lease_id: str,
    reason: EndReason,
    now: datetime,
    *,
    stopped_at: datetime | None = None,
    refusal: dict[str, Any] | None = None,
) -> Lease | None:
    """To `ending`, or straight to `ended` when it holds nothing. A lease past that keeps its first reason.

    None for an unknown lease. Times never run backwards, even if the clock does.
    """
    lease = tx.lease(lease_id)
    if lease is None or lease.state in (LeaseState.ENDING, LeaseState.ENDED):
        return lease
    at = _not_before(now, lease.active_at, lease.granted_at, lease.created_at)
    values: dict[str, Any] = {"end_reason": reason, "ending_at": at}
    if refusal is not None:
        values["refusal"] = refusal
    if lease.state is LeaseState.QUEUED and not lease.devices:
        return tx.set_lease(lease_id, state=LeaseState.ENDED, ended_at=at, **values)
    if stopped_at is not None:
        values["stopped_at"] = _not_before(stopped_at, lease.active_at, lease.granted_at)
    return tx.set_lease(lease_id, state=LeaseState.ENDING, deadline_at=None, note=None, **values)


def mark_stopped(tx: Transaction, lease_id: str, at: datetime) -> None:
    """The workload is gone: money stops here. Written once."""
    lease = tx.lease(lease_id)
    if lease is not None and lease.state is LeaseState.ENDING and lease.stopped_at is None:
        tx.set_lease(lease_id, stopped_at=_not_before(at, lease.active_at, lease.granted_at))


def set_note(tx: Transaction, lease_id: str, note: str | None) -> None:
    """Say what an ending lease still waits for."""
    lease = tx.lease(lease_id)
    if lease is not None and lease.state is LeaseState.ENDING:
        tx.set_lease(lease_id, note=note)


def finish(
    tx: Transaction, lease_id: str, now: datetime, last: Callable[[Transaction, Lease, datetime], None]
) -> None:
    """To `ended`, and its slots with it: the only place where the slots of a lease that ran are freed.
    `last` posts what it still owes, in this same transaction."""
    lease = tx.lease(lease_id)
    if lease is None or lease.state is not LeaseState.ENDING:
        return
    ran = lease.granted_at is not None
    at = _not_before(now, lease.ending_at, lease.stopped_at)
    stopped_at = (lease.stopped_at or at) if ran else None
    if lease.active_at is not None:
        last(tx, replace(lease, stopped_at=stopped_at), now)
    tx.free_slots(lease_id, forget_devices=not ran)
    tx.set_lease(lease_id, state=LeaseState.ENDED, ended_at=at, stopped_at=stopped_at, note=None)


def _not_before(at: datetime, *earlier: datetime | None) -> datetime:
    return max(at, *(time for time in earlier if time is not None), at)
