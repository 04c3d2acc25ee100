"""Which datasets leave the cache when another needs their space (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Kept", "choose", "over_bytes"]


@dataclass(frozen=True, slots=True)
class Kept:
    """One dataset in the cache. `held`: pinned, or a live lease has it mounted: it stays."""

    name: str
    bytes: int
    used_at: datetime
    held: bool


def over_bytes(
    *, used_bytes: int, need_bytes: int, limit_bytes: int, free_bytes: int, floor_bytes: int
) -> int:
    """How much must leave before `need_bytes` more may come: by the cache's limit and the disk's floor."""
    return max(used_bytes + need_bytes - limit_bytes, need_bytes + floor_bytes - free_bytes, 0)


def choose(kept: Iterable[Kept], over: int) -> tuple[str, ...] | None:
    """Names whose leaving makes up for `over` bytes, the least recently used first; None when all that may
    leave is not enough (then nothing should)."""
    chosen: list[str] = []
    for one in sorted(kept, key=lambda one: (one.used_at, one.name)):
        if over <= 0:
            break
        if not one.held:
            chosen.append(one.name)
            over -= one.bytes
    return tuple(chosen) if over <= 0 else None
