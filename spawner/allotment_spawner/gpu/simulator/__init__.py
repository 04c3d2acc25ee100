"""Simulated hardware: a drop-in for the pynvml functions the agent calls, with its state in a file."""

from __future__ import annotations

__all__: list[str] = []
