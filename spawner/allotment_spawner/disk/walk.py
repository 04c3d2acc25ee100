"""Walks and measures folders that others fill: never follows a link, never leaves the folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Count", "Moved", "measure", "names_in", "open_folder", "walk"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BATCH = 1000
_BLOCK = 512
_OPEN = 64
"""How many levels are open at once; however deep somebody's folders are."""


class Moved(Exception):
    """The tree was changed so while it was walked that the way back is lost; nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Count:
    """`used_bytes` as the disk counts them (a hole is nothing, a second name of a file nothing more)."""

    used_bytes: int
    files: int


@dataclass(slots=True)
class _Level:
    folder: int | None
    """Its descriptor; None while far above where the walk is."""
    key: tuple[int, int]
    left: list[str] = field(default_factory=list)
    """Folders inside that are still to be entered."""


def open_folder(name: str | os.PathLike[str], *, inside: int | None = None) -> int:
    """A descriptor of this folder; OSError (ELOOP, ENOTDIR) for a link or anything else."""
    return os.open(name, _FOLDER, dir_fd=inside)


def names_in(descriptor: int) -> list[str]:
    """What the folder holds, without `.` and `..`."""
    with os.scandir(descriptor) as entries:
        return [entry.name for entry in entries]


def walk(descriptor: int) -> Iterator[tuple[int, str, os.stat_result]]:
    """(descriptor of the folder, name, lstat) of everything below; valid until the next step.

    Names that vanish meanwhile are left out. OSError where we may not look; `Moved`.
    """
    levels = [_level(os.dup(descriptor))]
    try:
        yield from _entries(levels[0])
        while levels:
            level = levels[-1]
            if not level.left:
                _back(levels)
                continue
            inner = _enter(level)
            if inner is None:
                continue
            levels.append(_level(inner))
            if len(levels) > _OPEN:
                _close(levels[-_OPEN])
            yield from _entries(levels[-1])
    finally:
        for level in levels:
            _close(level)


def _level(folder: int) -> _Level:
    found = os.fstat(folder)
    return _Level(folder, (found.st_dev, found.st_ino))


def _entries(level: _Level) -> Iterator[tuple[int, str, os.stat_result]]:
    assert level.folder is not None
    with os.scandir(level.folder) as entries:
        for entry in entries:
            try:
                found = os.stat(entry.name, dir_fd=level.folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(found.st_mode):
                level.left.append(entry.name)
            yield level.folder, entry.name, found


def _enter(level: _Level) -> int | None:
    """None when it is gone, or a folder no more."""
    try:
        return open_folder(level.left.pop(), inside=level.folder)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _back(levels: list[_Level]) -> None:
    """One level up; by `..` where the level above was closed, and only if that is still the same folder."""
    done = levels.pop()
    try:
        if levels and levels[-1].folder is None:
            above = open_folder("..", inside=done.folder)
            levels[-1].folder = above
            if _level(above).key != levels[-1].key:
                raise Moved
    finally:
        _close(done)


def _close(level: _Level) -> None:
    if level.folder is not None:
        os.close(level.folder)
        level.folder = None


def measure(descriptor: int, *, between: Callable[[], None] = lambda: None) -> Count:
    """Everything below. `between` is called after every thousand names, and may raise."""
    used, files = os.fstat(descriptor).st_blocks * _BLOCK, 0
    seen: set[tuple[int, int]] = set()
    for _, _, found in walk(descriptor):
        files += 1
        if files % _BATCH == 0:
            between()
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
        used += found.st_blocks * _BLOCK
    return Count(used_bytes=used, files=files)
