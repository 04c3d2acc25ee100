"""Whatever the fleet looks like: nothing overlaps, nothing that fits is refused, the rules are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from allotment_spawner.core.allocator import (
    Candidate,
    Demand,
    GpuState,
    IdleSlice,
    NoRoom,
    Placement,
    Request,
    Snapshot,
    Want,
    capacity,
    place,
    request_for,
)
from allotment_spawner.core.inventory import Profile
from allotment_spawner.gpu.simulator.models import known_models
from allotment_testing.allocation.models import profiles_of
from allotment_testing.allocation.strategies import POOLS, fleets, legal, most, ordinary, slices_of
from hypothesis import given, settings
from hypothesis import strategies as st

EVERYWHERE = frozenset(POOLS)
POOL_SETS = st.sampled_from([EVERYWHERE, frozenset({"blue"}), frozenset({"green"})])
DEMANDS = st.one_of(
    st.just(Demand.uniform()),
    st.dictionaries(
        st.sampled_from([p.name for key in known_models() for p in profiles_of(key)]), st.integers(0, 50)
    ).map(Demand.from_recent),
)
NAMES = sorted({p.name for key in known_models() for p in ordinary(key, media=True)})


def wanting(name: str, pools: frozenset[str] = EVERYWHERE) -> Request:
    return Request((Candidate(pools, Want("profile", profile=name)),))


def named(gpu: GpuState, name: str) -> Profile | None:
    return next((profile for profile in gpu.profiles if profile.name == name), None)


def spots(snapshot: Snapshot, name: str, pools: frozenset[str]) -> list[tuple[GpuState, int]]:
    """Every legal placement, found by looking everywhere."""
    found: list[tuple[GpuState, int]] = []
    for gpu in snapshot.gpus:
        profile = named(gpu, name)
        if profile is not None and gpu.pool in pools:
            found.extend((gpu, start) for start in legal(gpu, profile))
    return found


@settings(max_examples=400, deadline=None)
@given(fleets(), st.sampled_from(NAMES), POOL_SETS, DEMANDS)
def test_what_fits_is_placed_legally_and_the_rest_is_refused(
    snapshot: Snapshot, name: str, pools: frozenset[str], demand: Demand
) -> None:
    possible = spots(snapshot, name, pools)
    answer = place(wanting(name, pools), snapshot, demand)
    assert isinstance(answer, Placement) == bool(possible)
    if not isinstance(answer, Placement):
        return
    (device,) = answer.devices
    gpu = snapshot.gpu(device.gpu_uuid)
    profile = named(gpu, name)
    assert profile is not None and device.profile == name and device.size == profile.size
    assert device.start is not None and (gpu, device.start) in possible
    here = IdleSlice(name, device.start, profile.size)
    if device.reuse:
        assert here in gpu.idle and device.destroy == ()
        return
    assert not gpu.fixed_layout and here not in gpu.idle
    # All that is in the way is named, and nothing else.
    stays = [piece for piece in gpu.idle if piece not in device.destroy]
    assert set(device.destroy) <= set(gpu.idle)
    for piece in stays:
        assert not slices_of(piece.start, piece.size) & slices_of(device.start, profile.size)
    for piece in device.destroy:
        overlaps = slices_of(piece.start, piece.size) & slices_of(device.start, profile.size)
        assert overlaps or (profile.media and piece.profile.endswith("+me"))
    if profile.media:
        assert not any(piece.profile.endswith("+me") for piece in stays)


@settings(max_examples=150, deadline=None)
@given(fleets(), st.sampled_from(NAMES), DEMANDS)
def test_empty_gpus_stay_empty_and_idle_slices_are_reused(
    snapshot: Snapshot, name: str, demand: Demand
) -> None:
    answer = place(wanting(name), snapshot, demand)
    if not isinstance(answer, Placement):
        return
    (device,) = answer.devices
    gpu = snapshot.gpu(device.gpu_uuid)
    possible = spots(snapshot, name, EVERYWHERE)
    if not gpu.taken:
        assert all(not other.taken for other, _ in possible), "a partly used GPU had room"
    if not device.reuse:
        alike = [(other, start) for other, start in possible if bool(other.taken) == bool(gpu.taken)]
        ready = [(o, s) for o, s in alike if any(p.profile == name and p.start == s for p in o.idle)]
        assert not ready, "an idle slice was ready"


@settings(max_examples=150, deadline=None)
@given(fleets(), st.sampled_from(NAMES), DEMANDS)
def test_capacity_is_what_a_search_finds_and_what_place_grants(
    snapshot: Snapshot, name: str, demand: Demand
) -> None:
    free, total = capacity(wanting(name), snapshot)
    expected = 0
    for gpu in snapshot.gpus:
        profile = named(gpu, name)
        if profile is not None:
            count = most(legal(gpu, profile), profile.size, set())
            expected += min(count, 1) if profile.media else count
    assert free == expected <= total
    granted = 0
    while isinstance(answer := place(wanting(name), snapshot, demand), Placement):
        snapshot = snapshot.after(answer)
        granted += 1
    assert granted == free


@settings(max_examples=150, deadline=None)
@given(fleets(), st.sampled_from(NAMES), DEMANDS)
def test_never_means_never(snapshot: Snapshot, name: str, demand: Demand) -> None:
    answer = place(wanting(name), snapshot, demand)
    emptied = Snapshot(
        tuple(
            replace(
                gpu, taken=0, me_taken=False, usable=True, leased=(), foreign=0, idle=(*gpu.idle, *gpu.leased)
            )
            for gpu in snapshot.gpus
        )
    )
    later = place(wanting(name), emptied, demand)
    if isinstance(answer, Placement):
        assert isinstance(later, Placement)
    elif answer.never:
        assert isinstance(later, NoRoom)
    else:
        assert isinstance(later, Placement) or any(gpu.foreign for gpu in snapshot.gpus)


@pytest.mark.parametrize("key", known_models())
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_day_of_comings_and_goings_never_overlaps(key: str, data: st.DataObject) -> None:
    profiles = {profile.name: profile for profile in profiles_of(key)}
    names = [profile.name for profile in ordinary(key, media=True)]
    snapshot = Snapshot((data.draw(fleets(key))).gpus[:3])
    held: list[tuple[str, IdleSlice]] = [
        (gpu.gpu_uuid, piece) for gpu in snapshot.gpus for piece in gpu.leased
    ]
    for _ in range(data.draw(st.integers(1, 25))):
        if held and data.draw(st.integers(0, 2)) == 0:
            uuid, piece = held.pop(data.draw(st.integers(0, len(held) - 1)))
            snapshot = give_back(snapshot, uuid, piece, media=profiles[piece.profile].media)
            continue
        answer = place(wanting(data.draw(st.sampled_from(names))), snapshot, Demand.uniform())
        if isinstance(answer, Placement):
            snapshot = snapshot.after(answer)
            (device,) = answer.devices
            assert device.profile is not None and device.start is not None and device.size is not None
            held.append((device.gpu_uuid, IdleSlice(device.profile, device.start, device.size)))
        check(snapshot, held, profiles)


def give_back(snapshot: Snapshot, uuid: str, piece: IdleSlice, *, media: bool) -> Snapshot:
    def changed(gpu: GpuState) -> GpuState:
        leased = list(gpu.leased)
        leased.remove(piece)
        taken = gpu.taken & ~(((1 << piece.size) - 1) << piece.start)
        me_taken = gpu.me_taken and not media
        return replace(gpu, taken=taken, me_taken=me_taken, idle=(*gpu.idle, piece), leased=tuple(leased))

    return Snapshot(tuple(changed(gpu) if gpu.gpu_uuid == uuid else gpu for gpu in snapshot.gpus))


def check(snapshot: Snapshot, held: list[tuple[str, IdleSlice]], profiles: dict[str, Profile]) -> None:
    """Every slice of a GPU belongs to one instance at most, and `+me` exists once at most."""
    for gpu in snapshot.gpus:
        mine = [piece for uuid, piece in held if uuid == gpu.gpu_uuid]
        instances = [*mine, *gpu.idle]
        numbers = [n for piece in instances for n in slices_of(piece.start, piece.size)]
        assert len(numbers) == len(set(numbers)), "two instances share a memory slice"
        assert all(0 <= n < gpu.axis for n in numbers)
        assert all(piece.start in profiles[piece.profile].starts for piece in instances)
        assert sum(profiles[piece.profile].media for piece in instances) <= 1
        assert sorted(mine) == sorted(gpu.leased)


@settings(max_examples=200, deadline=None)
@given(fleets(), st.integers(1, 200), st.integers(1, 8), st.sampled_from(["slice", "largest"]), DEMANDS)
def test_a_wish_gets_at_least_what_it_asks_for(
    snapshot: Snapshot, memory: int, compute: int, kind: str, demand: Demand
) -> None:
    if kind == "slice":
        request = request_for("slice", memory, compute, 1, EVERYWHERE, frozenset())
    else:
        request = request_for("whole", memory, compute, 1, EVERYWHERE, EVERYWHERE)
    answer = place(request, snapshot, demand)
    if not isinstance(answer, Placement):
        assert answer.sentence.endswith(".") and answer.rule
        return
    (device,) = answer.devices
    gpu = snapshot.gpu(device.gpu_uuid)
    profile = named(gpu, device.profile or "")
    assert profile is not None
    big = int(profile.name.split(".")[1].removesuffix("gb"))
    assert big >= memory and profile.compute_slices >= compute
    smaller = [p for p in gpu.profiles if p.name.endswith("gb") and p.size < profile.size]
    if kind == "slice":
        assert not [
            p
            for p in smaller
            if int(p.name.split(".")[1].removesuffix("gb")) >= memory and p.compute_slices >= compute
        ]
    else:
        assert profile.size == gpu.axis


@settings(max_examples=100, deadline=None)
@given(fleets(), st.sampled_from(NAMES), DEMANDS)
def test_the_same_question_gets_the_same_answer(snapshot: Snapshot, name: str, demand: Demand) -> None:
    again = Snapshot(tuple(replace(gpu) for gpu in snapshot.gpus))
    place(wanting(name), again, Demand.uniform())
    assert place(wanting(name), snapshot, demand) == place(wanting(name), again, demand)
