"""Which MIG profile answers a wish for memory and compute."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from allotment_spawner.core.inventory import Profile

__all__ = ["choose", "is_plain", "largest", "nominal_memory_gb"]

_NAMED = re.compile(r"\d+g\.(\d+)gb")


@lru_cache(maxsize=1024)
def _nominal_in(name: str) -> int | None:
    found = _NAMED.match(name)
    return int(found[1]) if found else None


def nominal_memory_gb(profile: Profile) -> int:
    """The gigabytes in the profile's name (10 for `1g.10gb`, though a little less is usable).

    A name without a number gives the driver's memory, rounded to whole gigabytes (10**9 bytes).
    """
    nominal = _nominal_in(profile.name)
    return round(profile.memory_bytes / 1e9) if nominal is None else nominal


@lru_cache(maxsize=1024)
def is_plain(name: str) -> bool:
    """Whether this is an ordinary profile: no `+me`, `-me`, `+gfx` or other variant."""
    return _NAMED.fullmatch(name) is not None


def choose(profiles: Iterable[Profile], memory_gb: int | None, compute_slices: int) -> Profile | None:
    """The smallest ordinary profile with at least this nominal memory and these compute slices.

    Smallest means: fewest memory slices, then fewest compute slices, then least memory, since the
    memory slices are what other people can no longer have. None when no profile is big enough.
    """
    fitting = [
        profile
        for profile in profiles
        if is_plain(profile.name)
        and profile.compute_slices >= compute_slices
        and nominal_memory_gb(profile) >= (memory_gb or 0)
    ]
    return min(fitting, key=_bigness, default=None)


def largest(profiles: Iterable[Profile]) -> Profile | None:
    """The biggest ordinary profile, or None when there is none."""
    return max((p for p in profiles if is_plain(p.name)), key=_bigness, default=None)


def _bigness(profile: Profile) -> tuple[int, int, int, str]:
    return (profile.size, profile.compute_slices, nominal_memory_gb(profile), profile.name)
