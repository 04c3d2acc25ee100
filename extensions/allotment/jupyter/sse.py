"""Server-sent events out of lines of text, as far as the broker writes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

__all__ = ["Event", "events"]

Event = tuple[str, dict[str, Any]]
"""(name, JSON object)."""


async def events(lines: AsyncIterable[str]) -> AsyncIterator[Event]:
    """Each event whose data is a JSON object; comments and anything else are passed over."""
    name, data = "message", ""
    async for line in lines:
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            data += line.removeprefix("data:").removeprefix(" ")
        elif not line:
            document = _object(data)
            if document is not None:
                yield name, document
            name, data = "message", ""


def _object(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
