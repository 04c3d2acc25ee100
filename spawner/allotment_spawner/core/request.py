"""What is asked of the allocator: a slice, whole cards, or one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Candidate", "Request", "Want", "request_for"]


@dataclass(frozen=True, slots=True)
class Want:
    """slice: the smallest ordinary profile with this nominal memory and these compute slices;
    whole: `count` cards with MIG off, on one node, each with `memory_gb` (10**9 bytes) if given;
    largest: the biggest ordinary profile of a MIG GPU, in place of a whole card; profile: exactly the
    profile of this name, for instance a `+me` one, which no wish for memory and compute gets.
    """

    kind: Literal["slice", "whole", "largest", "profile"]
    memory_gb: int | None = None
    compute_slices: int = 1
    count: int = 1
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve a request: this want, from these pools (site.yaml's names)."""

    pools: frozenset[str]
    want: Want


@dataclass(frozen=True, slots=True)
class Request:
    """Ways to serve one request, tried in order."""

    candidates: tuple[Candidate, ...]


def request_for(
    kind: Literal["slice", "whole"],
    memory_gb: int | None,
    compute_slices: int,
    count: int,
    pools: frozenset[str],
    largest_in: frozenset[str] = frozenset(),
) -> Request:
    """A flavor's wish as a Request.

    `pools` are the pools this person and flavor may use; in those of `largest_in` one whole card may
    also be the largest MIG profile. A slice is always one device: ValueError if `count` says more.
    """
    if kind == "slice":
        if count != 1:
            raise ValueError("A request is for one slice; several slices are several requests.")
        return Request((Candidate(pools, Want("slice", memory_gb, compute_slices)),))
    whole = Candidate(pools, Want("whole", memory_gb, compute_slices, count))
    if count == 1 and largest_in & pools:
        want = Want("largest", memory_gb, compute_slices)
        return Request((whole, Candidate(largest_in & pools, want)))
    return Request((whole,))
