"""The agent: a front that serves the socket, and a worker that alone touches the hardware."""

from __future__ import annotations

__all__: list[str] = []
