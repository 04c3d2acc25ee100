"""What a person at the terminal is told when a build cannot go on."""

from __future__ import annotations

__all__ = ["BuildError"]


class BuildError(Exception):
    """One sentence for the person at the terminal."""
