"""Whole cards: one node, one NVLink island first, never a card that is taken."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from allotment_spawner.core.allocator import (
    Demand,
    GpuState,
    NoRoom,
    Placement,
    Snapshot,
    capacity,
    place,
    request_for,
)
from allotment_testing.allocation.models import gpu
from hypothesis import given, settings
from hypothesis import strategies as st

WHOLE = frozenset({"whole"})


def card(number: int, *, node: str = "node-1", island: int = 0, taken: bool = False) -> GpuState:
    return replace(gpu(number, mig=False, island=island), node=node, taken=int(taken))


@st.composite
def machines(draw: st.DrawFn) -> Snapshot:
    cards = []
    for number in range(draw(st.integers(0, 8))):
        made = card(
            number,
            node=draw(st.sampled_from(["node-1", "node-2"])),
            island=draw(st.integers(0, 2)),
            taken=draw(st.booleans()),
        )
        pool = draw(st.sampled_from(["whole", "whole", "whole", "other"]))
        cards.append(replace(made, usable=draw(st.integers(0, 5)) > 0, pool=pool))
    return Snapshot(tuple(cards))


def fewest_islands(free: list[GpuState], count: int) -> int | None:
    """Of all ways to take `count` cards of one node, the fewest islands; None when there is no way."""
    ways = [
        len({other.island for other in chosen})
        for chosen in combinations(free, count)
        if len({other.node for other in chosen}) == 1
    ]
    return min(ways, default=None)


@settings(max_examples=300, deadline=None)
@given(machines(), st.integers(1, 4))
def test_cards_come_from_one_node_and_as_few_islands_as_possible(machine: Snapshot, count: int) -> None:
    request = request_for("whole", None, 1, count, WHOLE, frozenset())
    free = [other for other in machine.gpus if other.pool == "whole" and other.usable and not other.taken]
    fewest = fewest_islands(free, count)
    answer = place(request, machine, Demand.uniform())
    assert isinstance(answer, Placement) == (fewest is not None)
    if isinstance(answer, Placement):
        chosen = [machine.gpu(device.gpu_uuid) for device in answer.devices]
        assert len({other.gpu_uuid for other in chosen}) == count
        assert all(other in free for other in chosen)
        assert len({other.node for other in chosen}) == 1
        assert len({other.island for other in chosen}) == fewest
        assert all(device.profile is None and device.start is None for device in answer.devices)


@settings(max_examples=200, deadline=None)
@given(machines(), st.integers(1, 4))
def test_capacity_is_what_can_be_granted(machine: Snapshot, count: int) -> None:
    request = request_for("whole", None, 1, count, WHOLE, frozenset())
    free, total = capacity(request, machine)
    granted = 0
    left = machine
    while isinstance(answer := place(request, left, Demand.uniform()), Placement):
        left = left.after(answer)
        granted += 1
    assert granted == free <= total
    assert capacity(request, left)[0] == 0


def test_a_single_card_leaves_the_bigger_island_whole() -> None:
    cards = [card(number, island=number // 4) for number in range(8)]
    cards[5] = replace(cards[5], taken=1)
    answer = place(
        request_for("whole", None, 1, 1, WHOLE, frozenset()), Snapshot(tuple(cards)), Demand.uniform()
    )
    assert isinstance(answer, Placement)
    assert answer.devices[0].gpu_uuid == cards[4].gpu_uuid


def test_when_islands_must_be_joined_the_biggest_go_first() -> None:
    # Free: one card in island 0, one in island 1, two in island 2.
    cards = (card(0, island=0), card(1, island=1), card(2, island=2), card(3, island=2))
    request = request_for("whole", None, 1, 3, WHOLE, frozenset())
    answer = place(request, Snapshot(cards), Demand.uniform())
    assert isinstance(answer, Placement)
    chosen = {device.gpu_uuid for device in answer.devices}
    assert {"GPU-0002", "GPU-0003"} < chosen


def test_a_card_with_too_little_memory_is_not_one() -> None:
    small = replace(gpu(0, "A30-24GB", mig=False), node="node-1")
    machine = Snapshot((small, card(1)))
    request = request_for("whole", 80, 1, 1, WHOLE, frozenset())
    answer = place(request, machine, Demand.uniform())
    assert isinstance(answer, Placement) and answer.devices[0].gpu_uuid == "GPU-0001"
    assert capacity(request, machine) == (1, 1)
    refused = place(request, Snapshot((small,)), Demand.uniform())
    assert isinstance(refused, NoRoom) and refused.never and refused.rule == "no_such_device"


def test_reasons_for_cards() -> None:
    two = request_for("whole", None, 1, 2, WHOLE, frozenset())
    pair = (card(0), card(1, taken=True))
    cases = {
        "no_pool": (),
        "too_few_on_a_node": (card(0), card(1, node="node-2")),
        "all_in_use": pair,
        "devices_unusable": tuple(replace(other, usable=False) for other in pair),
    }
    for rule, cards in cases.items():
        answer = place(two, Snapshot(cards), Demand.uniform())
        assert isinstance(answer, NoRoom)
        assert answer.rule == rule
        assert answer.never == (rule in {"no_pool", "too_few_on_a_node"})
        assert answer.sentence.endswith(".")


def test_the_largest_profile_serves_where_the_pool_says_so() -> None:
    machine = Snapshot((gpu(0), card(1, taken=True)))
    both = frozenset({"mig", "whole"})
    only_cards = place(request_for("whole", None, 1, 1, both, frozenset()), machine, Demand.uniform())
    assert isinstance(only_cards, NoRoom) and not only_cards.never
    request = request_for("whole", None, 1, 1, both, frozenset({"mig"}))
    answer = place(request, machine, Demand.uniform())
    assert isinstance(answer, Placement)
    assert (answer.devices[0].gpu_uuid, answer.devices[0].profile) == ("GPU-0000", "7g.80gb")
    assert capacity(request, machine) == (1, 2)
    # Several cards are joined; slices are not, so two never come from MIG GPUs.
    several = request_for("whole", None, 1, 2, both, frozenset({"mig"}))
    assert isinstance(place(several, machine, Demand.uniform()), NoRoom)
