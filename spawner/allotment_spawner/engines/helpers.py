"""Runs helpers on a Docker engine: start, wait for the end or the deadline, always remove."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import ReadTimeout, RequestException

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.attached import STDERR, attached, frames
from allotment_spawner.launch.container import HomeMount, Owner
from allotment_spawner.launch.helper import (
    LABEL_HELPER,
    Finished,
    HelperMount,
    helper_container,
    helper_image,
    helper_name,
)

__all__ = ["Helpers", "remove_helpers"]

LABEL_PACKAGES: Final = "org.allotment.packages"
_LINES: Final = 60
_AGAIN_S: Final = 0.5
_ERRORS_BYTES: Final = 8000


class Helpers:
    """Blocking; every call opens a client of its own. `EngineUnavailable` when the engine does not answer.

    `image` is any of ours: all of them have a shell, GNU coreutils, tar and Python. None: the newest plain
    one on this machine.
    """

    def __init__(
        self, *, installation: str, base_url: str, image: str | None = None, patience_s: float = 30.0
    ) -> None:
        """`patience_s`: how long to wait for a volume that a container which is just ending still uses."""
        self._patience_s = patience_s
        self._installation = installation
        self._base_url = base_url
        self._image = image

    def exists(self, home: HomeMount) -> bool | None:
        """Whether it is there; None for a folder that this process may not look at."""
        if home.kind == "bind":
            try:
                Path(home.source).stat()
            except FileNotFoundError:
                return False
            except OSError:
                return None
            return True
        with self._client() as client:
            try:
                client.inspect_volume(home.source)
            except NotFound:
                return False
            return True

    def remove_volume(self, home: HomeMount) -> None:
        """Gone already is fine; one in use is `EngineUnavailable`."""
        limit = time.monotonic() + self._patience_s
        with self._client() as client, contextlib.suppress(NotFound):
            while True:
                try:
                    client.remove_volume(home.source)
                    return
                except APIError as error:
                    if error.status_code != HTTPStatus.CONFLICT or time.monotonic() > limit:
                        raise
                time.sleep(_AGAIN_S)

    def run(
        self,
        work: str,
        user: str,
        *,
        argv: Sequence[str],
        owner: Owner,
        mounts: Sequence[HelperMount],
        limit_s: float,
    ) -> Finished:
        """Run it to its end; what it prints is kept up to some lines."""
        with self._client(limit_s) as client, self._made(client, work, user, argv, owner, mounts) as name:
            client.start(name)
            code: int | None
            try:
                code = int(client.wait(name, timeout=limit_s)["StatusCode"])
            except (ReadTimeout, RequestException) as error:
                # docker-py's wait ends in either when the time is up
                if "timed out" not in str(error).lower():
                    raise
                code = None
            out = client.logs(name, stdout=True, stderr=False, tail=_LINES)
            err = client.logs(name, stdout=False, stderr=True, tail=_LINES)
            return Finished(code, out.decode(errors="replace"), err.decode(errors="replace"))

    def stream(
        self,
        work: str,
        user: str,
        *,
        argv: Sequence[str],
        owner: Owner,
        mounts: Sequence[HelperMount],
        take: Callable[[bytes], object],
        limit_s: float,
    ) -> Finished:
        """Run it and give all it prints to `take`, piece by piece; nothing of it is kept by the engine.

        `limit_s` bounds each silence, not the whole.
        """
        with (
            self._client(limit_s) as client,
            self._made(client, work, user, argv, owner, mounts, keep_output=False) as name,
        ):
            err = b""
            with attached(client, name) as stream:
                client.start(name)
                for kind, piece in frames(stream):
                    if kind == STDERR:
                        err = (err + piece)[-_ERRORS_BYTES:]
                    else:
                        take(piece)
            code = int(client.wait(name, timeout=limit_s)["StatusCode"])
            return Finished(code, "", err.decode(errors="replace"))

    @contextlib.contextmanager
    def _made(
        self,
        client: Any,
        work: str,
        user: str,
        argv: Sequence[str],
        owner: Owner,
        mounts: Sequence[HelperMount],
        *,
        keep_output: bool = True,
    ) -> Iterator[str]:
        name = helper_name(self._installation, work, user)
        create, host = helper_container(
            installation=self._installation,
            name=name,
            image=self._image or _plainest(client),
            argv=argv,
            owner=owner,
            mounts=mounts,
            keep_output=keep_output,
        )
        _remove(client, name)  # what a killed try left
        client.create_container(**create, host_config=client.create_host_config(**host))
        try:
            yield name
        finally:
            _remove(client, name)

    @contextlib.contextmanager
    def _client(self, timeout_s: float = 60.0) -> Iterator[Any]:
        try:
            client = docker.APIClient(base_url=self._base_url, timeout=max(60.0, timeout_s))
        except (DockerException, RequestException, OSError) as error:
            raise _silent(error) from error
        try:
            yield client
        except (DockerException, RequestException, OSError, EOFError) as error:
            raise _silent(error) from error
        finally:
            client.close()


def remove_helpers(client: Any, installation: str) -> None:
    """Those that a kill left; raises what docker-py raises."""
    for one in client.containers(all=True, filters={"label": [f"{LABEL_HELPER}={installation}"]}):
        _remove(client, one["Id"])


def _remove(client: Any, name: str) -> None:
    with contextlib.suppress(NotFound):
        client.remove_container(name, force=True)


def _plainest(client: Any) -> str:
    found = helper_image(client.images(filters={"label": LABEL_PACKAGES}))
    if found is None:
        raise EngineUnavailable(
            "No notebook image is on this machine, and helpers for homes run in one.",
            "Build one: images/build minimal",
        )
    return found


def _silent(error: BaseException) -> EngineUnavailable:
    told = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    reason = (str(told).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
    return EngineUnavailable(
        f"Docker does not do what was asked: {reason}.", "See whether the Docker service runs, and try again."
    )
