"""How much room a disk has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Space", "space_of"]


@dataclass(frozen=True, slots=True)
class Space:
    """As an ordinary account may use it."""

    free_bytes: int
    total_bytes: int


def space_of(path: Path) -> Space | None:
    """Of the disk that the path, or the nearest folder above that exists, lies on; None is unknown."""
    for place in (path, *path.parents):
        try:
            found = os.statvfs(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
    return None
