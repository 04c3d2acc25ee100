"""The part of Allotment inside a Jupyter server: what the session is, and what it is told."""

from __future__ import annotations

from allotment.jupyter.extension import load

__all__ = ["_jupyter_server_extension_points", "_load_jupyter_server_extension"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "allotment.jupyter"}]


_load_jupyter_server_extension = load
