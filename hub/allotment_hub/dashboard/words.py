"""How the dashboard says things: money, memory, states, reasons."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from allotment_spawner.core.lease import EndReason, LeaseState

__all__ = [
    "END_WORDS",
    "STATE_WORDS",
    "gigabytes",
    "hours",
    "last_day",
    "local",
    "money",
    "price",
    "server_label",
    "utc",
    "wait",
]

STATE_WORDS: Final[dict[LeaseState, str]] = {
    LeaseState.QUEUED: "Waiting",
    LeaseState.GRANTED: "Starting",
    LeaseState.ACTIVE: "Running",
    LeaseState.ENDING: "Stopping",
    LeaseState.ENDED: "Ended",
}
END_WORDS: Final[dict[EndReason, str]] = {
    EndReason.STOPPED: "stopped",
    EndReason.CANCELLED: "cancelled",
    EndReason.REFUSED: "refused",
    EndReason.WAIT_LIMIT: "waited longer than allowed",
    EndReason.ABANDONED: "nobody was waiting any more",
    EndReason.START_FAILED: "did not start",
    EndReason.GRANT_EXPIRED: "did not start in time",
    EndReason.REPLACED: "replaced by a newer start",
    EndReason.WORKLOAD_EXITED: "the server exited",
    EndReason.ENGINE_STOPPED: "the engine was stopped",
    EndReason.NODE_RESTARTED: "the machine restarted",
    EndReason.DEVICE_MISMATCH: "it saw another device than its own",
}


def price(amount: Decimal, currency: str) -> str:
    """ "0.40 credits per hour": at least two places, no digit lost, no needless zeros."""
    whole, _, rest = format(amount, "f").partition(".")
    rest = rest.rstrip("0").ljust(2, "0")
    return f"{whole}.{rest} {currency} per hour"


def money(amount: Decimal) -> str:
    """ "1,234.50": rounded to two places; what is less than a hundredth keeps all its digits."""
    small = bool(amount) and abs(amount) < Decimal("0.01")
    return format(amount.normalize(), "f") if small else f"{amount:,.2f}"


def hours(seconds: Decimal) -> str:
    """ "3.5 h", "12 min", "0"."""
    if not seconds:
        return "0"
    if abs(seconds) < 3600:
        minutes = f"{seconds / 60:.0f}"
        return f"{minutes} min" if minutes not in ("0", "-0") else "< 1 min"
    return f"{seconds / 3600:,.1f} h"


def gigabytes(size: object) -> str | None:
    """Bytes as "80 GB" (GPUs and memory are sold in powers of 2); None stays unknown."""
    if not isinstance(size, int) or size <= 0:
        return None
    amount = size / 2**30
    return f"{amount:.0f} GB" if amount >= 10 or amount == int(amount) else f"{amount:.1f} GB"


def server_label(server: str) -> str:
    return server or "Default server"


def utc(moment: datetime | None) -> str | None:
    """For readers without scripts; the page's script shows local time with its zone."""
    return None if moment is None else moment.strftime("%Y-%m-%d %H:%M UTC")


def local(moment: datetime, zone: str) -> str:
    """By the wall clock of this zone."""
    return moment.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


def last_day(until: datetime, zone: str) -> str:
    """Of a time that ends then, by the wall clock of this zone."""
    return (until - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).date().isoformat()


def wait(seconds: float | None) -> str | None:
    """ "about 5 min"; None is unknown."""
    if seconds is None:
        return None
    if seconds < 90:
        return "about a minute"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return f"about {round(seconds / 3600)} h"
