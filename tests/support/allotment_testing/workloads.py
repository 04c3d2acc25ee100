"""What runs for one installation, as the machine itself tells: processes of this host, or containers."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from allotment_testing.crash_orders import crashing_environment
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.installation import Installation

__all__ = ["Containers", "LocalProcesses", "Workloads", "docker_installation", "prepared_installation"]


class Workloads(Protocol):
    """Asked of the machine, never of our own services."""

    def refs(self, user: str, server: str) -> list[str]:
        """What exists for this server: pids or container names, running or not."""

    def kill(self, user: str, server: str) -> None:
        """kill -9 of all that runs for this server."""


class LocalProcesses:
    """Processes that bear the local engine's marks in their environment."""

    def __init__(self, *, installation: Installation) -> None:
        self._at = installation

    def refs(self, user: str, server: str) -> list[str]:
        return [str(pid) for pid in self._pids(user, server)]

    def kill(self, user: str, server: str) -> None:
        for pid in self._pids(user, server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pids(self, user: str, server: str) -> list[int]:
        marks = {
            f"ALLOTMENT_INSTALLATION={self._at.runtime.installation}".encode(),
            f"ALLOTMENT_USER={user}".encode(),
            f"ALLOTMENT_SERVER={server}".encode(),
        }
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
        return found


class Containers:
    """Containers of one installation on a tests' own engine; `client` is a docker-py APIClient."""

    def __init__(self, *, client: Any, installation: Installation) -> None:
        self.client = client
        self._at = installation

    def all(self) -> list[dict[str, Any]]:
        """As `docker ps --all` lists them."""
        return self._listed()

    def refs(self, user: str, server: str) -> list[str]:
        """An engine that does not answer has, for all we know, still one: unknown is not gone."""
        try:
            listed = self._listed(user)
        except (DockerException, RequestException):
            return ["unknown"]
        ours = [one for one in listed if one["Labels"].get("allotment.server") == server]
        return [str(one["Names"][0]).removeprefix("/") for one in ours]

    def kill(self, user: str, server: str) -> None:
        for name in self.refs(user, server):
            with contextlib.suppress(NotFound):
                self.client.kill(name)

    def of(self, lease: str) -> dict[str, Any]:
        """docker inspect of the container of this lease; NotFound when there is none."""
        found: dict[str, Any] = self.client.inspect_container(self.name(lease))
        return found

    def name(self, lease: str) -> str:
        return f"allotment-{self._at.runtime.installation}-{lease}"

    def inside(self, lease: str, *argv: str) -> str:
        """What a command in this lease's container prints; AssertionError when it fails."""
        made = self.client.exec_create(self.name(lease), list(argv))
        text: str = self.client.exec_start(made["Id"]).decode(errors="replace")
        code = self.client.exec_inspect(made["Id"])["ExitCode"]
        assert code == 0, (argv, code, text)
        return text

    def _listed(self, user: str | None = None) -> list[dict[str, Any]]:
        labels = [f"allotment.installation={self._at.runtime.installation}"]
        if user is not None:
            labels.append(f"allotment.user={user}")
        found: list[dict[str, Any]] = self.client.containers(all=True, filters={"label": labels})
        return found


def prepared_installation(
    daemon: DockerDaemon, *, gpus: str = "sim:1xA100-80GB:mig", network: str | None = None
) -> Installation:
    """Ready for its first `up`, on this engine, with simulated devices asked for as real ones are."""
    made = Installation(gpus=gpus, engine="docker")
    # what `up` makes of an empty folder, with one thing changed: which engine
    made.paths.site.parent.mkdir(parents=True)
    made.paths.runtime.parent.mkdir()
    named = "" if network is None else f", network: {network}"
    made.paths.site.write_text(f"docker: {{socket: '{daemon.base_url}', request_devices: nvidia{named}}}\n")
    return made


@contextlib.contextmanager
def docker_installation(daemon: DockerDaemon, *, crashing: bool = False) -> Iterator[Installation]:
    """A running installation with one simulated A100-80GB.

    If `crashing`, its services take crash orders, and a grant that nobody uses ends soon.
    """
    made = prepared_installation(daemon)
    if crashing:
        with made.paths.site.open("a") as site:
            site.write("policies: {grant_deadline_s: 10}\n")
        made.env |= crashing_environment(made.folder, engine=daemon.base_url)
    try:
        made.up()
        yield made
    finally:
        made.close()
