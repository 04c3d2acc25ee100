"""What an agent was started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """`gpus` is "nvml", "none" or "sim:..."; without `cdi_dir` no CDI entries are written."""

    gpus: str
    state_dir: Path
    node: str
    cdi_dir: Path | None = None
