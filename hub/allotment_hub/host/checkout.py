"""The checkout that this installation runs from, and a stamp that changes with its code."""

from __future__ import annotations

import hashlib
from pathlib import Path

import allotment_hub

__all__ = ["CHECKOUT", "code_stamp", "version"]

CHECKOUT = Path(allotment_hub.__file__).resolve().parents[2]
_CODE = ("spawner/allotment_spawner", "hub/allotment_hub", "extensions/allotment")
_PINS = (
    "deploy/requirements.lock",
    "deploy/proxy/package-lock.json",
    "spawner/pyproject.toml",
    "hub/pyproject.toml",
    "extensions/pyproject.toml",
)
_KINDS = frozenset({".py", ".yaml", ".html", ".js", ".css", ".ini", ".json", ".mako"})


def version(checkout: Path = CHECKOUT) -> str:
    return (checkout / "spawner" / "VERSION").read_text(encoding="utf-8").strip()


def code_stamp(checkout: Path = CHECKOUT) -> str:
    """VERSION and a hash over the code and its pinned packages, e.g. `0.1.0-3f9c2a7b51de`."""
    digest = hashlib.sha256()
    files = [checkout / name for name in _PINS]
    for folder in _CODE:
        files += (path for path in (checkout / folder).rglob("*") if path.suffix in _KINDS)
    for path in sorted(files):
        if path.is_file():
            digest.update(str(path.relative_to(checkout)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{version(checkout)}-{digest.hexdigest()[:12]}"
