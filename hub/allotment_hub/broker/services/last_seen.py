"""When this machine was last seen since it was started: a session ended then at the latest if it is down."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

__all__ = ["LastSeen"]

_log = logging.getLogger(__name__)
_EVERY: Final = timedelta(seconds=20)
_BOOTS: Final = 8


class LastSeen:
    """Kept in a small file: boot id -> when the agent last answered in that boot. What cannot be read or
    written is unknown."""

    def __init__(self, *, file: Path, clock: Callable[[], datetime]) -> None:
        self._file = file
        self._clock = clock
        self._seen: dict[str, datetime] = {}
        self._noted: datetime | None = None

    async def load(self) -> None:
        self._seen = await asyncio.to_thread(self._read)

    def of(self, boot_id: str) -> datetime | None:
        """Never after now, whatever the clock was then."""
        found = self._seen.get(boot_id)
        return None if found is None else min(found, self._clock())

    async def note(self, boot_id: str) -> None:
        """It answers in this boot; written now and then."""
        now = self._clock()
        fresh = self._noted is not None and timedelta(0) <= now - self._noted < _EVERY
        if fresh and boot_id in self._seen:
            return
        self._seen.pop(boot_id, None)
        self._seen[boot_id] = now
        self._seen = dict(list(self._seen.items())[-_BOOTS:])
        self._noted = now
        try:
            await asyncio.to_thread(self._write, dict(self._seen))
        except OSError as error:
            _log.warning("when the machine was seen cannot be written: %s", error)

    def _read(self) -> dict[str, datetime]:
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            return {str(boot): datetime.fromisoformat(at).astimezone(UTC) for boot, at in told.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            _log.warning("when the machine was seen cannot be read: %s", error)
            return {}

    def _write(self, seen: dict[str, datetime]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._file.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as stream:
            json.dump({boot: at.isoformat() for boot, at in seen.items()}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(self._file)
