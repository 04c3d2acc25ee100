"""Which GPUs are not to be trusted, and what was last known of every GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from allotment_spawner.core.inventory import Gpu, NodeInventory

__all__ = ["Health", "Mark"]


class Mark(BaseModel):
    """One unhealthy GPU. `hang`: no call may touch it. `fault`: readable, but nothing new goes there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_uuid: str
    index: int | None
    kind: Literal["hang", "fault"]
    reason: str
    since: datetime
    last_known: Gpu | None


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    boot_id: str = ""
    marks: dict[str, Mark] = {}


class Health:
    """Kept in a file, so that a restart of the agent forgets nothing; a new boot id clears it."""

    def __init__(self, *, path: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._clock = clock
        self._last: dict[str, Gpu] = {}
        try:
            self._content = _Content.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            self._content = _Content()

    @property
    def marks(self) -> list[Mark]:
        return list(self._content.marks.values())

    def boot(self, boot_id: str) -> bool:
        """A reboot clears every mark; True when it was one."""
        if self._content.boot_id == boot_id:
            return False
        rebooted = bool(self._content.boot_id)
        self._content = _Content(boot_id=boot_id)
        self._last.clear()
        self._write()
        return rebooted

    def mark(
        self, gpu_uuid: str, kind: Literal["hang", "fault"], reason: str, index: int | None = None
    ) -> None:
        """Remember; the first reason stays, but a hang is worse than a fault."""
        old = self._content.marks.get(gpu_uuid)
        if old is not None and (old.kind == "hang" or kind == "fault"):
            return
        known = self._last.get(gpu_uuid) or (old.last_known if old else None)
        self._content.marks[gpu_uuid] = Mark(
            gpu_uuid=gpu_uuid,
            index=known.index if known else index,
            kind=kind,
            reason=reason,
            since=self._clock(),
            last_known=known,
        )
        self._write()

    def heal(self, gpu_uuid: str) -> bool:
        """Trust it again; False when it was not marked."""
        if self._content.marks.pop(gpu_uuid, None) is None:
            return False
        self._write()
        return True

    def find(self, gpu_uuid: str) -> Mark | None:
        return self._content.marks.get(gpu_uuid)

    def hanging(self) -> list[int]:
        """Indexes that no call may touch."""
        return [m.index for m in self.marks if m.kind == "hang" and m.index is not None]

    def uuid_at(self, index: int) -> str | None:
        """The GPU last seen at an index."""
        return next((g.uuid for g in self._last.values() if g.index == index), None)

    def complete(self, inventory: NodeInventory) -> NodeInventory:
        """The inventory with problems filled in: what cannot be read is shown as last known, not as empty."""
        shown: dict[str, Gpu] = {}
        for gpu in inventory.gpus:
            mark = self._content.marks.get(gpu.uuid)
            if gpu.problem is None:
                self._last[gpu.uuid] = gpu
                shown[gpu.uuid] = replace(gpu, problem=mark.reason) if mark else gpu
            else:
                known = self._last.get(gpu.uuid) or (mark.last_known if mark else None) or gpu
                shown[gpu.uuid] = replace(known, problem=gpu.problem)
        for mark in self.marks:
            if mark.gpu_uuid not in shown:
                shown[mark.gpu_uuid] = replace(_last_seen(mark), problem=mark.reason)
        return replace(inventory, gpus=tuple(sorted(shown.values(), key=lambda g: g.index)))

    def _write(self) -> None:
        scratch = self._path.with_suffix(".new")
        with scratch.open("w", encoding="utf-8") as stream:
            stream.write(self._content.model_dump_json())
            stream.flush()
            os.fsync(stream.fileno())
        scratch.chmod(0o600)
        scratch.replace(self._path)


def _last_seen(mark: Mark) -> Gpu:
    if mark.last_known is not None:
        return mark.last_known
    return Gpu(uuid=mark.gpu_uuid, index=mark.index or 0, model="unknown", memory_bytes=0, mig=False, axis=0)
