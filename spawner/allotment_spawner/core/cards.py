"""Whole cards: from one node, one NVLink island first, leaving big islands whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from allotment_spawner.core.request import Candidate
from allotment_spawner.core.snapshot import GpuState, Placed, Placement, Snapshot

__all__ = ["count_cards", "eligible_cards", "place_cards"]


def eligible_cards(candidate: Candidate, snapshot: Snapshot) -> list[GpuState]:
    """Cards that could ever serve this candidate, whatever is taken or unhealthy now."""
    memory = (candidate.want.memory_gb or 0) * 10**9
    return [
        gpu
        for gpu in snapshot.gpus
        if not gpu.mig and gpu.pool in candidate.pools and gpu.memory_bytes >= memory
    ]


def _is_free(gpu: GpuState) -> bool:
    return gpu.usable and not gpu.taken and not gpu.me_taken


def place_cards(candidate: Candidate, snapshot: Snapshot) -> Placement | None:
    """`count` free cards of one node, or None.

    From one island if any has enough: the one with the fewest free cards, so that bigger requests
    keep their island. Otherwise from the node where the fewest islands have to be joined.
    """
    count = candidate.want.count
    nodes: dict[str, dict[int, list[GpuState]]] = defaultdict(lambda: defaultdict(list))
    for gpu in eligible_cards(candidate, snapshot):
        if _is_free(gpu):
            nodes[gpu.node][gpu.island].append(gpu)
    choices: list[tuple[int, int, list[GpuState]]] = []
    for islands in nodes.values():
        choices.extend((1, len(free), free) for free in islands.values() if len(free) >= count)
        joined = [gpu for free in sorted(islands.values(), key=len, reverse=True) for gpu in free]
        if len(joined) >= count:
            choices.append((len({gpu.island for gpu in joined[:count]}), len(joined), joined))
    if not choices:
        return None
    best = min(choices, key=lambda choice: choice[:2])[2]
    return Placement(tuple(Placed(gpu.gpu_uuid, None, None, None) for gpu in best[:count]))


def count_cards(candidate: Candidate, snapshot: Snapshot) -> tuple[int, int]:
    """How many such requests fit (now, if every usable card were free)."""
    cards = [gpu for gpu in eligible_cards(candidate, snapshot) if gpu.usable]
    count = candidate.want.count
    free = _per_node((gpu for gpu in cards if _is_free(gpu)), count)
    return free, _per_node((gpu for gpu in cards if not gpu.foreign), count)


def _per_node(cards: Iterable[GpuState], count: int) -> int:
    held: dict[str, int] = defaultdict(int)
    for gpu in cards:
        held[gpu.node] += 1
    return sum(number // count for number in held.values())
