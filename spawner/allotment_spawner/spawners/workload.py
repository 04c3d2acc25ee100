"""What a spawner runs for a session, as the start, the stop and the clean-up see it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Workload"]


class Workload(Protocol):
    """One container or process of one attempt. Methods raise a `Refusal` when the platform can't answer."""

    engine_ref: str
    """How the broker's engine names it."""

    async def make(self) -> None:
        """Bring it into being without running anything of the person's; a leftover of its name is removed."""

    async def start(self) -> None:
        """Let it run. Only after the broker confirmed."""

    async def devices(self) -> tuple[str, ...]:
        """The device UUIDs that the platform says it has."""

    async def url(self) -> str:
        """Where its server listens, as the platform says (never guessed)."""

    async def exited(self) -> int | str | None:
        """Why it does not run (gone: 0); None while it runs."""

    async def last_words(self) -> str:
        """The end of its log, for the operator, where the log goes away with it; empty otherwise."""

    async def remove(self, *, grace_s: float) -> None:
        """End and remove it, whatever its state; return once it is gone. Idempotent."""
