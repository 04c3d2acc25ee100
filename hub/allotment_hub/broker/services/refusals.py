"""What people read when a lease ended without running."""

from __future__ import annotations

from allotment_spawner.core.errors import (
    EnvironmentUnavailable,
    GrantExpired,
    Refusal,
    StartFailed,
    WaitTooLong,
)
from allotment_spawner.core.lease import EndReason

__all__ = ["refusal_for"]


def refusal_for(reason: EndReason) -> Refusal | None:
    """The typed refusal for an end that the broker decided; None where nothing was refused."""
    if reason is EndReason.WAIT_LIMIT:
        return WaitTooLong(
            "No device came free within the time that a start may wait.",
            "Try again later, or choose a size that is free now.",
        )
    if reason is EndReason.REFUSED:
        return EnvironmentUnavailable(
            "What you waited for is not offered here any more.", "Choose another environment or size."
        )
    if reason is EndReason.GRANT_EXPIRED:
        return GrantExpired(
            "The device was held for this start for a limited time, and that has passed.",
            "Start the server again.",
        )
    if reason is EndReason.START_FAILED:
        return StartFailed(
            "The server was made but did not come up in time.",
            "Start it again; tell the operator if it happens twice.",
        )
    return None
