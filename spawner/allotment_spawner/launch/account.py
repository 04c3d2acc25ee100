"""A person's lines in the container's passwd and group files, as archives for the engine to unpack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allotment_spawner.launch.container import HOME, Owner

__all__ = ["AccountFiles", "with_account"]

_SHELL = "/bin/bash"


@dataclass(frozen=True, slots=True)
class AccountFiles:
    """The whole text of both files."""

    passwd: str
    group: str


def with_account(
    files: AccountFiles, *, owner: Owner, name: str, group_names: Mapping[int, str]
) -> AccountFiles:
    """Both with a line for each number that has none yet; lines that are there stay as they are.

    A name that the image uses for another number becomes `u<uid>` or `g<gid>`.
    """
    passwd, group = files.passwd, files.group
    if not _has(passwd, owner.uid):
        free = name if name not in _names(passwd) else f"u{owner.uid}"
        passwd = _add(passwd, f"{free}:x:{owner.uid}:{owner.gid}::{HOME}:{_SHELL}")
    for gid in (owner.gid, *owner.groups):
        if not _has(group, gid):
            wanted = group_names.get(gid, "")
            free = wanted if _plain(wanted) and wanted not in _names(group) else f"g{gid}"
            group = _add(group, f"{free}:x:{gid}:")
    return AccountFiles(passwd=passwd, group=group)


def _lines(text: str) -> Sequence[list[str]]:
    return [line.split(":") for line in text.splitlines()]


def _has(text: str, number: int) -> bool:
    return any(len(parts) > 2 and parts[2] == str(number) for parts in _lines(text))


def _names(text: str) -> set[str]:
    return {parts[0] for parts in _lines(text)}


def _plain(name: str) -> bool:
    """A directory server's "domain users" would be a broken line."""
    return (
        bool(name)
        and len(name) <= 32
        and name.isascii()
        and all(one.isalnum() or one in "._-" for one in name)
    )


def _add(text: str, line: str) -> str:
    return text + ("" if text.endswith("\n") or not text else "\n") + line + "\n"
