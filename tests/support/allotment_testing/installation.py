"""A whole installation of one test: the real `up` and `down`, real services, from this environment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allotment_hub.host.connection import Connection
from allotment_hub.host.lock import holder
from allotment_hub.host.probes import Answer, request
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime

__all__ = ["Installation", "free_port", "wait_until"]

SIMULATED = "sim:1xA100-80GB:mig"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], *, what: str, limit_s: float = 60.0) -> None:
    """Return once the condition holds; fail by name when it does not in time."""
    limit = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {limit_s:.0f} s: {what}")
        time.sleep(0.05)


class Installation:
    """`up()` it, use `connection`, `kill()` its services; `close()` removes all of it.

    The folder is made below /tmp and not in pytest's own: a unix socket's path must be short.
    """

    def __init__(
        self,
        *,
        gpus: str = SIMULATED,
        engine: str = "local",
        env: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="allot-"))
        self.data = self.folder / "data"
        self.paths = Paths(data=self.data)
        self.port = free_port()
        self.gpus = gpus
        self.engine = engine
        own = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
        self.env = {**own, "HOME": str(self.folder), **(env or {})}
        self.inside = tuple(inside)
        """A command that runs `up` and `down`, such as one that gives them other mounts."""

    def arguments(self, *extra: str) -> list[str]:
        """What `up` is called with; a later option of `extra` wins."""
        own = [
            "--data-dir",
            str(self.data),
            "--port",
            str(self.port),
            "--engine",
            self.engine,
            "--gpus",
            self.gpus,
        ]
        return [*own, "--detach", "--yes", *extra]

    def up(self, *extra: str, limit_s: float = 240.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `up` to its end; its output is in the error when it fails."""
        return self._run("up", self.arguments(*extra), limit_s=limit_s, check=check)

    def down(self, *extra: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._run("down", ["--data-dir", str(self.data), "--yes", *extra], limit_s=180.0, check=check)

    def close(self) -> None:
        """End everything, also what a failed test left."""
        if self.paths.runtime.parent.is_dir():
            self.down("--purge", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def connection(self) -> Connection:
        found = Connection.load(self.paths.connection)
        assert found is not None, "there is no connection.json"
        return found

    @property
    def runtime(self) -> Runtime:
        return Runtime.model_validate_json(self.paths.runtime.read_text(encoding="utf-8"))

    def services(self) -> dict[str, dict[str, object]]:
        """The supervisor's own account: pid, ready and deaths of each service."""
        try:
            text = (self.data / "run" / "supervisor.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        found: dict[str, dict[str, object]] = json.loads(text)["services"]
        return found

    def pid(self, service: str) -> int:
        """The pid of a service, or of the supervisor itself."""
        if service == "supervisor":
            return holder(self.data / "run" / "supervisor.lock") or 0
        return int(str(self.services()[service]["pid"]))

    def kill(self, service: str) -> int:
        """kill -9; returns the pid it had."""
        pid = self.pid(service)
        os.kill(pid, signal.SIGKILL)
        return pid

    def ready(self, service: str, *, other_than: int | None = None) -> bool:
        """Whether it is ready, as another process than the one that was killed."""
        state = self.services().get(service, {})
        return bool(state.get("ready")) and state.get("pid") != other_than

    def wait_ready(self, service: str, *, other_than: int | None = None, limit_s: float = 60.0) -> None:
        wait_until(
            lambda: self.ready(service, other_than=other_than), what=f"{service} ready again", limit_s=limit_s
        )

    def restart(self, service: str) -> None:
        """Kill it and wait until the supervisor has it ready again."""
        self.wait_ready(service, other_than=self.kill(service))

    def hub(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
    ) -> Answer:
        """A call of `/hub/api` + path through the public address, as the admin unless a token is given."""
        url = f"{self.connection.hub_url}/hub/api{path}"
        token = token or self.connection.admin_token
        return request(url, method=method, token=token, body=body, timeout_s=timeout_s)

    def start_session(
        self, user: str = "demo", server: str = "", *, flavor: str = "gpu-10gb", limit_s: float = 90.0
    ) -> dict[str, object]:
        """A ready session of this person; the hub's model of its server."""
        end = f"servers/{server}" if server else "server"
        body = {"user_options": {"environment": "minimal", "flavor": flavor}}
        reply = self.hub("POST", f"/users/{user}/{end}", body)
        assert reply.status in (201, 202), reply.body.decode()

        def model() -> dict[str, object]:
            servers = self.hub("GET", f"/users/{user}").json()["servers"]
            found: dict[str, object] = servers.get(server, {})
            return found

        wait_until(lambda: model().get("ready"), what=f"session of {user}", limit_s=limit_s)
        return model()

    def broker(self, path: str, *, method: str = "GET", token: str | None = None) -> Answer:
        """A call of `/services/allotment/api/v1/` + path through the public address."""
        url = f"{self.connection.broker_url}api/v1/{path}"
        return request(url, method=method, token=token or self.connection.admin_token, timeout_s=30.0)

    def _run(
        self, module: str, argv: list[str], *, limit_s: float, check: bool
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.inside, sys.executable, "-m", f"allotment_hub.host.{module}", *argv],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{module} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done
