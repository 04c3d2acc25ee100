"""How tests launch Chromium: quiet, and without a word to anybody outside."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CHROMIUM"]

CHROMIUM: Final[dict[str, Any]] = {
    "executable_path": "/usr/bin/chromium",
    "args": [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ],
}
"""Arguments of playwright's `chromium.launch`."""
