"""Whether a driver and cards can run an image (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from allotment_spawner.core.request import Request

__all__ = ["Card", "Hardware", "fitting", "version_of"]


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of a pool; `capability` such as "8.0", None where it is unknown."""

    pool: str
    model: str
    capability: str | None


@dataclass(frozen=True, slots=True)
class Hardware:
    """`driver` such as "580.65.06", None where it is unknown."""

    driver: str | None
    cards: Sequence[Card]


def version_of(text: str | None) -> tuple[int, ...] | None:
    """ "525.60.13" as numbers; None for what is no such version: unknown refuses nothing."""
    parts = (text or "").split(".")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return tuple(int(part) for part in parts)


def fitting(requires: Mapping[str, str], request: Request, hardware: Hardware, *, name: str) -> Request | str:
    """`request` with only those pools whose cards can run the image; a sentence when none can.

    A pool counts as a whole: which of its cards a session gets is not for the image to choose.
    CPU builds run everywhere.
    """
    if requires.get("variant") == "cpu":
        return request
    wanted = requires.get("minimum_driver")
    needed, have = version_of(wanted), version_of(hardware.driver)
    if needed is not None and have is not None and have < needed:
        return f"{name} needs NVIDIA driver {wanted} or newer; this machine has {hardware.driver}."
    return _by_card(requires.get("minimum_compute_capability"), request, hardware, name)


def _by_card(wanted: str | None, request: Request, hardware: Hardware, name: str) -> Request | str:
    needed = version_of(wanted)
    if needed is None:
        return request
    old: dict[str, Card] = {}
    for card in hardware.cards:
        have = version_of(card.capability)
        if have is not None and have < needed:
            old.setdefault(card.pool, card)
    asked = {pool for candidate in request.candidates for pool in candidate.pools}
    if not asked & set(old):
        return request
    left = [replace(one, pools=one.pools - set(old)) for one in request.candidates]
    known = {card.pool for card in hardware.cards}
    if not any(one.pools & known for one in left):
        card = next(old[pool] for pool in sorted(asked) if pool in old)
        return (
            f"{name} needs a GPU of compute capability {wanted} or newer; "
            f"the {card.model} here has {card.capability}."
        )
    return Request(tuple(one for one in left if one.pools))
