"""Folders of this machine as sources: links and second names are refused, nothing is fetched twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from allotment_hub.data.fetch import fetch
from allotment_hub.data.journal import Journal
from allotment_hub.data.partial import Received
from allotment_hub.data.path_source import PathSource
from allotment_hub.data.sources import Entry, Opened
from allotment_hub.data.spec import Manifest
from allotment_hub.data.tree import checked
from allotment_spawner.core.errors import DatasetUnavailable, Refusal
from allotment_testing.fetch_spec import fetch_spec


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    folder = tmp_path / "allowed"
    (folder / "set/deep").mkdir(parents=True)
    (folder / "set/a.csv").write_text("1,2\n")
    (folder / "set/deep/b.bin").write_bytes(bytes(range(256)) * 9000)
    (tmp_path / "secret").write_text("a password")
    return folder


async def fetched(tmp_path: Path, source: Path, allowed: Path) -> Manifest:
    return await fetch(fetch_spec(tmp_path, str(source), allow_paths=(str(allowed),)))


async def test_a_folder_and_a_file(tmp_path: Path, allowed: Path) -> None:
    manifest = await fetched(tmp_path, allowed / "set", allowed)
    assert manifest.files == 2
    data = tmp_path / "work/data"
    assert (data / "deep/b.bin").read_bytes() == (allowed / "set/deep/b.bin").read_bytes()
    assert (data / "a.csv").stat().st_mode & 0o777 == 0o644
    one = tmp_path / "one"
    one.mkdir()
    assert (await fetched(one, allowed / "set/a.csv", allowed)).size_bytes == 4
    assert (one / "work/data/a.csv").read_text() == "1,2\n"


async def test_the_sum_of_a_folder_is_of_names_sizes_and_contents(tmp_path: Path, allowed: Path) -> None:
    first = await fetched(tmp_path / "1", allowed / "set", allowed)
    (allowed / "set/a.csv").rename(allowed / "set/c.csv")
    second = await fetched(tmp_path / "2", allowed / "set", allowed)
    assert (first.size_bytes, first.files) == (second.size_bytes, second.files)
    assert first.checksum != second.checksum


@pytest.mark.parametrize("trick", ["link", "folder link", "hard link", "fifo", "deep link"])
async def test_what_is_no_plain_file_is_refused(tmp_path: Path, allowed: Path, trick: str) -> None:
    place = allowed / "set" / "trick"
    if trick == "link":
        place.symlink_to(tmp_path / "secret")
    elif trick == "folder link":
        place.symlink_to(tmp_path)
    elif trick == "hard link":
        place.hardlink_to(tmp_path / "secret")
    elif trick == "fifo":
        os.mkfifo(place)
    else:
        (allowed / "set/deep/trick").symlink_to("/etc/passwd")
    with pytest.raises(DatasetUnavailable, match="trick"):
        await fetched(tmp_path, allowed / "set", allowed)
    assert not (tmp_path / "work/data").exists()


async def test_a_way_through_a_link_is_refused(tmp_path: Path, allowed: Path) -> None:
    (allowed / "out").symlink_to(tmp_path)
    (allowed / "same").symlink_to("set")
    for source in ("out/secret", "out", "same", "same/a.csv"):
        with pytest.raises(Refusal, match="link"):
            await fetched(tmp_path, allowed / source, allowed)


async def test_a_folder_swapped_for_a_link_meanwhile_leads_nowhere(tmp_path: Path, allowed: Path) -> None:
    """The list was made; before the file is opened, its folder becomes a link to where secrets are."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.bin").write_text("a password")
    source = PathSource(str(allowed / "set"), root=str(allowed), file_name="set")
    shutil.rmtree(allowed / "set/deep")
    (allowed / "set/deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="link"):
        async with source.open(Entry("set/deep/b.bin", "deep/b.bin"), offset=0, tag=None):
            raise AssertionError("opened")


async def test_what_is_not_there_is_said(tmp_path: Path, allowed: Path) -> None:
    for source in ("none", "none/x", "set/none"):
        with pytest.raises(DatasetUnavailable, match="does not have it"):
            await fetched(tmp_path, allowed / source, allowed)


@pytest.mark.parametrize(
    "name", ["", "/x", "a/../b", "..", "a//b", "a/./b", "a\x00b", "a\\b", "é" * 130, "a/" * 65]
)
def test_names_that_are_not_taken(name: str) -> None:
    with pytest.raises(DatasetUnavailable):
        checked(name + "x" if name.endswith("a/") else name)


class CountsWhatIsOpened:
    """Three files of which a listing tells the versions."""

    def __init__(self) -> None:
        self.files = {"a": b"aa", "d/b": b"bb", "d/c": b"cc"}
        self.opened: list[str] = []
        self.fails_at: str | None = None

    async def entries(self) -> AsyncIterator[Entry]:
        async def listed() -> AsyncIterator[Entry]:
            for name, body in self.files.items():
                yield Entry(key=name, name=name, version=body.decode())

        return listed()

    @asynccontextmanager
    async def open(self, entry: Entry, *, offset: int, tag: str | None) -> AsyncIterator[Opened]:
        if entry.name == self.fails_at:
            raise RuntimeError("killed here")
        self.opened.append(entry.name)
        body = self.files[entry.name]

        async def chunks() -> AsyncIterator[bytes]:
            yield body

        yield Opened(0, len(body), None, chunks())

    async def close(self) -> None:
        return None


async def test_a_folder_that_was_interrupted_keeps_its_finished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CountsWhatIsOpened()
    monkeypatch.setattr("allotment_hub.data.fetch._reader", lambda _spec, _source: source)
    told = fetch_spec(tmp_path, "https://example.org/x")
    source.fails_at = "d/c"
    with pytest.raises(RuntimeError):
        await fetch(told)
    assert source.opened == ["a", "d/b"]
    # meanwhile one was damaged on our disk, one is another at the source, and one is gone there
    (tmp_path / "work/data/a").write_bytes(b"a?")
    source.files["d/b"] = b"newer"
    source.fails_at = None
    source.opened.clear()
    first = await fetch(told)
    assert source.opened == ["a", "d/b", "d/c"]
    assert first.files == 3
    other = fetch_spec(tmp_path / "other", "https://example.org/x")
    source.fails_at = "d/c"
    with pytest.raises(RuntimeError):
        await fetch(other)
    del source.files["d/b"]
    source.fails_at = None
    source.opened.clear()
    assert (await fetch(other)).files == 2
    assert source.opened == ["d/c"]
    assert not (tmp_path / "other/work/data/d/b").exists()


def test_a_half_written_journal_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_bytes(b"")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    journal = Journal(tmp_path / "journal", data=tmp_path / "data")
    journal.add(Entry("a", "a", "1"), Received(0, empty))
    with (tmp_path / "journal").open("a") as target:
        target.write('["b", "1", 3, "ab')
    again = Journal(tmp_path / "journal", data=tmp_path / "data")
    assert again.had(Entry("a", "a", "1")) == Received(0, empty)
    assert again.had(Entry("a", "a", "2")) is None
    assert again.had(Entry("b", "b", "1")) is None
    again.add(Entry("c", "c", "1"), Received(0, empty))
    assert len((tmp_path / "journal").read_text().splitlines()) == 3
