"""An image of this machine as the broker is told of it (pure)."""

from __future__ import annotations

import re
from typing import Any

from allotment_hub.images.describe import FoundImage

__all__ = ["registration"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
_SOURCE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}")
_LONGEST = 255
_MOST_PACKAGES = 500


def registration(image: FoundImage, *, environment: str, base: str | None) -> dict[str, Any]:
    """The body of `POST images`; labels come from whoever made the image, so they are cut to size."""
    packages = {_line(name): _line(version) for name, version in image.packages.items()}
    source = image.source if image.source and _SOURCE.fullmatch(image.source) else None
    return {
        "digest": image.digest,
        "environment": environment,
        "reference": _line(image.name),
        "source": source,
        "label": _line(image.label),
        "title": _line(image.title) or environment,
        "description": _line(image.description),
        "packages": dict(list(packages.items())[:_MOST_PACKAGES]),
        "requires": dict(image.requires),
        "size_bytes": image.size_bytes,
        "made_at": None if image.made_at is None else image.made_at.isoformat(),
        "base": base,
    }


def _line(text: str) -> str:
    return _CONTROL.sub(" ", text)[:_LONGEST]
