"""Trees that somebody filled to do harm: links, depth, a million names, second names of files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from allotment_spawner.disk.walk import measure, open_folder, walk
from allotment_spawner.disk.wipe import wipe


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "thesis").write_text("kept")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def wiped(tree: Path) -> None:
    descriptor = open_folder(tree)
    try:
        wipe(descriptor)
    finally:
        os.close(descriptor)


def deep(tree: Path, depth: int) -> None:
    """A chain of folders longer than any path may be."""
    inside = open_folder(tree)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inside)
        inner = open_folder("d", inside=inside)
        os.close(inside)
        inside = inner
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=inside))
    os.close(inside)


def test_links_are_removed_and_never_followed(tree: Path, victim: Path) -> None:
    (tree / "to-folder").symlink_to(victim)
    (tree / "to-file").symlink_to(victim / "thesis")
    (tree / "to-nothing").symlink_to("/nonexistent/x")
    (tree / "sub").mkdir()
    (tree / "sub" / "up").symlink_to("..")
    os.link(victim / "thesis", tree / "second-name")
    os.mkfifo(tree / "pipe")
    (tree / "closed").mkdir()
    (tree / "closed" / "file").write_text("x")
    (tree / "closed").chmod(0)
    wiped(tree)
    assert list(tree.iterdir()) == []
    assert (victim / "thesis").read_text() == "kept"


def test_a_folder_swapped_for_a_link_while_it_is_wiped_leads_nowhere(tree: Path, victim: Path) -> None:
    """The worst moment: after the look that said it is a folder."""
    for number in range(1500):
        (tree / f"f{number}").write_text("")
    (tree / "zzz").mkdir()
    (tree / "zzz" / "inside").write_text("x")

    def swap() -> None:
        if (tree / "zzz").is_dir() and not (tree / "zzz").is_symlink():
            (tree / "zzz").rename(tree / "moved")
            (tree / "zzz").symlink_to(victim)

    descriptor = open_folder(tree)
    wipe(descriptor, between=swap)
    os.close(descriptor)
    assert (victim / "thesis").read_text() == "kept"
    assert list(tree.iterdir()) == []


def test_depth_costs_neither_recursion_nor_descriptors(tree: Path) -> None:
    deep(tree, 5000)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 300, before[1]))
    try:
        descriptor = open_folder(tree)
        assert measure(descriptor).files == 5001
        wipe(descriptor)
        os.close(descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert list(tree.iterdir()) == []


def test_names_that_are_no_text(tree: Path) -> None:
    (tree / os.fsdecode(b"\xff\xfe")).write_text("x")
    (tree / "line\nbreak").mkdir()
    wiped(tree)
    assert list(tree.iterdir()) == []


def test_a_wipe_can_be_stopped_and_goes_on_later(tree: Path) -> None:
    for number in range(3000):
        (tree / f"f{number}").write_text("")

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    descriptor = open_folder(tree)
    with pytest.raises(Stop):
        wipe(descriptor, between=stop)
    assert 0 < len(list(tree.iterdir())) < 3000
    wipe(descriptor)
    os.close(descriptor)
    assert list(tree.iterdir()) == []


def test_a_second_name_of_a_file_counts_once_and_a_hole_nothing(tree: Path) -> None:
    (tree / "file").write_bytes(b"x" * 1_000_000)
    os.link(tree / "file", tree / "again")
    with (tree / "hole").open("wb") as stream:
        stream.truncate(10**12)
    descriptor = open_folder(tree)
    count = measure(descriptor)
    os.close(descriptor)
    assert count.files == 3
    assert 1_000_000 <= count.used_bytes < 1_200_000


def test_walking_leaves_no_descriptor_open(tree: Path) -> None:
    deep(tree, 200)
    descriptor = open_folder(tree)
    before = open_files()
    for count, _ in enumerate(walk(descriptor)):
        if count == 150:
            break
    for _ in walk(descriptor):
        pass
    assert open_files() <= before + 1
    os.close(descriptor)
    wiped(tree)
