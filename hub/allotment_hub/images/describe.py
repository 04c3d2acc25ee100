"""What an image tells of itself in its labels (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from allotment_spawner.launch.names import version_of

__all__ = ["LABEL", "FoundImage", "described", "names_of", "plain", "shown_packages"]

LABEL: Final = "org.allotment."
_NEEDS: Final = {
    "variant": re.compile(r"cpu|cuda"),
    "minimum_driver": re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}"),
    "minimum_compute_capability": re.compile(r"[0-9]{1,2}\.[0-9]"),
}
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
_LONGEST: Final = 255
_MOST_PACKAGES: Final = 500
_MOST_CHARACTERS: Final = 32 * 1024
_YEARS: Final = range(1980, 3000)


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image on this machine: its name, content id (`sha256:…`) and what it says of itself.

    `environment` "" is none of ours. `source` is repository@digest where a registry has it.
    """

    name: str
    digest: str
    packages: Mapping[str, str]
    environment: str = ""
    title: str = ""
    description: str = ""
    label: str = ""
    source: str | None = None
    size_bytes: int | None = None
    made_at: datetime | None = None
    requires: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return version_of(self.digest)


def described(found: Mapping[str, Any], *, name: str) -> FoundImage:
    """From docker inspect's JSON; what is not there, or not as it should be, is unknown."""
    labels = (found.get("Config") or {}).get("Labels") or {}
    told = {key.removeprefix(LABEL): str(value) for key, value in labels.items() if key.startswith(LABEL)}
    digests = found.get("RepoDigests") or []
    size = found.get("Size")
    told = {key: value if key == "packages" else plain(value) for key, value in told.items()}
    environment = told.get("environment", "")
    environment = environment if _WORD.fullmatch(environment) else ""
    parts = (told.get("version"), told.get("variant"))
    return FoundImage(
        name=name,
        digest=str(found["Id"]),
        packages=_packages(told.get("packages")),
        environment=environment,
        title=told.get("title") or environment or name,
        description=told.get("description", ""),
        label="-".join(part for part in parts if part),
        source=_source(digests, name),
        size_bytes=int(size) if isinstance(size, int) and size > 0 else None,
        made_at=_moment(told.get("made_at")) or _moment(found.get("Created")),
        requires={key: told[key] for key, good in _NEEDS.items() if good.fullmatch(told.get(key, ""))},
    )


def _source(digests: Sequence[object], name: str) -> str | None:
    """Of the registry that `name` came from, else of any; a name without a host is of no registry."""
    named = [str(one) for one in digests if str(one).count("@") == 1]
    repository = name.partition("@")[0].rpartition(":")[0] or name
    exact = [one for one in named if one.partition("@")[0] in (repository, name.partition("@")[0])]
    hosts = [one for one in named if _has_host(one)]
    return next((one for one in exact if _has_host(one)), hosts[0] if hosts else None)


def _has_host(reference: str) -> bool:
    host = reference.partition("/")[0]
    return "/" in reference and ("." in host or ":" in host or host == "localhost")


def names_of(found: Mapping[str, Any]) -> list[str]:
    """Its tags, without the engine's `<none>:<none>`."""
    return [str(tag) for tag in found.get("RepoTags") or [] if not str(tag).startswith("<none>")]


def _packages(label: str | None) -> dict[str, str]:
    try:
        found = json.loads(label or "{}")
    except (ValueError, RecursionError):
        return {}
    return shown_packages(found) if isinstance(found, dict) else {}


def plain(text: object) -> str:
    """One line of what anybody may have written into an image."""
    return _CONTROL.sub(" ", str(text))[:_LONGEST]


def shown_packages(packages: Mapping[str, object]) -> dict[str, str]:
    """As many of them as anybody reads, and as the broker takes."""
    shown: dict[str, str] = {}
    left = _MOST_CHARACTERS
    for name, version in list(packages.items())[:_MOST_PACKAGES]:
        left -= len(json.dumps([plain(name), plain(version)])) + 2
        if left < 0:
            break
        shown[plain(name)] = plain(version)
    return shown


def _moment(text: object) -> datetime | None:
    """The engine writes nanoseconds, which no datetime has; a zero time, also Unix's, is no time."""
    if not isinstance(text, str):
        return None
    head, _, rest = text.partition(".")
    zone = rest.lstrip("0123456789")
    try:
        moment = datetime.fromisoformat(f"{head}{zone}" if rest else text)
    except ValueError:
        return None
    if moment.year not in _YEARS:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
