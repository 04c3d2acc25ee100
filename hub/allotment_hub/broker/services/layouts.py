"""Static pools: which slices of the declared layout are missing, and where they go (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from allotment_spawner.core.geometry import mask
from allotment_spawner.core.inventory import Profile

__all__ = ["LayoutImpossible", "missing_slices"]


class LayoutImpossible(Exception):
    """The layout cannot be made on this GPU as it is; the text says why and what to do."""


def missing_slices(
    profiles: Sequence[Profile], present: Sequence[tuple[str, int, int]], layout: Mapping[str, int]
) -> list[tuple[str, int]]:
    """(profile, start) of each slice still to make, beside those `present` (profile, start, size).

    Raises `LayoutImpossible` for a profile this GPU has not, a slice that is not of the layout, or a
    layout that does not fit.
    """
    known = {profile.name: profile for profile in profiles}
    unknown = [name for name in layout if name not in known]
    if unknown:
        raise LayoutImpossible(
            f"The layout names {unknown[0]}, which this GPU does not have. It has: {', '.join(known)}."
        )
    left = Counter(dict(layout))
    left.subtract(Counter(name for name, _, _ in present))
    foreign = [name for name, count in left.items() if count < 0]
    if foreign:
        raise LayoutImpossible(
            f"The GPU holds a {foreign[0]} slice that is not in the pool's layout. Remove it when nothing "
            "runs on it, or change the layout in site.yaml."
        )
    wanted = sorted(left.elements(), key=lambda name: (-known[name].size, name))
    taken = 0
    for _, start, size in present:
        taken |= mask(start, size)
    found = _fit([known[name] for name in wanted], taken)
    if found is None:
        raise LayoutImpossible(
            "The pool's layout does not fit on this GPU beside the slices that are there. "
            "Change the layout in site.yaml."
        )
    return found


def _fit(wanted: Sequence[Profile], taken: int) -> list[tuple[str, int]] | None:
    """Search with going back; an axis has at most twelve slices, so this is small."""
    if not wanted:
        return []
    first = wanted[0]
    for start in first.starts:
        bits = mask(start, first.size)
        if not bits & taken:
            rest = _fit(wanted[1:], taken | bits)
            if rest is not None:
                return [(first.name, start), *rest]
    return None
