"""What a file system can do about one folder's size, and what the folder verbs answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

__all__ = ["Folder", "FolderVerbs", "Quota", "RootName", "RootState", "ToolFailed", "Usage"]

RootName = Literal["scratch", "homes"]


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder below a root. `enforced`: the file system refuses more than `limit_bytes`."""

    path: str
    created: bool
    uid: int
    gid: int
    limit_bytes: int | None
    enforced: bool
    quota: str
    """"xfs", "zfs", "btrfs" or "none"."""
    note: str | None = None
    """Why the limit is not enforced though one was asked for, or how it can be evaded."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How much a folder holds; None is unknown, never 0. `watch`: the limit could be passed all the same."""

    used_bytes: int | None
    files: int | None
    limit_bytes: int | None
    enforced: bool
    watch: bool


@dataclass(frozen=True, slots=True)
class RootState:
    """What limits the folders of a root; `leftovers` are removed ones whose content is not wiped yet."""

    path: str
    quota: str
    note: str | None
    leftovers: int


class ToolFailed(Exception):
    """A command of the file system failed or did not end; its sentence is for operators."""


class Quota(Protocol):
    """One kind of file system. `folder` is a direct child of the root, unless said otherwise.

    All methods may be repeated, block, and raise OSError or ToolFailed.
    """

    name: str
    watch: bool
    """Whether usage has to be measured all the same."""
    note: str | None

    def make(self, folder: Path) -> None:
        """Make an empty folder (mode 0700); FileExistsError when there is one."""

    def limit(self, folder: Path, descriptor: int, limit_bytes: int | None) -> bool:
        """Set, change or (None) lift the limit; whether the file system now enforces it."""

    def usage(self, folder: Path, descriptor: int) -> tuple[int | None, int | None, int | None]:
        """(used bytes, files, limit bytes) as the file system counts them; None where it does not."""

    def remove(self, folder: Path) -> bool:
        """Forget the limit; True when the folder is gone whole, False when its content must be wiped."""

    def tidy(self) -> None:
        """Forget what the file system still keeps of folders that are gone."""


class FolderVerbs(Protocol):
    """The verbs as the agent serves them. Each raises `AgentUnavailable` when nobody answers or a root
    cannot be used, `BadOptions` for a name or root that it does not serve."""

    async def make_folder(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder: ...

    async def remove_folder(self, root: RootName, name: str) -> None:
        """Gone when it returns; its content is wiped soon after. Gone already is no error."""

    async def folder_usage(self, root: RootName, name: str) -> Usage | None:
        """None when there is no such folder."""

    async def list_folders(self, root: RootName) -> list[str]: ...

    async def folder_root(self, root: RootName) -> RootState: ...
