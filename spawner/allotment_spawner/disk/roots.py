"""The folders that the agent may work in, and why one cannot be used."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from allotment_spawner.core.errors import AgentUnavailable, BadOptions
from allotment_spawner.disk.base import RootName
from allotment_spawner.disk.walk import names_in, open_folder

__all__ = ["TRASH", "Root", "check_name", "split_template"]

TRASH = ".trash"
_MARKER = ".allotment"
_DEEPEST = 4
_NAME_BYTES = 255
_MODES: dict[RootName, int] = {"scratch": 0o700, "homes": 0o755}


def check_name(name: str) -> tuple[str, ...]:
    """The parts of a path below a root; `BadOptions` for anything that leads elsewhere."""
    parts = tuple(name.split("/"))
    good = len(parts) <= _DEEPEST and all(_good(part) for part in parts)
    if not good:
        raise BadOptions("That is no name of a folder here.", "Use plain names, at most four levels deep.")
    return parts


def _good(part: str) -> bool:
    try:
        length = len(os.fsencode(part))
    except UnicodeEncodeError:
        return False
    return 0 < length <= _NAME_BYTES and not part.startswith(".") and part.isprintable()


def split_template(template: str, filled: str) -> tuple[Path, str]:
    """(root, name below it) of a path made from a template with {username}: the root is what stands
    before the first part that depends on the person."""
    parts = template.split("/")
    first = next(index for index, part in enumerate(parts) if "{username}" in part)
    root = "/".join(parts[:first]) or "/"
    return Path(root), "/".join(filled.split("/")[first:])


@dataclass(frozen=True, slots=True)
class Root:
    """One root. Whoever else may write in it could lead us elsewhere, so nobody else may."""

    name: RootName
    path: Path

    @property
    def wipes(self) -> bool:
        """Whether folders may be removed: never homes."""
        return self.name == "scratch"

    def open(self) -> int:
        """A descriptor; made when it is missing. `AgentUnavailable` with the reason."""
        try:
            return self._open()
        except OSError as error:
            raise AgentUnavailable(
                f"The folder {self.path} cannot be used: {error.strerror}.",
                "Ask your operator to look at it; `allot doctor` names it.",
            ) from error

    def _open(self) -> int:
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            self.path.mkdir(mode=_MODES[self.name], exist_ok=True)
        descriptor = open_folder(self.path)
        try:
            self._check(os.fstat(descriptor))
            if self.wipes:
                self._claim(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, found: os.stat_result) -> None:
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise self._refused(f"must belong to user {os.geteuid()} and be writable by nobody else")

    def _claim(self, descriptor: int) -> None:
        """A mark that only we can have made; a folder with other things in it is never wiped."""
        try:
            mark = os.stat(_MARKER, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            if names_in(descriptor):
                raise self._refused("holds other files already, and folders in it get wiped") from None
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(_MARKER, flags, 0o600, dir_fd=descriptor))
        else:
            if mark.st_uid != os.geteuid():
                raise self._refused("is marked by another account")
        try:
            os.mkdir(TRASH, 0o700, dir_fd=descriptor)
        except FileExistsError:
            return

    def _refused(self, why: str) -> AgentUnavailable:
        return AgentUnavailable(
            f"The folder {self.path} {why}.", "Ask your operator to name another one in site.yaml."
        )
