"""The bootstrap of bench-spawn: paired rounds, an interval around the ratio."""

from __future__ import annotations

import pytest
from allotment_testing.spawn_bench.statistics import compare


def test_a_constant_factor_has_an_interval_of_no_width() -> None:
    stock = [2.0, 3.0, 2.5, 4.0, 2.2]
    found = compare([0.8 * value for value in stock], stock)
    assert found.ratio == pytest.approx(0.8)
    assert [found.low, found.high] == pytest.approx([0.8, 0.8])


def test_the_interval_holds_the_ratio_and_grows_with_the_noise() -> None:
    stock = [2.0, 2.1, 1.9, 2.2, 2.0, 2.1]
    calm = compare([1.6, 1.7, 1.5, 1.8, 1.6, 1.7], stock)
    wild = compare([1.0, 2.6, 1.2, 2.4, 1.6, 1.7], stock)
    for found in (calm, wild):
        assert found.low <= found.ratio <= found.high
    assert wild.high - wild.low > calm.high - calm.low


def test_rounds_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="as many rounds"):
        compare([1.0], [1.0, 2.0])
