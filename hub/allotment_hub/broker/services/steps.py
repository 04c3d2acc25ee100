"""The spawner's writes on its lease: renew, confirm, activate (inside one transaction each)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from allotment_spawner.core.errors import DeviceMismatch, GrantExpired, NoSuchLease, WrongState
from allotment_spawner.core.lease import EndReason, LeaseState

from allotment_hub.broker.services.ending import begin_end
from allotment_hub.broker.services.requests import stale
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.site import Policies

__all__ = ["activate", "confirm", "mismatch", "no_such_lease", "renew"]


def no_such_lease() -> NoSuchLease:
    return NoSuchLease("There is no such lease.", "Check the id; you see only your own leases.")


def _of_attempt(tx: Transaction, lease_id: str, attempt: str) -> Lease:
    lease = tx.lease(lease_id)
    if lease is None:
        raise no_such_lease()
    if lease.attempt != attempt or lease.end_reason is EndReason.REPLACED:
        raise stale()
    return lease


def _granted(lease: Lease, now: datetime) -> Lease:
    """The fence: only a lease that is granted and in time goes on."""
    if lease.end_reason is EndReason.GRANT_EXPIRED or (
        lease.state is LeaseState.GRANTED and lease.deadline_at is not None and now > lease.deadline_at
    ):
        raise GrantExpired(
            "The device was held for this start for a limited time, and that has passed.",
            "Start the server again.",
        )
    if lease.state is not LeaseState.GRANTED:
        raise WrongState(f"This lease is {lease.state.value}, not granted.", "Start the server again.")
    return lease


def renew(tx: Transaction, lease_id: str, attempt: str, now: datetime, policies: Policies) -> Lease:
    """Move the deadline of an unconfirmed grant on; a confirmed one has its start limit."""
    lease = _granted(_of_attempt(tx, lease_id, attempt), now)
    if lease.engine_ref is not None:
        return lease
    return tx.set_lease(lease_id, deadline_at=now + timedelta(seconds=policies.grant_deadline_s))


def confirm(
    tx: Transaction, lease_id: str, attempt: str, engine_ref: str, now: datetime, policies: Policies
) -> Lease:
    """Record the workload before it may start. The same call again gives the same answer."""
    lease = _of_attempt(tx, lease_id, attempt)
    if lease.engine_ref == engine_ref and lease.state in (LeaseState.GRANTED, LeaseState.ACTIVE):
        return lease
    lease = _granted(lease, now)
    if lease.engine_ref is not None:
        raise WrongState("Another workload was confirmed for this lease.", "Start the server again.")
    return tx.set_lease(
        lease_id,
        engine_ref=engine_ref,
        confirmed_at=now,
        deadline_at=now + timedelta(seconds=policies.start_limit_s),
    )


def mismatch(lease: Lease, seen: Collection[str]) -> bool:
    return sorted(seen) != sorted(device.uuid or "" for device in lease.devices)


def activate(
    tx: Transaction, lease_id: str, attempt: str | None, seen: Collection[str], now: datetime
) -> Lease | DeviceMismatch:
    """The server is ready. Other devices than the lease's end it: returned, so that the end is kept.

    `attempt` is None when the broker adopts a workload that it finds running.
    """
    lease = tx.lease(lease_id) if attempt is None else _of_attempt(tx, lease_id, attempt)
    if lease is None:
        raise no_such_lease()
    if lease.state is LeaseState.ACTIVE and not mismatch(lease, seen):
        return lease
    if lease.state not in (LeaseState.GRANTED, LeaseState.ACTIVE) or lease.engine_ref is None:
        raise WrongState(
            f"This lease is {lease.state.value} and not confirmed, so it cannot become active.",
            "Start the server again.",
        )
    if mismatch(lease, seen):
        begin_end(tx, lease_id, EndReason.DEVICE_MISMATCH, now)
        return DeviceMismatch(
            "The server saw another device than the one it was given, so it was stopped.",
            "Start the server again; tell the operator if it happens twice.",
        )
    at = max(now, lease.granted_at or now)
    return tx.set_lease(lease_id, state=LeaseState.ACTIVE, active_at=at, deadline_at=None)
