"""Files that only their owner may read, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["ensure_secret", "private_folder", "write_private"]


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600, in one step: a reader sees the old or the new one, whole."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


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
