"""Orders to kill a service of a test installation at one of its own steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from allotment_testing.installation import Installation

__all__ = ["CrashOrders", "crashing_environment"]

_HOOK = Path(__file__).resolve().parents[1] / "crash_hook"


def crashing_environment(folder: Path, *, engine: str | None = None) -> dict[str, str]:
    """What the services of an installation below `folder` need to be struck.

    `engine` is the Docker engine's address, for the victim "container".
    """
    told = {"PYTHONPATH": str(_HOOK), "TESTS_CRASH_ORDER": str(folder / "order.json")}
    return told if engine is None else told | {"TESTS_CRASH_ENGINE": engine}


class CrashOrders:
    """One order at a time; carried out once."""

    def __init__(self, *, installation: Installation) -> None:
        self._file = installation.folder / "order.json"
        self._done = self._file.with_suffix(".done")

    def give(self, service: str, step: str, victims: Sequence[str]) -> None:
        """When `service` comes to `step`, kill -9 the victims (it may be one of them)."""
        self._done.unlink(missing_ok=True)
        told = {"service": service, "step": step, "victims": list(victims)}
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(told), encoding="utf-8")
        draft.rename(self._file)

    @property
    def carried_out(self) -> bool:
        return self._done.exists()

    def withdraw(self) -> None:
        self._file.unlink(missing_ok=True)
