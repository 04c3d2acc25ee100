"""How a request meets what the person has already, inside one transaction."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from allotment_spawner.core.errors import BadOptions, Refusal, StaleAttempt, refusal_from_code
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseRequest

from allotment_hub.broker.services.ending import begin_end
from allotment_hub.broker.store.records import Attempt, Lease
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Entry", "again", "enter", "record_refusal", "stale"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, checked by everything that needs no transaction."""

    attempt: str
    body: LeaseRequest
    pools: frozenset[str] | None
    now: datetime
    grant_deadline_s: int
    price: Decimal
    """Per hour now, for this person."""
    wants: dict[str, Any] = field(default_factory=dict)


def stale() -> StaleAttempt:
    return StaleAttempt(
        "A newer start of this server has taken over.", "Nothing to do: the newer start goes on."
    )


def _hash(body: LeaseRequest) -> str:
    return hashlib.sha256(body.model_dump_json().encode()).hexdigest()


def again(tx: Transaction, attempt: str, body: LeaseRequest) -> Lease | None:
    """The lease of a key that was seen before; None for a new key.

    Raises `BadOptions` when the key came with another body, `StaleAttempt` after a newer attempt, and
    the same refusal as the first time.
    """
    known = tx.attempt(attempt)
    if known is None:
        return None
    if known.body_hash != _hash(body):
        raise BadOptions(
            "This Idempotency-Key was used for another request.", "Use a new key for a new request."
        )
    lease = tx.lease(known.lease)
    assert lease is not None
    if lease.attempt != attempt or lease.end_reason is EndReason.REPLACED:
        raise stale()
    if lease.end_reason is EndReason.REFUSED and lease.refusal is not None:
        problem = lease.refusal
        raise refusal_from_code(problem["code"], problem["detail"], problem["next_step"], lease=lease.id)
    return lease


def enter(tx: Transaction, entry: Entry, *, check: Callable[[Transaction], None]) -> Lease:
    """Take over the person's waiting lease of this server, or replace it, or make a new one: then `check`
    sees what else the person has. Raises its refusal."""
    body, now = entry.body, entry.now
    old = tx.live_of(body.user, body.server)
    if old is not None and _may_take_over(old, entry):
        # the person may have lost a group since the older attempt
        values: dict[str, Any] = {"attempt": entry.attempt, "pools": entry.pools}
        if old.state is LeaseState.GRANTED:
            # the older attempt's time must not run against the newer one
            values["deadline_at"] = now + timedelta(seconds=entry.grant_deadline_s)
        lease = tx.set_lease(old.id, **values)
    else:
        if old is not None:
            begin_end(tx, old.id, EndReason.REPLACED, now)
        check(tx)
        lease = tx.add_lease(**_new(entry), state=LeaseState.QUEUED)
    tx.add_attempt(Attempt(entry.attempt, lease.id, _hash(body), now))
    return lease


def _may_take_over(old: Lease, entry: Entry) -> bool:
    """A confirmed lease has a workload made by the older attempt: it is ended, never handed on."""
    body = entry.body
    same = (old.flavor, old.environment) == (body.flavor, body.environment)
    same = same and (old.wants or {}) == entry.wants
    waiting = old.state is LeaseState.QUEUED or (old.state is LeaseState.GRANTED and old.engine_ref is None)
    return same and waiting


def record_refusal(
    tx: Transaction,
    entry: Entry,
    *,
    problem: Callable[[Refusal], dict[str, Any]],
    why: Refusal,
) -> None:
    """Keep a refused request as an ended lease, so that its reason can be read and explained later."""
    if tx.attempt(entry.attempt) is not None:
        return
    values = _new(entry)
    why.details.setdefault("lease", values["id"])
    lease = tx.add_lease(
        **values,
        state=LeaseState.ENDED,
        ending_at=entry.now,
        ended_at=entry.now,
        end_reason=EndReason.REFUSED,
        refusal=problem(why),
    )
    tx.add_attempt(Attempt(entry.attempt, lease.id, _hash(entry.body), entry.now))


def _new(entry: Entry) -> dict[str, Any]:
    body = entry.body
    return {
        "id": secrets.token_hex(8),
        "kind": "session",
        "queue_class": "interactive",
        "user": body.user,
        "server": body.server,
        "environment": body.environment,
        "flavor": body.flavor,
        "attempt": entry.attempt,
        "price_per_hour": entry.price,
        "created_at": entry.now,
        "pools": entry.pools,
        "wants": entry.wants or None,
    }
