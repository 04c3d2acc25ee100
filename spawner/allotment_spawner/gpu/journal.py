"""What the agent has made and is about to change, on disk before the hardware is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["Change", "Journal"]


class Change(BaseModel):
    """One change of one GPU that has begun."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: Literal["ensure", "destroy"]
    gpu_uuid: str
    profile: str
    start: int
    uuid: str | None = None
    """The slice's UUID where it is known (destroy): its CDI entry is removed by it."""


class _Owned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_uuid: str
    profile: str
    start: int


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    boot_id: str = ""
    owned: list[_Owned] = []
    changes: list[Change] = []


class Journal:
    """One small JSON file, replaced atomically and fsynced at every write (one writer: the worker).

    `sync` is os.fsync in production.
    """

    def __init__(self, *, path: Path, sync: Callable[[int], None] = os.fsync) -> None:
        self._path = path
        self._sync = sync
        self._content = self._load()

    def _load(self) -> _Content:
        try:
            return _Content.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Content()
        except ValidationError:
            # Unreadable (edited by hand, or of a newer version): nothing counts as ours then, so
            # nothing is destroyed; the broker adopts what it leases. The old file is kept beside.
            self._path.replace(self._path.with_suffix(".unreadable"))
            return _Content()

    def boot(self, boot_id: str) -> None:
        """Slices do not survive a reboot: a new boot id forgets everything."""
        if self._content.boot_id != boot_id:
            self._content = _Content(boot_id=boot_id)
            self._write()

    def owns(self, gpu_uuid: str, profile: str, start: int) -> bool:
        """Whether this slice was made or adopted by us, or is just being made."""
        wanted = _Owned(gpu_uuid=gpu_uuid, profile=profile, start=start)
        return wanted in self._content.owned or any(
            (c.gpu_uuid, c.profile, c.start) == (gpu_uuid, profile, start) for c in self._content.changes
        )

    def pending(self, gpu_uuid: str) -> list[Change]:
        """Changes of a GPU that were begun and not finished, oldest first."""
        return [c for c in self._content.changes if c.gpu_uuid == gpu_uuid]

    def unsettled(self) -> list[str]:
        """UUIDs of the GPUs with unfinished changes."""
        return sorted({c.gpu_uuid for c in self._content.changes})

    def begin(self, change: Change) -> None:
        """On disk when this returns."""
        self._content.changes.append(change)
        self._write()

    def finish(self, change: Change, *, owned: bool) -> None:
        """The change is done (or was undone); whether the slice stands now as ours."""
        self._content.changes = [c for c in self._content.changes if c != change]
        slot = _Owned(gpu_uuid=change.gpu_uuid, profile=change.profile, start=change.start)
        self._content.owned = [o for o in self._content.owned if o != slot]
        if owned:
            self._content.owned.append(slot)
        self._write()

    def _write(self) -> None:
        scratch = self._path.with_suffix(".new")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, self._content.model_dump_json().encode())
            self._sync(descriptor)
        finally:
            os.close(descriptor)
        scratch.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            self._sync(folder)
        finally:
            os.close(folder)
