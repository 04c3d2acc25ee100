"""The agent's unix socket: reads requests, bounds what a peer may do, writes replies."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import socket
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from allotment_spawner.core.errors import Refusal
from allotment_spawner.gpu.agent.folders import Folders
from allotment_spawner.gpu.agent.front import Front
from allotment_spawner.gpu.messages import (
    FOLDER,
    INVENTORY,
    MAX_REQUEST_BYTES,
    REQUEST,
    ROOT_STATE,
    SAMPLES,
    SLICE,
    USAGE,
    AnyFolderRequest,
    AnyRequest,
    DestroySlice,
    EnsureSlice,
    FolderRoot,
    FolderUsage,
    HealGpu,
    Inventory,
    ListFolders,
    MakeFolder,
    Problem,
    RemoveFolder,
    Reply,
    ReportHealth,
    Sample,
    malformed,
)

__all__ = ["AgentServer", "bind_socket"]

_log = logging.getLogger("allotment.agent")
_MAX_PEERS = 64
_IDLE_S = 300.0
_BACKLOG = 64


def bind_socket(path: Path, *, group: str | None = None) -> socket.socket:
    """A listening socket at `path`, for its owner only, or for `group` too. OSError, KeyError (no group).

    It appears there in one rename with its final mode, over a stale one of a dead agent.
    The caller holds the lock of the state directory, so no living agent is robbed.
    """
    _folder(path.parent, group)
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        old = os.umask(0o177)
        try:
            listening.bind(str(scratch))
        finally:
            os.umask(old)
        if group is not None:
            os.chown(scratch, -1, grp.getgrnam(group).gr_gid)
            scratch.chmod(0o660)
        listening.listen(_BACKLOG)
        scratch.replace(path)
    except BaseException:
        listening.close()
        scratch.unlink(missing_ok=True)
        raise
    return listening


def _folder(path: Path, group: str | None) -> None:
    """The socket's folder; one that we make is closed to everybody but those who may use the socket."""
    if path.is_dir():
        return
    path.mkdir(parents=True, mode=0o700)
    if group is not None:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
        path.chmod(0o710)


class AgentServer:
    """Any number of requests a connection, one after the other. Malformed lines are answered.

    A fault of ours ends that peer's connection (asyncio logs it), which the peer reads as unknown.
    """

    def __init__(self, *, front: Front, folders: Folders) -> None:
        self._front = front
        self._folders = folders
        self._peers: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_REQUEST_BYTES)

    async def stop(self, patience_s: float) -> None:
        """Take no new peers, give requests in progress `patience_s` seconds, then hang up."""
        if self._server is not None:
            self._server.close()
        if self._peers:
            await asyncio.wait(self._peers, timeout=patience_s)
        for peer in self._peers:
            peer.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._peers) >= _MAX_PEERS:
            writer.close()
            return
        self._peers.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, TimeoutError) as error:
            _log.debug("peer gone: %s", error)
        finally:
            self._peers.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one line; False when the peer is done or cannot be understood any more."""
        try:
            async with asyncio.timeout(_IDLE_S):
                line = await reader.readline()
        except ValueError:
            reply, go_on = (
                Reply(id=None, problem=malformed(f"a line has over {MAX_REQUEST_BYTES} bytes")),
                False,
            )
        else:
            if not line.endswith(b"\n"):
                return False
            reply, go_on = await self._answer(line), True
        writer.write(reply.model_dump_json().encode() + b"\n")
        await writer.drain()
        return go_on

    async def _answer(self, line: bytes) -> Reply:
        try:
            request = REQUEST.validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            return Reply(id=None, problem=malformed(f"{where}: {first['msg']}" if where else first["msg"]))
        try:
            return Reply(id=request.id, result=await self._do(request))
        except Refusal as refusal:
            return Reply(id=request.id, problem=Problem.of(refusal))

    async def _do(self, request: AnyRequest) -> Any:
        match request:
            case Inventory():
                return INVENTORY.dump_python(await self._front.inventory(), mode="json")
            case EnsureSlice():
                made = await self._front.ensure_slice(request.gpu_uuid, request.profile, request.start)
                return SLICE.dump_python(made, mode="json")
            case DestroySlice():
                return await self._front.destroy_slice(request.gpu_uuid, request.profile, request.start)
            case Sample():
                return SAMPLES.dump_python(await self._front.samples(), mode="json")
            case ReportHealth():
                return self._front.health().model_dump(mode="json")
            case HealGpu():
                return await self._front.heal(request.gpu_uuid)
            case _:
                return await self._do_folder(request)

    async def _do_folder(self, request: AnyFolderRequest) -> Any:
        """Beside the front, so that a GPU that hangs keeps nobody from a folder."""
        match request:
            case MakeFolder():
                made = await self._folders.make_folder(
                    request.root,
                    request.name,
                    uid=request.uid,
                    gid=request.gid,
                    mode=request.mode,
                    limit_bytes=request.limit_bytes,
                )
                return FOLDER.dump_python(made, mode="json")
            case RemoveFolder():
                return await self._folders.remove_folder(request.root, request.name)
            case FolderUsage():
                found = await self._folders.folder_usage(request.root, request.name)
                return USAGE.dump_python(found, mode="json")
            case ListFolders():
                return await self._folders.list_folders(request.root)
            case FolderRoot():
                return ROOT_STATE.dump_python(await self._folders.folder_root(request.root), mode="json")
