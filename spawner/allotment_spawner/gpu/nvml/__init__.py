"""Reading GPUs through the pynvml module (the real one, or the simulator with the same functions)."""

from __future__ import annotations

__all__: list[str] = []
