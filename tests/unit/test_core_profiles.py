"""Which profile a wish for memory and compute maps to, on every known GPU model."""

from __future__ import annotations

import pytest
from allotment_spawner.core.inventory import Profile
from allotment_spawner.core.profiles import choose, is_plain, largest, nominal_memory_gb
from allotment_spawner.gpu.simulator.models import known_models
from allotment_testing.allocation.models import profiles_of

# The three slices of the default catalogue: 10 GB, 20 GB with 2 compute slices, 40 GB with 3.
CATALOGUE = {
    "A30-24GB": ("2g.12gb", "4g.24gb", None),
    "A100-40GB": ("1g.10gb", "3g.20gb", "7g.40gb"),
    "A100-80GB": ("1g.10gb", "2g.20gb", "3g.40gb"),
    "H100-SXM-80GB": ("1g.10gb", "2g.20gb", "3g.40gb"),
    "H100-PCIe-80GB": ("1g.10gb", "2g.20gb", "3g.40gb"),
    "H100-NVL-94GB": ("1g.12gb", "2g.24gb", "3g.47gb"),
    "GH200-96GB": ("1g.12gb", "2g.24gb", "3g.48gb"),
    "GH200-144GB": ("1g.18gb", "2g.36gb", "3g.72gb"),
    "H200-141GB": ("1g.18gb", "2g.35gb", "3g.71gb"),
    "B200-180GB": ("1g.23gb", "2g.45gb", "3g.90gb"),
    "GB200-186GB": ("1g.23gb", "2g.47gb", "3g.93gb"),
    "RTX-PRO-6000-Blackwell-96GB": ("1g.24gb", "2g.48gb", "4g.96gb"),
}


def test_every_known_model_is_here() -> None:
    assert set(CATALOGUE) == set(known_models())


@pytest.mark.parametrize("key", known_models())
def test_the_default_catalogue_maps_to_every_model(key: str) -> None:
    chosen = [choose(profiles_of(key), *wish) for wish in ((10, 1), (20, 2), (40, 3))]
    assert tuple(profile and profile.name for profile in chosen) == CATALOGUE[key]


@pytest.mark.parametrize("key", known_models())
def test_largest_is_the_whole_axis(key: str) -> None:
    best = largest(profiles_of(key))
    assert best is not None
    assert best.starts == (0,) and best.size == max(profile.size for profile in profiles_of(key))


def test_variants_are_never_chosen() -> None:
    for name in ("1g.10gb+me", "1g.24gb-me", "1g.24gb+gfx", "1g.24gb+me.all"):
        assert not is_plain(name)
    assert is_plain("1g.10gb")
    only_media = [profile for profile in profiles_of("A100-80GB") if profile.media]
    assert only_media and choose(only_media, 1, 1) is None and largest(only_media) is None


def test_more_compute_can_be_asked_for_than_memory_needs() -> None:
    profiles = profiles_of("A100-80GB")
    names = {compute: choose(profiles, 20, compute) for compute in (1, 2, 3, 4, 5, 8)}
    assert [profile and profile.name for profile in names.values()] == [
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
        None,
    ]


def test_a_name_without_memory_gives_the_drivers() -> None:
    odd = Profile("odd", 1, 23_900_000_000, 1, 1, (0,), 1)
    assert nominal_memory_gb(odd) == 24
    assert nominal_memory_gb(profiles_of("A100-80GB")[0]) == 10
