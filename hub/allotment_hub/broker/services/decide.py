"""What to do with a lease, from what was seen (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from allotment_spawner.core.lease import EndReason, LeaseState

from allotment_hub.broker.services.ports import ServerState
from allotment_hub.broker.store.records import Lease
from allotment_hub.site import Policies

__all__ = [
    "Action",
    "Adopt",
    "End",
    "Extend",
    "Keep",
    "Seen",
    "decide_active",
    "decide_granted",
    "decide_queued",
    "needs_hub",
]

_ABSENT_CONFIRMED_S = 5
_ABSENT_ACTIVE_S = 20
_ASK_AFTER_CONFIRM_S = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one lease. `hub` "unknown": not asked, or it did not answer.

    `absent_for`: how long the hub has said absent without a break. `outage_since`: the engine has just
    come back and had not answered from then on.
    """

    now: datetime
    workload: Literal["running", "created", "exited", "gone", "unknown"] = "unknown"
    hub: ServerState | Literal["unknown"] = "unknown"
    absent_for: timedelta = timedelta(0)
    outage_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do, or nothing that could be known."""


@dataclass(frozen=True, slots=True)
class Extend:
    """The deadline moves on; or back, when the clock was set back and it lies further off than any may."""

    deadline_at: datetime


@dataclass(frozen=True, slots=True)
class Adopt:
    """A confirmed workload runs and the hub calls its server ready: make it active."""


@dataclass(frozen=True, slots=True)
class End:
    reason: EndReason
    stopped_at: datetime | None = None


Action = Keep | Extend | Adopt | End


def needs_hub(lease: Lease, seen: Seen, policies: Policies) -> bool:
    """Whether the hub's word could change what `decide_granted` says now."""
    if lease.state is not LeaseState.GRANTED or lease.deadline_at is None:
        return False
    if lease.confirmed_at is None:
        return lease.deadline_at - seen.now < timedelta(seconds=policies.grant_deadline_s) / 2
    # a confirm that is still to come was made before the clock was set back
    return not timedelta(0) <= seen.now - lease.confirmed_at <= timedelta(seconds=_ASK_AFTER_CONFIRM_S)


def decide_queued(
    lease: Lease, now: datetime, gone_for: timedelta, policies: Policies, *, offered: bool
) -> Action:
    if not offered:
        return End(EndReason.REFUSED)
    if now - lease.created_at > timedelta(seconds=policies.wait_limit_s):
        return End(EndReason.WAIT_LIMIT)
    if gone_for > timedelta(seconds=policies.keep_place_s):
        return End(EndReason.ABANDONED)
    return Keep()


def decide_granted(lease: Lease, seen: Seen, policies: Policies) -> Action:
    """The grant's deadline does not run while the hub says spawning or cannot be asked; the limit from
    confirm to active always does, but a silent hub or engine is never taken for a failed start."""
    assert lease.deadline_at is not None
    limit_s = policies.grant_deadline_s if lease.confirmed_at is None else policies.start_limit_s
    latest = seen.now + timedelta(seconds=limit_s)
    if lease.deadline_at > latest:
        return Extend(latest)
    if lease.confirmed_at is None:
        if not needs_hub(lease, seen, policies):
            return Keep()
        if seen.hub in ("spawning", "unknown"):
            return Extend(seen.now + timedelta(seconds=policies.grant_deadline_s))
        return End(EndReason.GRANT_EXPIRED) if seen.now > lease.deadline_at else Keep()
    if "unknown" in (seen.hub, seen.workload):
        return Keep()
    if seen.hub == "ready" and seen.workload == "running":
        return Adopt()
    if seen.hub == "absent" and seen.absent_for >= timedelta(seconds=_ABSENT_CONFIRMED_S):
        return End(EndReason.START_FAILED)
    return End(EndReason.START_FAILED) if seen.now > lease.deadline_at else Keep()


def decide_active(lease: Lease, seen: Seen) -> Action:
    """A session ends when its workload is known to be gone, or when the hub has forgotten it."""
    if seen.workload == "unknown":
        return Keep()
    if seen.workload in ("running", "created"):
        orphan = seen.hub == "absent" and seen.absent_for >= timedelta(seconds=_ABSENT_ACTIVE_S)
        return End(EndReason.ABANDONED) if orphan else Keep()
    if seen.outage_since is not None:
        # it went down with its engine: unbilled from when that was last known to work
        return End(EndReason.ENGINE_STOPPED, stopped_at=seen.outage_since)
    if seen.hub == "stopping":
        return Keep()  # the hub's own DELETE follows and says why
    return End(EndReason.STOPPED if seen.hub == "absent" else EndReason.WORKLOAD_EXITED)
