"""The allocator's rules by example: reuse, static layouts, capacity, reasons, demand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from allotment_spawner.core.allocator import (
    Candidate,
    Demand,
    GpuState,
    IdleSlice,
    NoRoom,
    Placed,
    Placement,
    Request,
    Snapshot,
    Want,
    capacity,
    place,
    request_for,
)
from allotment_spawner.core.geometry import mask
from allotment_testing.allocation.models import gpu

MIG = frozenset({"mig"})
TEN = request_for("slice", 10, 1, 1, MIG, frozenset())
TWENTY = request_for("slice", 20, 2, 1, MIG, frozenset())
FORTY = request_for("slice", 40, 3, 1, MIG, frozenset())
ONE_G = IdleSlice("1g.10gb", 0, 1)


def placed(request: Request, *gpus: GpuState, demand: Demand | None = None) -> Placed:
    answer = place(request, Snapshot(gpus), demand or Demand.uniform())
    assert isinstance(answer, Placement), answer
    return answer.devices[0]


def refused(request: Request, *gpus: GpuState) -> NoRoom:
    answer = place(request, Snapshot(gpus), Demand.uniform())
    assert isinstance(answer, NoRoom), answer
    return answer


def test_seven_people_fit_on_one_gpu_and_the_eighth_waits() -> None:
    snapshot = Snapshot((gpu(0),))
    starts = set()
    for left in range(7, 0, -1):
        assert capacity(TEN, snapshot) == (left, 7)
        answer = place(TEN, snapshot, Demand.uniform())
        assert isinstance(answer, Placement)
        starts.add(answer.devices[0].start)
        snapshot = snapshot.after(answer)
    assert starts == set(range(7))
    eighth = refused(TEN, *snapshot.gpus)
    assert (eighth.rule, eighth.never) == ("all_in_use", False)
    assert eighth.sentence == "Every 1g.10gb slice that fits here is in use."


def test_small_slices_leave_room_for_the_big_one() -> None:
    snapshot = Snapshot((gpu(0),))
    for _ in range(3):
        answer = place(TEN, snapshot, Demand.uniform())
        assert isinstance(answer, Placement)
        snapshot = snapshot.after(answer)
    assert placed(FORTY, *snapshot.gpus).start in {0, 4}


def test_an_idle_slice_is_handed_out_before_one_is_cut() -> None:
    used = replace(gpu(0), taken=mask(6, 1))
    ready = replace(gpu(1), taken=mask(4, 2), idle=(ONE_G,))
    assert placed(TEN, used, ready) == Placed("GPU-0001", "1g.10gb", 0, 1, True, ())


def test_gpus_that_differ_only_in_their_last_idle_slice_are_told_apart() -> None:
    first, second = IdleSlice("2g.20gb", 0, 2), IdleSlice("1g.10gb", 2, 1)
    plain = replace(gpu(0), taken=mask(4, 2), idle=(first,))
    assert not placed(TEN, plain).reuse
    assert placed(TEN, plain, replace(plain, gpu_uuid="GPU-0001", idle=(first, second))).reuse
    assert not placed(TEN, plain).reuse


def test_an_empty_gpu_is_left_alone_even_where_it_would_cost_less() -> None:
    # An RTX PRO 6000 and an H100 NVL: the same name, another geometry and so other costs.
    nvl, rtx = gpu(0, "H100-NVL-94GB"), gpu(1, "RTX-PRO-6000-Blackwell-96GB")
    wish = request_for("slice", 24, 1, 1, MIG, frozenset())
    for empty, used in ((nvl, replace(rtx, taken=mask(0, 3))), (rtx, replace(nvl, taken=mask(0, 2)))):
        for weights in ({"1g.24gb": 1.0}, {"4g.96gb": 1.0}, {"1g.12gb": 1.0}, {"3g.47gb": 1.0}):
            for order in ((empty, used), (used, empty)):
                assert placed(wish, *order, demand=Demand(weights)).gpu_uuid == used.gpu_uuid


def test_an_empty_gpu_is_not_broken_into_for_an_idle_slice_either() -> None:
    used = replace(gpu(0), taken=mask(6, 1))
    empty = replace(gpu(1), idle=(ONE_G,))
    assert placed(TEN, used, empty).gpu_uuid == "GPU-0000"


def test_idle_slices_are_destroyed_only_where_they_are_in_the_way() -> None:
    idle = (ONE_G, IdleSlice("1g.10gb", 1, 1), IdleSlice("1g.10gb", 6, 1))
    both = replace(gpu(0), idle=idle)
    one_side = replace(both, taken=mask(4, 2))
    device = placed(FORTY, one_side)
    assert (device.start, device.reuse, device.destroy) == (0, False, idle[:2])
    assert placed(FORTY, both, demand=Demand({"3g.40gb": 1.0})).destroy == (idle[2],)


def test_a_second_media_slice_needs_the_first_gone() -> None:
    media = Request((Candidate(MIG, Want("profile", profile="1g.10gb+me")),))
    idle = IdleSlice("1g.10gb+me", 3, 1)
    busy = replace(gpu(0), taken=mask(0, 1), me_taken=True)
    assert refused(media, busy).rule == "all_in_use"
    assert placed(media, replace(gpu(0), idle=(idle,))).reuse
    blocked = replace(gpu(0), taken=mask(3, 1), idle=(IdleSlice("1g.10gb+me", 6, 1),))
    assert placed(media, blocked).reuse
    assert capacity(media, Snapshot((busy, gpu(1)))) == (1, 2)


def test_a_static_layout_is_used_as_it_is() -> None:
    layout = replace(gpu(0), fixed_layout=True, idle=(IdleSlice("3g.40gb", 4, 4), ONE_G))
    device = placed(FORTY, layout)
    assert device.reuse and device.start == 4
    never = refused(TWENTY, layout)
    assert (never.rule, never.never) == ("layout_without_it", True)
    in_use = replace(layout, idle=(ONE_G,), taken=mask(4, 4), leased=(IdleSlice("3g.40gb", 4, 4),))
    assert refused(FORTY, in_use).rule == "all_in_use"
    assert capacity(FORTY, Snapshot((in_use, layout))) == (1, 2)
    # Slices taken by something we are not told of may be this profile: do not say never.
    assert not refused(TWENTY, replace(layout, taken=mask(0, 4), idle=())).never


def test_reasons() -> None:
    elsewhere = request_for("slice", 10, 1, 1, frozenset({"other"}), frozenset())
    assert refused(elsewhere, gpu(0)).rule == "no_pool"
    assert "no GPU in MIG mode" in refused(elsewhere, gpu(0)).sentence
    assert refused(Request(()), gpu(0)).rule == "no_pool"
    too_big = refused(request_for("slice", 200, 1, 1, MIG, frozenset()), gpu(0))
    assert too_big == NoRoom(
        "no_such_device", "No GPU here has a slice with 200 GB and 1 compute slice.", True
    )
    assert refused(TEN, replace(gpu(0), usable=False)).rule == "devices_unusable"
    scattered = replace(gpu(0), taken=mask(1, 1) | mask(3, 1) | mask(5, 1))
    fragmented = refused(FORTY, scattered)
    assert (fragmented.rule, fragmented.never) == ("fragmented", False)
    full = replace(gpu(0), taken=mask(0, 7))
    assert refused(TEN, full).rule == "all_in_use"


def test_a_reason_to_wait_goes_before_a_reason_to_give_up() -> None:
    wants = (
        Candidate(MIG, Want("profile", profile="9g.999gb")),
        Candidate(MIG, Want("slice", 10, 1)),
    )
    answer = refused(Request(wants), replace(gpu(0), taken=mask(0, 8)))
    assert (answer.rule, answer.never) == ("all_in_use", False)


def test_capacity_leaves_out_what_is_broken_or_not_ours() -> None:
    broken = replace(gpu(0), usable=False)
    shared = replace(gpu(1), taken=mask(0, 4), foreign=mask(0, 4))
    busy = replace(gpu(2), taken=mask(0, 4))
    assert capacity(TEN, Snapshot((broken, shared, busy))) == (6, 10)


def test_demand_decides_what_is_kept() -> None:
    right_half = replace(gpu(0), taken=mask(0, 4))
    assert placed(TEN, right_half, demand=Demand({"2g.20gb": 1.0})).start == 6
    # 4g.40gb lies only on the left, so who hears of it keeps the left half.
    four = Demand({"4g.40gb": 1.0})
    assert placed(TEN, gpu(0), demand=four).start in {4, 5, 6}
    assert placed(FORTY, gpu(0), demand=four).start == 4


def test_several_slices_are_several_requests() -> None:
    with pytest.raises(ValueError, match="one slice"):
        request_for("slice", 10, 1, 2, MIG, frozenset())


def test_a_placement_for_another_fleet_is_a_key_error() -> None:
    answer = Placement((Placed("GPU-9999", "1g.10gb", 0, 1),))
    with pytest.raises(KeyError):
        Snapshot((gpu(0),)).after(answer)
    with pytest.raises(KeyError):
        Snapshot((gpu(0),)).gpu("GPU-9999")


def test_mixed_models_are_compared_with_each_other() -> None:
    small = replace(gpu(0, "A30-24GB"), taken=mask(0, 2))
    big = gpu(1, "RTX-PRO-6000-Blackwell-96GB")
    device = placed(TEN, small, big)
    assert (device.gpu_uuid, device.profile, device.start) == ("GPU-0000", "2g.12gb", 2)
    assert placed(FORTY, small, big).profile == "4g.96gb"
