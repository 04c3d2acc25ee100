"""Shared folders and datasets: what a person's sessions can see, and the registry for operators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from allotment_spawner.wire import ONE_LINE, DatasetView, MountView
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, Ctx, KnownCaller, whose
from allotment_hub.broker.routes.parameters import UserQuery
from allotment_hub.broker.store.datasets import Dataset
from allotment_hub.data.addresses import SOURCE_LENGTH

__all__ = ["DatasetBody", "DatasetEntry", "Pinned", "router"]

router = APIRouter(responses=PROBLEMS)

_LINE = r"^[^\x00-\x1f\x7f]*$"
DatasetName = Annotated[str, Path(max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$", description="Its name")]
Line = Annotated[str, Field(max_length=200, pattern=ONE_LINE)]
Group = Annotated[str, Field(min_length=1, max_length=255, pattern=_LINE)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DatasetBody(_Frozen):
    """What is registered. `checksum`: the SHA-256 of the file as published, in hex; without one, what the
    first fetch finds counts from then on. `unpack`: the file is a tar or zip archive whose content is the
    dataset. `groups` None: everybody."""

    source: Annotated[str, Field(min_length=1, max_length=SOURCE_LENGTH)]
    title: Line = ""
    description: Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")] = ""
    licence: Line = ""
    checksum: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    size_bytes: Annotated[int, Field(ge=0, le=2**60)] | None = None
    unpack: bool = False
    groups: Annotated[tuple[Group, ...], Field(max_length=100)] | None = None
    pinned: bool = False


class Pinned(_Frozen):
    pinned: bool


class DatasetEntry(DatasetBody):
    """One row of the registry. `content`: the SHA-256 that was found; of a folder, that of its list."""

    name: str
    content: str | None
    cached_bytes: int | None
    files: int | None
    cached_at: datetime | None
    used_at: datetime | None
    added_by: str
    added_at: datetime
    view: DatasetView


def _entry(context: Ctx, row: Dataset) -> DatasetEntry:
    told = {name: getattr(row, name) for name in DatasetEntry.model_fields if name != "view"}
    return DatasetEntry(**told, view=context.datasets.view(row))


@router.get("/mounts", tags=["choices"])
async def mounts(context: Ctx, caller: KnownCaller, user: UserQuery = None) -> list[MountView]:
    """The shared folders that my sessions see."""
    return await context.mounts.views(whose(caller, user))


@router.get("/datasets", tags=["choices"])
async def datasets(context: Ctx, caller: KnownCaller, user: UserQuery = None) -> list[DatasetView]:
    """The datasets that I may ask for, by name."""
    return await context.datasets.views(whose(caller, user))


@router.get("/registry/datasets", tags=["operators"], dependencies=[ONLY_OPERATORS])
async def registry(context: Ctx) -> list[DatasetEntry]:
    """All datasets with their sources."""
    return [_entry(context, row) for row in context.datasets.rows()]


@router.put("/registry/datasets/{name}", tags=["operators"], dependencies=[ONLY_OPERATORS])
async def register(context: Ctx, caller: KnownCaller, name: DatasetName, body: DatasetBody) -> DatasetEntry:
    """Add it, or replace the one of this name; nothing is fetched yet."""
    row = await context.datasets.register(name, by=caller.name, **body.model_dump())
    return _entry(context, row)


@router.delete(
    "/registry/datasets/{name}", tags=["operators"], status_code=204, dependencies=[ONLY_OPERATORS]
)
async def remove(context: Ctx, name: DatasetName) -> Response:
    """From registry and cache; idempotent. Refused while a session uses it."""
    await context.datasets.remove(name)
    return Response(status_code=204)


@router.put("/registry/datasets/{name}/pinned", tags=["operators"], dependencies=[ONLY_OPERATORS])
async def pin(context: Ctx, name: DatasetName, body: Pinned) -> DatasetEntry:
    """A pinned dataset never leaves the cache for another."""
    return _entry(context, await context.datasets.pin(name, pinned=body.pinned))


@router.post(
    "/registry/datasets/{name}/fetch", tags=["operators"], status_code=202, dependencies=[ONLY_OPERATORS]
)
async def fetch(context: Ctx, name: DatasetName) -> DatasetEntry:
    """Bring it into the cache now; the list tells how far it is."""
    return _entry(context, await context.datasets.warm(name))


@router.delete("/registry/datasets/{name}/cached", tags=["operators"], dependencies=[ONLY_OPERATORS])
async def evict(context: Ctx, name: DatasetName) -> DatasetEntry:
    """Out of the cache; the registry keeps it. Refused while it is pinned or a session uses it."""
    return _entry(context, await context.datasets.evict(name))
