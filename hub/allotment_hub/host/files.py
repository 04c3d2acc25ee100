"""Files that only their owner may read, written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

__all__ = ["belong", "ensure_secret", "private_folder", "rewrite", "write_private"]


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600, in one step: a reader sees the old or the new one, whole.

    `belong` says whose it is. On a full disk what fits into the old one's room is written there, which
    a power cut could tear; else OSError.
    """
    try:
        _write_beside(path, text)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _fits(path, text):
            raise
        rewrite(path, text)


def _fits(path: Path, text: str) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and len(text.encode()) <= found.st_blocks * 512


def _write_beside(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            belong(descriptor, path.parent)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def rewrite(path: Path, text: str) -> None:
    """Replace what a file of ours holds, where its folder takes no new one; short, so in one write."""
    content = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def belong(descriptor: int, folder: Path) -> None:
    """Make an open file private as its folder is: where a group may read the folder, 0640, else 0600.

    Written by root in a folder of the account that the services run as, it is that account's.
    """
    found = folder.stat()
    if os.geteuid() == 0:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, 0o640 if found.st_mode & stat.S_IRGRP else 0o600)


def private_folder(path: Path) -> None:
    """Make the folder with mode 0700, or close an existing one to others."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def ensure_secret(folder: Path, name: str) -> str:
    """The secret of this name, made of 32 random bytes (64 hex digits) when there is none."""
    path = folder / name
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_hex(32)
        write_private(path, found + "\n")
    return found
