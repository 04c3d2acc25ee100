"""Homes, data and versions in the words of the form; a link that meets a hub without our pages."""

from __future__ import annotations

from typing import Any

import pytest
from allotment_spawner.spawners.belongings import bytes_in_words, dataset_line, home_line
from allotment_spawner.spawners.local import GpuLocalSpawner
from allotment_spawner.spawners.versions import version_options
from allotment_spawner.wire import DatasetView, EnvironmentView, VersionView
from allotment_testing.fake_things import NEWER, OLDER, RETIRED, some_datasets, some_home, some_versions
from jupyterhub.spawner import SpawnException

GIB = 2**30


def environment(*versions: VersionView) -> EnvironmentView:
    return EnvironmentView(
        id="pytorch",
        title="PyTorch",
        description="",
        packages={},
        image=None,
        available=True,
        reason=None,
        versions=versions,
    )


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 kB"),
        (1536, "1.5 kB"),
        (200 * 2**20, "200 MB"),
        (3 * GIB, "3 GB"),
        (2**60, "1024 PB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    assert bytes_in_words(count) == words


def test_how_full_a_home_is() -> None:
    assert home_line(some_home("ann")) == {
        "percent": 30,
        "line": "3 GB of 10 GB used (30 %), 1,200 files.",
    }
    unknown = home_line(some_home("ann", used_bytes=None))
    assert unknown == {"percent": None, "line": "How full your home is, is not known yet."}
    unlimited = some_home("ann").model_copy(update={"limit_bytes": None, "files": 1})
    assert home_line(unlimited) == {"percent": None, "line": "3 GB used, 1 file."}
    over = some_home("ann", used_bytes=12 * GIB)
    assert home_line(over)["percent"] == 100


def test_how_far_data_is() -> None:
    ready, absent, fetching, failed = some_datasets()
    assert dataset_line(ready) == "Ready · 4 GB"
    assert dataset_line(absent) == "Fetched before your session starts · 4 GB"
    assert dataset_line(fetching) == "Being fetched: 25 % · 4 GB"
    assert dataset_line(failed) == "The server that has it answers 404."

    def but(one: DatasetView, **changes: Any) -> str:
        return dataset_line(one.model_copy(update=changes))

    assert but(absent, size_bytes=None) == "Fetched before your session starts"
    assert but(fetching, size_bytes=None) == "Being fetched: 1 GB so far"
    assert but(fetching, got_bytes=None) == "Being fetched · 4 GB"
    assert but(failed, reason=None) == "It could not be fetched."


def test_there_is_nothing_to_choose_among_one_version() -> None:
    newest, _, retired = some_versions()
    assert version_options(environment(), None) is None
    assert version_options(environment(newest), OLDER) is None
    assert version_options(environment(newest, retired), None) is None


def test_a_newer_version_is_offered_and_not_forced() -> None:
    found = version_options(environment(*some_versions()), OLDER)
    assert found is not None
    assert found["news"].startswith("A newer version is here.")
    assert [(one["value"], one["checked"]) for one in found["options"]] == [("", False), (OLDER, True)]
    assert found["options"][0]["changes"] == "numpy 2.3.0 → 2.4.0"
    fresh = version_options(environment(*some_versions()), NEWER)
    assert fresh is not None
    assert (fresh["news"], fresh["options"][0]["checked"]) == (None, True)


def test_what_replaces_a_retired_version_is_said() -> None:
    newest, _, retired = some_versions()
    found = version_options(environment(newest, retired), RETIRED)
    assert found is not None
    assert found["news"] == (
        "The version that you used last (0.1.0-cpu) was retired; the newest one replaces it."
    )
    assert [one["value"] for one in found["options"]] == [""]


def test_many_changes_are_cut_short() -> None:
    newest, older, _ = some_versions()
    packages = {f"p{number}": "2" for number in range(9)}
    before = {**dict.fromkeys(packages, "1"), "gone": "1"}
    found = version_options(
        environment(
            newest.model_copy(update={"packages": packages}), older.model_copy(update={"packages": before})
        ),
        OLDER,
    )
    assert found is not None
    assert found["options"][0]["changes"] == "p0 1 → 2, p1 1 → 2, p2 1 → 2, p3 1 → 2 and 6 more"


def test_a_link_starts_nothing_where_the_hub_s_own_page_comes_first() -> None:
    with pytest.raises(SpawnException, match="nothing was started"):
        GpuLocalSpawner().options_from_query({"flavor": ["gpu-full"]})
