"""What an image tells of itself in its labels (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from allotment_spawner.launch.names import version_of

__all__ = ["LABEL", "FoundImage", "described", "names_of"]

LABEL: Final = "org.allotment."
_NEEDS: Final = ("variant", "minimum_driver", "minimum_compute_capability")


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
    parts = (told.get("version"), told.get("variant"))
    return FoundImage(
        name=name,
        digest=str(found["Id"]),
        packages=_packages(told.get("packages")),
        environment=told.get("environment", ""),
        title=told.get("title") or told.get("environment") or name,
        description=told.get("description", ""),
        label="-".join(part for part in parts if part),
        source=_source(digests, name),
        size_bytes=int(size) if isinstance(size, int) and size > 0 else None,
        made_at=_moment(told.get("made_at")) or _moment(found.get("Created")),
        requires={key: told[key] for key in _NEEDS if told.get(key)},
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
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _moment(text: object) -> datetime | None:
    """The engine writes nanoseconds, which no datetime has; a zero time is no time."""
    if not isinstance(text, str) or text.startswith("0001"):
        return None
    head, _, rest = text.partition(".")
    zone = rest.lstrip("0123456789")
    try:
        moment = datetime.fromisoformat(f"{head}{zone}" if rest else text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
