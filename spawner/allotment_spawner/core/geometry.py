"""Placements on a GPU's axis of memory slices, as bit masks (bit i is memory slice i)."""

from __future__ import annotations

from functools import lru_cache

from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.profiles import is_plain

__all__ = ["Geometry", "free_placements", "geometry_of", "mask", "most_disjoint"]


@lru_cache(maxsize=4096)
def mask(start: int, size: int) -> int:
    """The bits of memory slices [start, start + size)."""
    return ((1 << size) - 1) << start


def free_placements(profile: Profile, taken: int) -> tuple[int, ...]:
    """The legal starts of `profile` that touch no slice of the mask `taken`."""
    return tuple(start for start in profile.starts if not mask(start, profile.size) & taken)


@lru_cache(maxsize=65536)
def most_disjoint(starts: tuple[int, ...], size: int, taken: int) -> int:
    """How many instances of one size fit side by side outside the mask `taken`.

    Taking the leftmost that fits is the best for intervals of one length.
    """
    count = 0
    for start in sorted(starts):
        bits = mask(start, size)
        if not bits & taken:
            taken |= bits
            count += 1
    return count


class Geometry:
    """The profiles and legal placements of one GPU model.

    Two GPUs with equal axis and profiles share one Geometry (`geometry_of`), so it is compared and
    hashed by identity. `names` are the ordinary profiles, `shapes` the masks of their placements.
    """

    __slots__ = ("axis", "names", "profiles", "shapes")

    def __init__(self, *, axis: int, profiles: tuple[Profile, ...]) -> None:
        plain = [profile for profile in profiles if is_plain(profile.name)]
        self.axis = axis
        self.profiles = {profile.name: profile for profile in profiles}
        self.names = tuple(profile.name for profile in plain)
        self.shapes = tuple(tuple(mask(start, p.size) for start in p.starts) for p in plain)


@lru_cache(maxsize=512)
def geometry_of(axis: int, profiles: tuple[Profile, ...]) -> Geometry:
    """The shared Geometry of these profiles."""
    return Geometry(axis=axis, profiles=profiles)
