"""Packages that people install, kept in their homes: one overlay per environment and Python version.

Every Python of a notebook image imports `hook` from here at its start, so this file stays empty of work.
"""

from __future__ import annotations

__all__ = ["status"]


def status() -> dict[str, object]:
    """What is to be said about this session's overlay; quick, see `report.status`."""
    from allotment.packages.report import status as read  # noqa: PLC0415 - not at every interpreter's start

    return read()
