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

# as the broker takes them
_NAME = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}")
_LINK = re.compile(
    r"(?=.{1,500}\Z)(git\+)?https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[A-Za-z0-9._~:/?#@!&()*+,=%-]*"
)


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
        if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
            left_out.append(f"{name} has no name or version that others could ask for.")
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
        folder = urlsplit(url).scheme not in {"http", "https"}
        link = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
        hashes = () if vcs else _hashes(told.get("archive_info") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("does not say where it came from") from None
    if folder:
        raise ValueError("was installed from a folder or file of this home")
    if not _LINK.fullmatch(link):
        raise ValueError("came from an address that others cannot be given; https or git+https can be")
    return link, hashes


def _hashes(archive: dict[str, Any]) -> tuple[str, ...]:
    found = (archive.get("hashes") or {}).get("sha256") or str(archive.get("hash", "")).removeprefix(
        "sha256="
    )
    return (str(found),) if re.fullmatch(r"[0-9a-f]{64}", str(found)) else ()
