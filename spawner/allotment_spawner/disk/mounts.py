"""Which file system a path lies on, read from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MOUNTINFO", "Mount", "mount_of", "parse_mounts"]

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: `source` is a device or a ZFS dataset, `options` the file system's own."""

    device: tuple[int, int]
    point: str
    kind: str
    source: str
    options: frozenset[str]


def parse_mounts(text: str) -> list[Mount]:
    """In the order in which they were mounted; lines that do not fit are left out."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        head, tail = before.split(), after.split()
        if len(head) < 6 or len(tail) < 3 or ":" not in head[2]:
            continue
        major, minor = head[2].split(":", 1)
        options = {*head[5].split(","), *tail[2].split(",")}
        found.append(
            Mount((int(major), int(minor)), _plain(head[4]), tail[0], _plain(tail[1]), frozenset(options))
        )
    return found


def mount_of(path: Path, mounts: Iterable[Mount] | None = None) -> Mount | None:
    """The mount that holds this existing path; None where it cannot be told."""
    known = list(mounts) if mounts is not None else parse_mounts(MOUNTINFO.read_text(encoding="utf-8"))
    real = os.path.realpath(path)
    best: Mount | None = None
    for mount in known:
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        # a later mount at the same point hides the earlier one
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _plain(text: str) -> str:
    """The kernel writes blanks and backslashes as octal numbers."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
