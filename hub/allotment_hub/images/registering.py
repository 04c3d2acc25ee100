"""An image of this machine as the broker is told of it (pure)."""

from __future__ import annotations

import re
from typing import Any

from allotment_hub.images.describe import FoundImage, plain, shown_packages

__all__ = ["registration"]

_SOURCE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}")
_LONGEST_SOURCE = 512


def registration(image: FoundImage, *, environment: str, base: str | None) -> dict[str, Any]:
    """The body of `POST images`; labels come from whoever made the image, so they are cut to size."""
    told = image.source or ""
    source = told if _SOURCE.fullmatch(told) and len(told) <= _LONGEST_SOURCE else None
    return {
        "digest": image.digest,
        "environment": environment,
        "reference": plain(image.name),
        "source": source,
        "label": plain(image.label),
        "title": plain(image.title) or environment,
        "description": plain(image.description),
        "packages": shown_packages(image.packages),
        "requires": dict(image.requires),
        "size_bytes": image.size_bytes,
        "made_at": None if image.made_at is None else image.made_at.isoformat(),
        "base": base,
    }
