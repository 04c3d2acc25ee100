"""File systems that cannot limit a folder: usage is measured instead."""

from __future__ import annotations

from pathlib import Path

__all__ = ["NoQuota"]


class NoQuota:
    """Ordinary folders; `note` says why nothing limits them."""

    name = "none"
    watch = True

    def __init__(self, *, note: str | None = None) -> None:
        self.note = note

    def make(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)

    def limit(self, folder: Path, descriptor: int, limit_bytes: int | None) -> bool:
        return False

    def usage(self, folder: Path, descriptor: int) -> tuple[int | None, int | None, int | None]:
        return None, None, None

    def remove(self, folder: Path) -> bool:
        return False

    def tidy(self) -> None:
        return None
