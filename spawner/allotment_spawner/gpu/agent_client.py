"""UnixAgent: the agent's verbs over its unix socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import NodeSamples
from allotment_spawner.disk.base import Folder, RootName, RootState, Usage
from allotment_spawner.gpu.messages import (
    FOLDER,
    INVENTORY,
    MAX_REPLY_BYTES,
    NAMES,
    ROOT_STATE,
    SAMPLES,
    SLICE,
    USAGE,
    AnyRequest,
    DestroySlice,
    EnsureSlice,
    FolderRoot,
    FolderUsage,
    HealGpu,
    HealthReport,
    Inventory,
    ListFolders,
    MakeFolder,
    RemoveFolder,
    Reply,
    ReportHealth,
    Sample,
)

__all__ = ["UnixAgent"]

_T = TypeVar("_T")
_HEALTH = TypeAdapter(HealthReport)
_LATER = "Try again in a minute; if it goes on, tell your operator."


class UnixAgent:
    """`Agent` and `FolderVerbs` over a socket. A connection a call, so a restarted agent needs no notice.

    `deadline_s` bounds a whole call, queueing behind other calls included. What the agent then did
    is unknown; all verbs may be repeated.
    """

    def __init__(self, *, socket_path: Path, deadline_s: float = 60.0) -> None:
        self._path = socket_path
        self._deadline_s = deadline_s

    async def inventory(self) -> NodeInventory:
        return await self._typed(Inventory(), INVENTORY)

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        request = EnsureSlice(gpu_uuid=gpu_uuid, profile=profile, start=start)
        return await self._typed(request, SLICE)

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        await self._call(DestroySlice(gpu_uuid=gpu_uuid, profile=profile, start=start))

    async def samples(self) -> NodeSamples:
        return await self._typed(Sample(), SAMPLES)

    async def health(self) -> HealthReport:
        """The front's own state; it answers even while the hardware hangs."""
        return await self._typed(ReportHealth(), _HEALTH)

    async def heal(self, gpu_uuid: str) -> None:
        """Let a GPU that was marked unhealthy be used again; not marked is no error."""
        await self._call(HealGpu(gpu_uuid=gpu_uuid))

    async def make_folder(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder:
        request = MakeFolder(root=root, name=name, uid=uid, gid=gid, mode=mode, limit_bytes=limit_bytes)
        return await self._typed(request, FOLDER)

    async def remove_folder(self, root: RootName, name: str) -> None:
        await self._call(RemoveFolder(root=root, name=name))

    async def folder_usage(self, root: RootName, name: str) -> Usage | None:
        return await self._typed(FolderUsage(root=root, name=name), USAGE)

    async def list_folders(self, root: RootName) -> list[str]:
        return await self._typed(ListFolders(root=root), NAMES)

    async def folder_root(self, root: RootName) -> RootState:
        return await self._typed(FolderRoot(root=root), ROOT_STATE)

    async def _typed(self, request: AnyRequest, shape: TypeAdapter[_T]) -> _T:
        result = await self._call(request)
        try:
            return shape.validate_python(result)
        except ValidationError as error:
            # After an update, while the old agent still runs.
            raise AgentUnavailable(
                "The agent answered in a form that this version does not know.",
                "Restart the agent so that both have one version.",
                verb=request.verb,
            ) from error

    async def _call(self, request: AnyRequest) -> Any:
        try:
            async with asyncio.timeout(self._deadline_s):
                line = await self._exchange(request.model_dump_json().encode() + b"\n")
        except TimeoutError as error:
            raise AgentUnavailable(
                f"The agent did not answer within {self._deadline_s:g} s.", _LATER, verb=request.verb
            ) from error
        except (OSError, ValueError) as error:
            # ValueError: a line longer than any reply can be.
            raise AgentUnavailable(
                f"The agent cannot be reached at {self._path}: {error}.", _LATER, verb=request.verb
            ) from error
        try:
            reply = Reply.model_validate_json(line)
        except ValidationError as error:
            # An empty or torn line: the agent died while it worked on the request.
            raise AgentUnavailable(
                "The agent stopped before it answered.", _LATER, verb=request.verb
            ) from error
        if reply.problem is not None:
            raise reply.problem.refusal()
        return reply.result

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self._path), limit=MAX_REPLY_BYTES)
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()
