"""Masks, and what a GPU is worth to those who come next, on axes of 4, 8 and 12."""

from __future__ import annotations

import pytest
from allotment_spawner.core.demand import Demand
from allotment_spawner.core.geometry import (
    Geometry,
    axis_of,
    geometry_of,
    mask,
    most_disjoint,
)
from allotment_spawner.core.lookahead import Lookahead
from allotment_spawner.gpu.simulator.models import known_models, model
from allotment_testing.allocation.models import profiles_of
from allotment_testing.allocation.strategies import most, ordinary
from hypothesis import given, settings
from hypothesis import strategies as st


def geometry(key: str) -> Geometry:
    return geometry_of(model(key).axis, profiles_of(key))


@given(st.integers(0, 11), st.integers(1, 12))
def test_mask_is_the_slices(start: int, size: int) -> None:
    bits = mask(start, size)
    assert [number for number in range(24) if bits >> number & 1] == list(range(start, start + size))


@given(st.sampled_from(known_models()), st.integers(0, 4095), st.data())
def test_most_disjoint_is_the_best_that_can_be(key: str, taken: int, data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(ordinary(key)))
    busy = {number for number in range(12) if taken >> number & 1}
    assert most_disjoint(profile.starts, profile.size, taken) == most(profile.starts, profile.size, busy)


def test_overlapping_starts_are_counted_once() -> None:
    assert most_disjoint((2, 0, 1), 2, 0) == 2
    assert most_disjoint((2, 0, 1), 2, 0b1000) == 1


@pytest.mark.parametrize("key", known_models())
def test_axes_are_4_8_or_12_and_shared(key: str) -> None:
    assert geometry(key).axis.length in {4, 8, 12}
    assert geometry(key) is geometry_of(model(key).axis, tuple(profiles_of(key)))
    assert "+me" not in "".join(geometry(key).names)


def test_models_that_differ_only_in_memory_share_an_axis() -> None:
    assert geometry("A100-80GB").axis is geometry("H100-SXM-80GB").axis
    assert geometry("A100-80GB").axis is not geometry("A30-24GB").axis


@settings(deadline=None)
@given(st.sampled_from(known_models()), st.integers(0, 4095), st.integers(0, 4095), st.data())
def test_taking_more_is_never_worth_more(key: str, taken: int, more: int, data: st.DataObject) -> None:
    made = geometry(key)
    counts = {name: data.draw(st.integers(0, 20)) for name in made.names}
    ahead = Lookahead(axis=made.axis, shares=Demand.from_recent(counts).shares(made.names))
    assert ahead.worth(taken | more) <= ahead.worth(taken) + 1e-9
    assert ahead.worth((1 << made.axis.length) - 1) == 0


@pytest.mark.parametrize(("size", "expected"), [(1, 8.0), (2, 4.0), (8, 1.0)])
def test_an_empty_gpu_serves_as_many_as_fit_when_all_want_the_same(size: int, expected: float) -> None:
    axis = axis_of(8, (tuple(mask(start, size) for start in range(0, 8, size)),))
    assert Lookahead(axis=axis, shares=(1.0,)).worth(0) == expected


def test_worth_is_the_expected_run_before_a_refusal() -> None:
    # A whole and a half, equally likely. Empty: whole first (1/2) then nothing fits: 1.
    # Half first (1/2): 1, then another half with 1/2: 1 + 1/2 * 1. Together 1/2 * 1 + 1/2 * 1.5.
    axis = axis_of(2, ((0b11,), (0b01, 0b10)))
    assert Lookahead(axis=axis, shares=(0.5, 0.5)).worth(0) == pytest.approx(1.25)


def test_options_are_legal_and_cheapest_first() -> None:
    made = geometry("A100-80GB")
    profile = made.profiles["1g.10gb"]
    options = Lookahead(axis=made.axis, shares=Demand.uniform().shares(made.names)).options(profile, 0b1)
    assert sorted(option.start for option in options) == [1, 2, 3, 4, 5, 6]
    assert [option.cost for option in options] == sorted(option.cost for option in options)
    assert all(option.bits == 1 << option.start for option in options)


def test_demand_is_kept_in_proportions() -> None:
    few, many = Demand.from_recent({"a": 3, "b": 1}), Demand.from_recent({"a": 300, "b": 100})
    assert few.shares(["a", "b"]) == many.shares(["a", "b"]) == (0.75, 0.25)
    assert 0 < few.shares(["a", "b", "c"])[2] < 0.06
    assert Demand.from_recent({"a": 1000, "b": 1}).shares(["a", "b"])[1] > 0
    assert Demand.from_recent({}).shares(["a", "b"]) == (0.5, 0.5)
    assert Demand({}, other=0.0).shares(["a", "b"]) == (0.5, 0.5)
    with pytest.raises(ValueError, match="negative"):
        Demand({"a": -1.0})
