"""Drawing a GPU on its axis keeps every slice at its place."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from allotment.axis import draw
from allotment.commands.leases import devices_of
from allotment.fleet import FleetGpu, FleetSlice, Whole
from allotment.models import Device, Lease
from hypothesis import given
from hypothesis import strategies as st


def gpu(axis: int, *slices: FleetSlice, whole: Whole | None = None) -> FleetGpu:
    return FleetGpu(
        uuid="GPU-1",
        index=0,
        model="A100",
        memory_bytes=1,
        mig=axis > 0,
        axis=axis,
        slices=slices,
        whole=whole,
    )


def piece(profile: str, start: int, size: int, state: str = "leased") -> FleetSlice:
    return FleetSlice(profile=profile, start=start, size=size, state=state)


def test_empty_gpu_shows_every_cell_uncut() -> None:
    assert draw(gpu(4), width=80)[1].plain == "|" + "·········|" * 4


def test_slices_stand_at_their_start() -> None:
    names, bar = draw(gpu(8, piece("2g.20gb", 4, 2), piece("1g.10gb", 0, 1, "idle")), width=81)
    cell = bar.plain.index("|", 1)
    assert names.plain.index("1g.10gb") == 1
    assert names.plain.index("2g.20gb") == 4 * cell + 1
    assert bar.plain[1] == "░"
    assert bar.plain[4 * cell + 1 : 6 * cell] == "█" * (2 * cell - 1)


@given(axis=st.sampled_from([4, 8, 12]), width=st.integers(20, 200), cuts=st.sets(st.integers(1, 11)))
def test_any_layout_has_one_width_and_fits(axis: int, width: int, cuts: set[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < axis), axis]
    slices = [piece(f"{end - start}g.10gb", start, end - start) for start, end in pairwise(edges)]
    names, bar = draw(gpu(axis, *slices), width=width)
    empty = draw(gpu(axis), width=width)[1]
    assert len(bar) == len(empty)
    assert len(names) <= len(bar) + 1
    assert len(bar) <= max(width, axis * 4 + 1)


def test_two_instances_at_one_place_draw_the_first_only() -> None:
    bar = draw(gpu(8, piece("1g.10gb", 0, 1), piece("1g.10gb+me", 0, 1)), width=81)[1]
    assert len(bar) == len(draw(gpu(8), width=81)[1])


@pytest.mark.parametrize(
    ("state", "sign"), [("free", "·"), ("leased", "█"), ("blocked", "▒"), ("quarantined", "!")]
)
def test_a_whole_card_is_one_block(state: str, sign: str) -> None:
    bar = draw(gpu(0, whole=Whole(state=state)), width=60)[1].plain
    assert set(bar.strip("|")) == {sign}


def test_devices_of_a_lease_in_words() -> None:
    card = Device(uuid="GPU-1", node="n", gpu_uuid="GPU-1")
    cut = Device(uuid="MIG-1", node="n", gpu_uuid="GPU-2", profile="1g.10gb", placement=(3, 1))
    words = {devices_of(lease(devices)) for devices in ((), (cut,), (card,), (card, card))}
    assert words == {"-", "1g.10gb at 3", "whole GPU", "2 whole GPUs"}


def lease(devices: tuple[Device, ...]) -> Lease:
    return Lease(
        id="x", kind="session", user="ann", server="", environment="minimal", flavor="f", state="active",
        devices=devices, price_per_hour=Decimal(1),
    )  # fmt: skip
