"""One container of one attempt, through the stock spawner's own Docker calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from allotment_spawner.core.errors import EngineUnavailable, EnvironmentUnavailable, Refusal, StartFailed
from allotment_spawner.launch.container import requested_devices
from allotment_spawner.launch.names import LABEL_INSTALLATION

__all__ = ["DockerCall", "DockerWorkload", "docker_answers"]

_LINES = 40
_LAST_BYTES = 8192
_GONE_TRIES = 100
_GONE_EVERY_S = 0.1


class DockerCall(Protocol):
    """Call a method of docker-py's APIClient in a thread."""

    def __call__(self, method: str, /, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


@asynccontextmanager
async def docker_answers() -> AsyncIterator[None]:
    """Whatever is not an answer becomes `EngineUnavailable`; a 404 passes as docker-py's NotFound."""
    try:
        yield
    except NotFound:
        raise
    except (DockerException, RequestException, OSError) as error:
        text = getattr(error, "explanation", None) or str(error) or type(error).__name__
        raise EngineUnavailable(
            f"Docker does not do what was asked: {str(text).strip().rstrip('.')[:200]}.",
            "Try again in a minute; tell an operator if it stays.",
        ) from error


@dataclass
class DockerWorkload:
    """`engine_ref` is the container's name; after `make()` it is acted upon by id alone, because a
    newer attempt of the same lease makes a container of the same name.

    `create` are create_container's arguments, None for a container that was found running.
    """

    engine_ref: str
    installation: str
    docker: DockerCall
    locate: Callable[[str], Awaitable[str]]
    """The server's URL for a container id."""
    create: Mapping[str, Any] | None = None
    after_create: Callable[[str], Awaitable[None]] | None = None
    """Settles what must be right inside before anything runs; gets the container's id."""
    after_start: Callable[[str], Awaitable[None]] | None = None
    fetch: Callable[[], Awaitable[None]] | None = None
    """Brings the image to this machine, or raises the refusal that says why not."""
    container_id: str | None = None
    _creating: asyncio.Future[Any] | None = None

    async def make(self) -> None:
        try:
            try:
                await self._create()
            except NotFound:
                # looked for only now: nearly always it is here
                if self.fetch is None:
                    raise
                await self.fetch()
                await self._create()
        except NotFound as error:
            raise EnvironmentUnavailable(
                "The image of this environment is not on this machine any more.",
                "Choose another environment, or ask an operator to build it.",
            ) from error
        if self.after_create is not None:
            await self.after_create(self._ref())

    async def start(self) -> None:
        try:
            async with docker_answers():
                await self.docker("start", self._ref())
        except (NotFound, EngineUnavailable) as error:
            sentence = "The container could not be started."
            if isinstance(error, EngineUnavailable):
                sentence = error.sentence
            raise StartFailed(sentence, "Try again; tell an operator if it stays.") from error
        if self.after_start is not None:
            await self.after_start(self._ref())

    async def devices(self) -> tuple[str, ...]:
        """What the engine recorded, and anything else in the record that could give a device."""
        container = await self._inspect()
        if container is None:
            raise StartFailed("The server stopped while it started.", "Start again.")
        seen = set(requested_devices(container))
        host = container.get("HostConfig") or {}
        seen |= {str(one.get("PathOnHost")) for one in host.get("Devices") or []}
        if host.get("Privileged"):
            seen.add("every device (privileged)")
        visible = _variable(container, "NVIDIA_VISIBLE_DEVICES")
        if visible not in ("", "void"):
            seen |= set(visible.split(","))
        return tuple(sorted(seen))

    async def url(self) -> str:
        try:
            async with docker_answers():
                return await self.locate(self._ref())
        except NotFound as error:
            raise StartFailed("The server stopped while it started.", "Start again.") from error

    async def exited(self) -> int | str | None:
        container = await self._inspect()
        if container is None:
            return 0
        state = container["State"]
        if state["Running"] or state.get("Paused"):
            return None
        return f"exit code {state['ExitCode']}" + (f": {state['Error']}" if state.get("Error") else "")

    async def last_words(self) -> str:
        try:
            async with docker_answers():
                log: bytes = await self.docker("logs", self._ref(), tail=_LINES)
        except (NotFound, EngineUnavailable):
            return ""
        return _quoted(log[-_LAST_BYTES:].decode(errors="replace"))

    async def remove(self, *, grace_s: float) -> None:
        """Only 404 means gone."""
        if self.create is not None:
            if self._creating is None:
                return
            # a cancelled create goes on in its thread; what it makes is removed too
            await asyncio.wait([self._creating])
            if self.container_id is None:
                if _failed(self._creating):
                    return
                self.container_id = self._creating.result()["Id"]
        await self._remove(self._ref(), grace_s)

    async def _create(self) -> None:
        if self.create is None:
            return
        async with docker_answers():
            try:
                made = await self._creation(self.create)
            except APIError as error:
                if error.status_code != HTTPStatus.CONFLICT:
                    raise
                # the leftover of an earlier attempt of this lease, which may not start any more
                await self._remove(self.engine_ref, 0)
                made = await self._creation(self.create)
        self.container_id = made["Id"]

    async def _creation(self, arguments: Mapping[str, Any]) -> Any:
        self._creating = asyncio.ensure_future(self.docker("create_container", **arguments))
        return await asyncio.shield(self._creating)

    async def _inspect(self) -> dict[str, Any] | None:
        try:
            async with docker_answers():
                found: dict[str, Any] = await self.docker("inspect_container", self._ref())
        except NotFound:
            return None
        self.container_id = found["Id"]
        return found

    async def _remove(self, ref: str, grace_s: float) -> None:
        try:
            async with docker_answers():
                found = await self.docker("inspect_container", ref)
                labels = (found.get("Config") or {}).get("Labels") or {}
                if labels.get(LABEL_INSTALLATION) != self.installation:
                    raise _foreign(ref)
                # by id: the name may be given away while we wait
                if found["State"]["Running"] and grace_s > 0:
                    await self.docker("stop", found["Id"], timeout=math.ceil(grace_s))
                await self._remove_id(found["Id"])
        except NotFound:
            return

    async def _remove_id(self, container_id: str) -> None:
        try:
            await self.docker("remove_container", container_id, v=True, force=True)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != HTTPStatus.CONFLICT:
                raise
            # somebody else's removal is in progress; NotFound ends this
            for _ in range(_GONE_TRIES):
                await self.docker("inspect_container", container_id)
                await asyncio.sleep(_GONE_EVERY_S)

    def _ref(self) -> str:
        return self.container_id or self.engine_ref


def _failed(future: asyncio.Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def _foreign(ref: str) -> Refusal:
    return EngineUnavailable(
        f"A container named {ref} exists that Allotment did not make; it was left alone.",
        "Ask an operator to remove or rename it.",
    )


def _variable(container: Mapping[str, Any], name: str) -> str:
    for entry in (container.get("Config") or {}).get("Env") or []:
        key, _, value = str(entry).partition("=")
        if key == name:
            return value
    return ""


def _quoted(text: str) -> str:
    """What somebody's code printed, as lines that nobody takes for the hub's own, and no terminal obeys."""
    lines = ("".join(one if one.isprintable() else "?" for one in line) for line in text.splitlines())
    return "\n".join(f"  | {line}" for line in lines)
