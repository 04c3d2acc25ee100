"""How long to wait before a service that died is started again."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Backoff"]


@dataclass(slots=True)
class Backoff:
    """At once the first time, then 1, 2, 4 … up to `most_s`; forgotten after `calm_s` of running.

    Times are seconds of any clock that only goes forward; the caller reads it.
    """

    most_s: float = 15.0
    calm_s: float = 60.0
    deaths: int = field(default=0, init=False)

    def died(self, *, started: float, now: float) -> float:
        """Note a death; returns when to start again."""
        if now - started >= self.calm_s:
            self.deaths = 0
        self.deaths += 1
        wait = 0.0 if self.deaths == 1 else min(self.most_s, 2.0 ** (self.deaths - 2))
        return now + wait
