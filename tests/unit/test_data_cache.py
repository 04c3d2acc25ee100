"""The cache's folders and the choice of what leaves it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from allotment_hub.data.cache import Cache, key_of
from allotment_hub.data.shelf import Kept, choose, over_bytes
from allotment_hub.data.spec import Manifest
from hypothesis import given
from hypothesis import strategies as st

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def kept(name: str, size: int, hours: int, *, held: bool = False) -> Kept:
    return Kept(name, size, T0 + timedelta(hours=hours), held)


def test_the_least_recently_used_leave_first_and_held_ones_never() -> None:
    shelf = [kept("new", 5, 3), kept("old", 5, 1), kept("pinned", 50, 0, held=True), kept("middle", 5, 2)]
    assert choose(shelf, 0) == ()
    assert choose(shelf, 1) == ("old",)
    assert choose(shelf, 6) == ("old", "middle")
    assert choose(shelf, 15) == ("old", "middle", "new")
    assert choose(shelf, 16) is None


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50), st.booleans()), max_size=12),
    st.integers(0, 500),
)
def test_what_leaves_is_enough_and_no_more_than_needed(rows: list[tuple[int, int, bool]], over: int) -> None:
    shelf = [kept(f"d{n}", size, hours, held=held) for n, (size, hours, held) in enumerate(rows)]
    by_name = {one.name: one for one in shelf}
    chosen = choose(shelf, over)
    free = [one for one in shelf if not one.held]
    if chosen is None:
        assert sum(one.bytes for one in free) < over
        return
    sizes = [by_name[name].bytes for name in chosen]
    assert sum(sizes) >= over
    assert not sizes or sum(sizes[:-1]) < over
    assert not any(by_name[name].held for name in chosen)
    times = [by_name[name].used_at for name in chosen]
    assert times == sorted(times)


def test_both_the_limit_and_the_floor_ask_for_room() -> None:
    plenty = {"limit_bytes": 100, "free_bytes": 1000, "floor_bytes": 10}
    assert over_bytes(used_bytes=50, need_bytes=50, **plenty) == 0
    assert over_bytes(used_bytes=50, need_bytes=51, **plenty) == 1
    assert over_bytes(used_bytes=0, need_bytes=5, limit_bytes=100, free_bytes=12, floor_bytes=10) == 3


def test_another_source_is_another_content() -> None:
    first = key_of("iris", "https://a/x", None, unpack=False)
    assert first.startswith("iris-")
    keys = {
        first,
        key_of("iris", "https://b/x", None, unpack=False),
        key_of("iris", "https://a/x", "0" * 64, unpack=False),
        key_of("iris", "https://a/x", None, unpack=True),
    }
    assert len(keys) == 4
    assert key_of("iris", "https://a/x", None, unpack=False) == first


def fill(cache: Cache, key: str) -> None:
    work = cache.work_folder(key)
    (work / "data").mkdir(parents=True)
    (work / "data/x").write_text(key)
    told = Manifest(checksum="0" * 64, size_bytes=1, files=1)
    (work / "manifest.json").write_text(told.model_dump_json())


def test_only_what_is_whole_is_there(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.open()
    fill(cache, "a-1")
    assert cache.manifest("a-1") is None
    cache.adopt("a-1")
    assert cache.manifest("a-1") is not None
    assert (cache.data_folder("a-1") / "x").read_text() == "a-1"
    cache.drop("a-1")
    assert cache.manifest("a-1") is None
    assert len(list((cache.root / "trash").iterdir())) == 1
    cache.empty_trash()
    assert list((cache.root / "trash").iterdir()) == []


def test_a_newer_content_of_the_same_key_takes_the_place(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.open()
    for _ in range(2):
        fill(cache, "a-1")
        cache.adopt("a-1")
    assert cache.manifest("a-1") is not None


def test_the_sweep_leaves_what_is_known_and_bins_the_rest(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.open()
    for key in ("a-1", "b-1", "c-1"):
        fill(cache, key)
    cache.adopt("a-1")
    cache.adopt("b-1")
    fill(cache, "d-1")
    cache.sweep(ready={"a-1"}, work={"c-1"})
    assert sorted(path.name for path in (tmp_path / "ready").iterdir()) == ["a-1"]
    assert sorted(path.name for path in (tmp_path / "tmp").iterdir()) == ["c-1"]
    cache.empty_trash()
    assert list((tmp_path / "trash").iterdir()) == []


def test_removing_follows_no_link(tmp_path: Path) -> None:
    """Nothing of ours makes one; if one is there all the same, what it leads to stays."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/x").write_text("x")
    cache = Cache(tmp_path / "cache")
    cache.open()
    fill(cache, "a-1")
    cache.adopt("a-1")
    (cache.data_folder("a-1") / "way-out").symlink_to(tmp_path / "precious")
    cache.drop("a-1")
    cache.empty_trash()
    assert (tmp_path / "precious/x").read_text() == "x"


def test_what_others_left_in_the_cache_goes_and_keeps_nothing_from_use(tmp_path: Path) -> None:
    """A file of the file manager, a link, and what cannot be removed: datasets come and go all the same."""
    cache = Cache(tmp_path / "cache")
    cache.open()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    (tmp_path / "cache/ready/.DS_Store").write_text("x")
    (tmp_path / "cache/tmp/link").symlink_to(outside)
    (tmp_path / "cache/trash/nowhere").symlink_to("nowhere")
    (tmp_path / "cache/trash/old").mkdir()
    cache.sweep(ready=[], work=[])
    assert cache.empty_trash() == []
    assert [list((tmp_path / "cache" / part).iterdir()) for part in ("ready", "tmp", "trash")] == [[], [], []]
    assert (outside / "file").read_text() == "stays"


def test_what_cannot_be_removed_is_told_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    cache.open()
    for name in ("a-stuck", "b"):
        (tmp_path / "cache/trash" / name).mkdir()
    remove = shutil.rmtree

    def busy(folder: Path) -> None:
        if folder.name == "a-stuck":
            raise OSError(16, "Device or resource busy", str(folder))
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", busy)
    (error,) = cache.empty_trash()
    assert error.errno == 16
    assert [one.name for one in (tmp_path / "cache/trash").iterdir()] == ["a-stuck"]
