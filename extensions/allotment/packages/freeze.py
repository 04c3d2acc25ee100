"""The exact packages of an overlay, for others to have the same."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.metadata import Distribution
from typing import Any
from urllib.parse import urlsplit

from allotment.packages.check import installed
from allotment.packages.layout import Overlay

__all__ = ["Frozen", "Pin", "freeze"]

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package. `link` where it came from an address instead of an index; `hashes` are sha256, in hex."""

    name: str
    version: str
    link: str | None = None
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    """`left_out`: what only this home has, a sentence each."""

    pins: tuple[Pin, ...]
    left_out: tuple[str, ...]


def freeze(overlay: Overlay) -> Frozen:
    """What pip freeze says of the overlay alone."""
    pins, left_out = [], []
    for one in installed(overlay):
        name, version = str(one.metadata["Name"]), str(one.version)
        if not _VERSION.fullmatch(version):
            left_out.append(f"{name} has no version that others could ask for.")
            continue
        try:
            link, hashes = _origin(one)
        except ValueError as error:
            left_out.append(f"{name} {error}.")
            continue
        pins.append(Pin(name=name, version=version, link=link, hashes=hashes))
    return Frozen(pins=tuple(pins), left_out=tuple(left_out))


def _origin(one: Distribution) -> tuple[str | None, tuple[str, ...]]:
    """Link and hashes as pip noted them; ValueError for what lies in this home only."""
    text = one.read_text("direct_url.json")
    if text is None:
        return None, ()
    try:
        told = json.loads(text)
        url, vcs = str(told["url"]), told.get("vcs_info")
    except (ValueError, KeyError, TypeError):
        raise ValueError("does not say where it came from") from None
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ValueError("was installed from a folder or file of this home")
    if vcs:
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}", ()
    return url, _hashes(told.get("archive_info") or {})


def _hashes(archive: dict[str, Any]) -> tuple[str, ...]:
    found = (archive.get("hashes") or {}).get("sha256") or str(archive.get("hash", "")).removeprefix(
        "sha256="
    )
    return (str(found),) if re.fullmatch(r"[0-9a-f]{64}", str(found)) else ()
