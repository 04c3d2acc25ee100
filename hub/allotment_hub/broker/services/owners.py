"""Whose files a person's homes and folders are, asked where an answer may take long or never come."""

from __future__ import annotations

import asyncio
from typing import Final

from allotment_spawner.core.errors import HomeUnavailable
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.owners import OwnerRule
from allotment_spawner.launch.container import Owner

__all__ = ["Owners"]

_NAME_SERVICE_S: Final = 15.0


class Owners:
    """Numbers that are the same for everybody are told at once, others by the name service in `limit_s`."""

    def __init__(self, *, rule: OwnerRule, limit_s: float = _NAME_SERVICE_S) -> None:
        self._rule = rule
        self._limit_s = limit_s
        # of its own: a name service that hangs delays nobody else's work
        self._threads = DaemonThreads(4, name="name-service")

    async def of(self, user: str) -> Owner:
        """Raises `HomeUnavailable` for who is no account here, and where nothing answers."""
        if self._rule.kind == "fixed":
            return self._rule.account_of(user).owner
        found = self._threads.run(lambda: self._rule.account_of(user))
        try:
            return (await asyncio.wait_for(found, self._limit_s)).owner
        except TimeoutError as error:
            raise HomeUnavailable(
                f"This system's accounts do not answer within {self._limit_s:.0f} seconds.",
                "Try again in a few minutes; tell an operator if it stays.",
            ) from error
