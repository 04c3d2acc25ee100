"""Placements on a GPU's axis of memory slices, as bit masks (bit i is memory slice i)."""

from __future__ import annotations

from functools import lru_cache

from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.profiles import is_plain

__all__ = ["Axis", "Geometry", "axis_of", "geometry_of", "mask", "most_disjoint"]


@lru_cache(maxsize=4096)
def mask(start: int, size: int) -> int:
    """The bits of memory slices [start, start + size)."""
    return ((1 << size) - 1) << start


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


class Axis:
    """What can follow what on an axis of `length` memory slices, for profiles of these shapes.

    A shape is the masks of one profile's legal placements. Models that differ only in memory, like
    A100 and H100, share one Axis (`axis_of`).
    """

    __slots__ = ("_next", "length", "shapes")

    def __init__(self, *, length: int, shapes: tuple[tuple[int, ...], ...]) -> None:
        self.length = length
        self.shapes = shapes
        self._next: dict[int, tuple[tuple[int, tuple[int, ...]], ...]] = {}

    def next_masks(self, taken: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """(number of the shape, the taken masks that its free placements lead to), for those that fit."""
        known = self._next.get(taken)
        if known is None:
            found = []
            for number, shape in enumerate(self.shapes):
                masks = tuple(taken | bits for bits in shape if not bits & taken)
                if masks:
                    found.append((number, masks))
            known = self._next[taken] = tuple(found)
        return known


class Geometry:
    """The profiles and legal placements of one GPU model.

    Two GPUs with equal axis and profiles share one Geometry (`geometry_of`), so it is compared and
    hashed by identity. `names` are the ordinary profiles, in the order of `axis.shapes`.
    """

    __slots__ = ("axis", "names", "profiles")

    def __init__(self, *, length: int, profiles: tuple[Profile, ...]) -> None:
        plain = [profile for profile in profiles if is_plain(profile.name)]
        shapes = tuple(tuple(mask(start, profile.size) for start in profile.starts) for profile in plain)
        self.axis = axis_of(length, shapes)
        self.names = tuple(profile.name for profile in plain)
        self.profiles = {profile.name: profile for profile in profiles}


@lru_cache(maxsize=512)
def axis_of(length: int, shapes: tuple[tuple[int, ...], ...]) -> Axis:
    """The shared Axis of these shapes."""
    return Axis(length=length, shapes=shapes)


@lru_cache(maxsize=512)
def geometry_of(axis: int, profiles: tuple[Profile, ...]) -> Geometry:
    """The shared Geometry of these profiles; `axis` is the number of memory slices."""
    return Geometry(length=axis, profiles=profiles)
