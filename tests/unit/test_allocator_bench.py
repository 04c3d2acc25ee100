"""The benchmark itself: same arrivals for all, legal baselines, right intervals."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from allotment_testing.allocation.arrivals import MIXES, Cell, arrival_rate, arrivals
from allotment_testing.allocation.loss import MODEL, OURS, Outcome, run_cell, simulate
from allotment_testing.allocation.models import gpu, profiles_of
from allotment_testing.allocation.paired import compare
from allotment_testing.allocation.policies import BASELINES, Allocator, Policy, Spot, request_of
from allotment_testing.allocation.timing import FLEET, decision_times

CELL = Cell(3, "uniform", 1.0)
PROFILES = {profile.name: profile for profile in profiles_of(MODEL)}


class Watched:
    """Hands on to a policy, and fails when it gives out what is illegal or taken."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._held: set[tuple[int, int]] = set()

    def choose(self, profile: str) -> Spot | None:
        spot = self._policy.choose(profile)
        if spot is not None:
            size = PROFILES[profile].size
            assert spot.profile == profile and spot.start in PROFILES[profile].starts
            assert spot.bits == ((1 << size) - 1) << spot.start
            mine = self._slices(spot)
            assert not mine & self._held
            self._held |= mine
        return spot

    def release(self, spot: Spot) -> None:
        self._held -= self._slices(spot)
        self._policy.release(spot)

    def _slices(self, spot: Spot) -> set[tuple[int, int]]:
        return {(spot.gpu, spot.start + number) for number in range(spot.bits.bit_count())}


@pytest.mark.parametrize("name", [OURS, *BASELINES])
def test_policies_hand_out_what_is_legal_and_free(name: str) -> None:
    fleet = [gpu(number) for number in range(CELL.gpus)]
    made = Allocator(gpus=fleet) if name == OURS else BASELINES[name](CELL.gpus, profiles_of(MODEL))
    outcome = simulate(Watched(made), CELL, 1, count=300)
    assert 0 < outcome.accepted <= 100 and 0 < outcome.used <= 100


def test_every_shape_of_a_mix_is_reachable_by_a_wish() -> None:
    for mix in MIXES.values():
        assert sum(mix.values()) == pytest.approx(1)
        for name in mix:
            policy = Allocator(gpus=[gpu(0)])
            spot = policy.choose(name)
            assert spot is not None and spot.profile == name
            assert request_of(PROFILES[name]).candidates


def test_arrivals_are_the_same_for_all_and_ask_for_the_load() -> None:
    rate = arrival_rate(CELL, PROFILES, 8)
    first = list(islice(arrivals(CELL, 7, rate), 4000))
    assert first == list(islice(arrivals(CELL, 7, rate), 4000))
    assert first != list(islice(arrivals(CELL, 8, rate), 4000))
    assert all(one.at < two.at for one, two in pairwise(first))
    asked = sum(PROFILES[arrival.profile].size * arrival.holds for arrival in first) / first[-1].at
    assert asked == pytest.approx(8 * CELL.gpus * CELL.load, rel=0.1)


def test_a_cell_is_reproducible() -> None:
    once = run_cell(CELL, 3, count=200)
    assert once == run_cell(CELL, 3, count=200)
    assert set(once) == {OURS, *BASELINES}
    assert all(isinstance(outcome, Outcome) for outcome in once.values())


def test_the_interval_is_of_paired_differences() -> None:
    ours, theirs = [10.0, 20.0, 30.0], [9.0, 18.0, 27.0]
    result = compare(ours, {"weak": [0.0, 0.0, 0.0], "strong": theirs}, comparisons=1)
    assert (result.best, result.difference) == ("strong", 2.0)
    # Mean 2, standard deviation 1, t(0.975, 2) = 4.3027.
    assert result.low == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-3)
    assert result.verdict == "same"
    corrected = compare(ours, {"strong": theirs}, comparisons=48)
    assert corrected.low < result.low and corrected.low_alone == result.low
    clear = compare([5.0, 5.1, 5.2], {"strong": [1.0, 1.1, 1.2]}, comparisons=48)
    assert clear.verdict == "better"
    assert compare([1.0, 1.1, 1.2], {"strong": [5.0, 5.1, 5.2]}, comparisons=48).verdict == "worse"
    with pytest.raises(ValueError, match="two seeds"):
        compare([1.0], {"strong": [1.0]}, comparisons=1)


def test_decisions_are_timed_on_a_busy_fleet() -> None:
    times = decision_times(decisions=20, seed=1, shattered=True)
    assert times.decisions == 20 and times.fleet == "shattered"
    assert times.states > FLEET / 10
    assert 0 < times.cpu_p50 <= times.cpu_p99 <= times.cpu_max
