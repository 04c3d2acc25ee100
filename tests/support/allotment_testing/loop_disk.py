"""A small disk of its own: a file as a loop device, formatted and mounted (root only)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

__all__ = ["fill", "loop_disk", "simple_quotas"]

Kind = Literal["ext4", "xfs", "btrfs"]
_MAKE: dict[Kind, list[str]] = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
_OPTIONS: dict[Kind, str] = {"ext4": "loop", "xfs": "loop", "btrfs": "loop,commit=1"}
_QUOTA_CTL = 0xC0109428
_ENABLE_SIMPLE = 4


@contextmanager
def loop_disk(folder: Path, kind: Kind, *, mib: int) -> Iterator[Path]:
    """The mount point; unmounted at the end."""
    image, point = folder / f"{kind}.img", folder / kind
    point.mkdir()
    with image.open("wb") as stream:
        stream.truncate(mib * 2**20)
    _run(*_MAKE[kind], str(image))
    _run("mount", "-o", _OPTIONS[kind], str(image), str(point))
    try:
        yield point
    finally:
        _run("umount", "-l", str(point))


def simple_quotas(point: Path) -> None:
    """`btrfs quota enable --simple`, which older btrfs-progs do not know."""
    descriptor = os.open(point, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _QUOTA_CTL, bytearray(struct.pack("QQ", _ENABLE_SIMPLE, 0)))
    finally:
        os.close(descriptor)


def fill(point: Path, *, leave_bytes: int = 0) -> None:
    """Fill the disk to the brim, or until this much is left."""
    found = os.statvfs(point)
    most = found.f_bavail * found.f_frsize - max(leave_bytes, 4 * 2**20)
    with (point / "filler").open("ab", buffering=0) as stream:
        if most > 0:
            # the bulk without writing it
            with contextlib.suppress(OSError):
                os.posix_fallocate(stream.fileno(), os.fstat(stream.fileno()).st_size, most)
        size = 2**20
        while size >= 4096:
            found = os.statvfs(point)
            if leave_bytes and found.f_bavail * found.f_frsize <= leave_bytes:
                return
            try:
                stream.write(b"x" * size)
                os.fsync(stream.fileno())
            except OSError:
                size //= 2


def _run(*argv: str) -> None:
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path})
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
