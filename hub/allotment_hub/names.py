"""What a person's name may look like; apart from the hub's classes, which take half a second to import."""

from __future__ import annotations

__all__ = ["USER_NAME"]

USER_NAME = r"[a-z][a-z0-9._-]{0,30}[a-z0-9]"
"""Also a folder, a container label and part of a URL: so plain."""
