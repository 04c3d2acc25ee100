"""Specs for fetches of tests: nothing is scarce, and trying again costs no time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from allotment_hub.data.spec import FetchSpec

__all__ = ["fetch_spec"]


def fetch_spec(folder: Path, source: str, **more: Any) -> FetchSpec:
    """For this process's own child, or to be run in this process, in `folder`/work."""
    told: dict[str, Any] = {"limit_bytes": 10**9, "floor_bytes": 0, "retry_pause_s": 0.01}
    return FetchSpec(source=source, folder=str(folder / "work"), parent_pid=os.getpid(), **(told | more))
