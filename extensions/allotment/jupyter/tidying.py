"""What a person is offered for packages that do not work any more, done from the notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from allotment.packages.layout import overlay_of
from allotment.packages.lock import LockUnavailable
from allotment.packages.tidy import move_aside, start_clean

__all__ = ["CHOICES", "tidy"]

CHOICES = ("aside", "clean")
_NEXT = "Restart your kernels."


def tidy(choice: str) -> str:
    """Do it, and say in a sentence what became of it. `choice` is one of `CHOICES`."""
    overlay = overlay_of(os.environ, sys.version_info[:2])
    if overlay is None:
        return "This session keeps no packages of its own."
    try:
        if choice == "aside":
            moved = move_aside(overlay)
            return f"They lie in {_short(moved)} now. {_NEXT}" if moved else "You had installed nothing."
        return f"Deleted. {_NEXT}" if start_clean(overlay) else "There was nothing to delete."
    except LockUnavailable as error:
        return str(error)
    except OSError as error:
        return f"It could not be done: {error.strerror}. Is your home full?"


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
