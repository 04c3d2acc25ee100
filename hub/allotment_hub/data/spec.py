"""What a fetch is told and what it says: one JSON document in, one JSON object a line out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

__all__ = ["LIMIT_FILES", "Done", "FetchSpec", "Manifest", "Message", "Progress", "Refused", "read_message"]

LIMIT_FILES = 1_000_000


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FetchSpec(_Frozen):
    """`folder` is this dataset's own below the cache's tmp; on success it holds `manifest.json` and `data/`.

    `checksum`: 64 hex digits that the content must have; None keeps whatever comes. `limit_bytes` bounds
    what is on the disk at once, `floor_bytes` is what must stay free there. `s3_secret` names a file
    {"key", "secret"}; without it buckets are read anonymously.
    """

    source: str
    folder: str
    parent_pid: int
    checksum: str | None = None
    unpack: bool = False
    limit_bytes: int
    floor_bytes: int
    limit_files: int = LIMIT_FILES
    allow_hosts: tuple[str, ...] = ()
    allow_paths: tuple[str, ...] = ()
    s3_endpoint: str | None = None
    s3_secret: str | None = None
    retry_pause_s: float = 1.0
    silence_s: float = 60.0


class Manifest(_Frozen):
    """What was fetched. `checksum` is the SHA-256 of the one file as it came, or of the sorted list of
    "SHA-256 size path" lines of a folder."""

    checksum: str
    size_bytes: int
    files: int


class Progress(_Frozen):
    """`got_bytes` of `total_bytes` (None is unknown) came; `disk_bytes` lie on the disk for it."""

    type: Literal["progress"] = "progress"
    got_bytes: int
    total_bytes: int | None
    disk_bytes: int
    doing: Literal["fetching", "unpacking"] = "fetching"


class Done(_Frozen):
    type: Literal["done"] = "done"
    manifest: Manifest


class Refused(_Frozen):
    type: Literal["refused"] = "refused"
    code: str
    sentence: str
    next_step: str


Message = Annotated[Progress | Done | Refused, Field(discriminator="type")]
_MESSAGE: TypeAdapter[Progress | Done | Refused] = TypeAdapter(Message)


def read_message(line: bytes) -> Progress | Done | Refused:
    """ValueError for anything that is no message."""
    return _MESSAGE.validate_json(line)
