"""The life of a lease: states, legal steps, reasons to end."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["LIVE", "EndReason", "LeaseState", "may_follow"]


class LeaseState(StrEnum):
    """queued -> granted -> active -> ending -> ended; any live state may go to ending."""

    QUEUED = "queued"
    GRANTED = "granted"
    ACTIVE = "active"
    ENDING = "ending"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a lease ended; a machine word that scripts may rely on."""

    STOPPED = "stopped"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    WAIT_LIMIT = "wait_limit"
    ABANDONED = "abandoned"
    START_FAILED = "start_failed"
    GRANT_EXPIRED = "grant_expired"
    REPLACED = "replaced"
    WORKLOAD_EXITED = "workload_exited"
    ENGINE_STOPPED = "engine_stopped"
    NODE_RESTARTED = "node_restarted"
    DEVICE_MISMATCH = "device_mismatch"


LIVE = frozenset({LeaseState.QUEUED, LeaseState.GRANTED, LeaseState.ACTIVE})
"""States in which (user, server) may have only one lease."""

_NEXT = {
    LeaseState.QUEUED: {LeaseState.GRANTED, LeaseState.ENDING, LeaseState.ENDED},
    LeaseState.GRANTED: {LeaseState.ACTIVE, LeaseState.ENDING},
    LeaseState.ACTIVE: {LeaseState.ENDING},
    LeaseState.ENDING: {LeaseState.ENDED},
    LeaseState.ENDED: set(),
}


def may_follow(state: LeaseState, new: LeaseState) -> bool:
    """Whether a lease in `state` may go to `new`. A queued lease that reserved slots while its
    slice is being cut goes through ENDING, because its slots are given back only with ENDED."""
    return new in _NEXT[state]
