"""What `up` and `down` say when they cannot go on: one sentence, exit code 2."""

from __future__ import annotations

__all__ = ["HostError"]


class HostError(Exception):
    """One sentence of what is wrong, with the remedy in it."""
