"""Models of the routes about saved environments; everything in them ends up in a requirements file."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from allotment_spawner.wire import ONE_LINE, Version, Word
from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["Approve", "Package", "RefuseSaved", "Save", "SavedView", "normal"]

Line = Annotated[str, Field(max_length=100, pattern=ONE_LINE)]
ProjectName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
ProjectVersion = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]*$")]
# neither white space, which would begin an option of pip, nor ${…}, which pip replaces, nor a password
Link = Annotated[
    str,
    Field(
        max_length=500,
        pattern=r"^(git\+)?https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[A-Za-z0-9._~:/?#@!&()*+,=%-]*$",
    ),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Package(_View):
    """One pinned package; `link` where it comes from an address instead of an index; hashes are sha256."""

    name: ProjectName
    version: ProjectVersion
    link: Link | None = None
    hashes: Annotated[tuple[Sha256, ...], Field(max_length=10)] = ()


class Save(_View):
    """What was installed upon `base`; `base_version` its image, None the offered one."""

    title: Annotated[Line, Field(min_length=1)]
    base: Word
    base_version: Version | None = None
    packages: Annotated[tuple[Package, ...], Field(min_length=1, max_length=400)]

    @field_validator("packages")
    @classmethod
    def _once_each(cls, packages: tuple[Package, ...]) -> tuple[Package, ...]:
        if len({normal(one.name) for one in packages}) != len(packages):
            raise ValueError("each package once")
        return packages


class Approve(_View):
    """`checksum` of what was looked at. `allow_links`: packages may come from addresses, too."""

    checksum: Sha256
    allow_links: bool = False


class RefuseSaved(_View):
    """`because`: what the owner reads."""

    because: Annotated[str, Field(min_length=1, max_length=300, pattern=ONE_LINE)]


class SavedView(_View):
    """One saved environment. `owner` is "another person", and links are none, for all but the owner and
    operators.

    `base_digest`: the image in which it was made. `checksum` names exactly this title, base and packages.
    """

    name: str
    title: str
    owner: str
    base: str
    base_digest: str
    packages: tuple[Package, ...]
    checksum: str
    state: Literal["asked", "approved", "refused"]
    note: str | None
    asked_at: datetime
    decided_at: datetime | None
    decided_by: str | None


def normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()
