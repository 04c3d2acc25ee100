"""A real JupyterHub with a real proxy as child processes, for tests of the spawners and pages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from allotment_hub.host.node import ensure_proxy, find_node

__all__ = ["HubProcess", "free_port", "until"]

_ROOT = Path(__file__).resolve().parents[3]
_CONFIG = """
from allotment_spawner.spawners import handlers
from jupyterhub.auth import DummyAuthenticator

class OurPagesFirst(DummyAuthenticator):
    def get_handlers(self, app):
        return [*handlers.handlers(), *super().get_handlers(app)]

c.JupyterHub.authenticator_class = OurPagesFirst
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"root-admin"}}
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.JupyterHub.db_url = "sqlite:///{folder}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret = bytes.fromhex("{cookie}")
c.JupyterHub.pid_file = ""
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.ConfigurableHTTPProxy.auth_token = "{proxy_token}"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.allow_named_servers = True
c.JupyterHub.services = [{{"name": "tests", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "tests", "scopes": ["admin:users", "admin:servers"], "services": ["tests"]}}
]
c.JupyterHub.template_paths = handlers.template_paths()
c.JupyterHub.template_vars = {{
    "allotment_title": "Allotment", "allotment_simulated": True, "allotment_engine": "local"
}}
c.JupyterHub.spawner_class = "allotment-local"
c.GpuSpawnerMixin.broker_url = "{broker_url}"
c.GpuSpawnerMixin.broker_token_file = "{broker_token}"
c.GpuSpawnerMixin.installation = "feedbeef"
c.GpuSpawnerMixin.stop_grace = 5
c.GpuSpawnerMixin.flavor_descriptions = {{"gpu-10gb": "For notebooks & small models"}}
c.GpuLocalSpawner.homes_dir = "{folder}/homes"
c.GpuLocalSpawner.logs_dir = "{folder}/logs"
{extra}
"""


async def until(condition: Any, *, what: str, limit_s: float = 30.0, every_s: float = 0.05) -> Any:
    """The first true value of `condition` (a function, async or not); fails after `limit_s`."""
    async with asyncio.timeout(limit_s):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(every_s)
    raise AssertionError(what)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class HubProcess:
    """`folder` keeps the database, homes and logs, so that a hub killed and started again knows them."""

    folder: Path
    broker_url: str
    broker_token: Path
    extra: str = ""
    port: int = field(default_factory=free_port)
    hub_port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    proxy_token: str = field(default_factory=lambda: secrets.token_hex(16))
    cookie: str = field(default_factory=lambda: secrets.token_hex(32))
    _hub: asyncio.subprocess.Process | None = None
    _proxy: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "hub.log").read_text(errors="replace")

    def client(self) -> httpx.AsyncClient:
        """The hub's API as an administrating service."""
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.hub_port}/hub/api",
            headers={"Authorization": f"token {self.token}"},
            timeout=60,
        )

    async def start(self) -> None:
        await self.start_proxy()
        await self.start_hub()

    async def start_proxy(self) -> None:
        node = find_node()
        script = ensure_proxy(_ROOT / "deploy" / "proxy", node, lambda _line: None)
        self._proxy = await self._run(
            node.node,
            str(script),
            *("--ip", "127.0.0.1", "--port", str(self.port)),
            *("--api-ip", "127.0.0.1", "--api-port", str(self.api_port)),
            *("--default-target", f"http://127.0.0.1:{self.hub_port}"),
            log="proxy.log",
        )

    async def start_hub(self) -> None:
        config = self.folder / "jupyterhub_config.py"
        values = {name: getattr(self, name) for name in ("port", "hub_port", "api_port", "token", "cookie")}
        config.write_text(
            _CONFIG.format(
                folder=self.folder,
                proxy_token=self.proxy_token,
                broker_url=self.broker_url,
                broker_token=self.broker_token,
                extra=self.extra,
                **values,
            )
        )
        self._hub = await self._run(sys.executable, "-m", "jupyterhub", "-f", str(config), log="hub.log")
        await until(self._answers, what="the hub answers", limit_s=60)

    async def kill_hub(self) -> None:
        assert self._hub is not None
        self._hub.kill()
        await self._hub.wait()

    async def stop_hub(self) -> None:
        assert self._hub is not None
        if self._hub.returncode is None:
            self._hub.terminate()
            await self._hub.wait()

    async def stop(self) -> None:
        for process in (self._hub, self._proxy):
            if process is not None and process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 10)
                except TimeoutError:
                    process.kill()
                    await process.wait()
        self._end_sessions()

    def _end_sessions(self) -> None:
        """Sessions outlive this hub on purpose; those of a test that is over must not."""
        home = f"HOME={self.folder}/homes/".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(one.startswith(home) for one in (entry / "environ").read_bytes().split(b"\0")):
                    os.kill(int(entry.name), signal.SIGKILL)

    async def add_user(self, name: str) -> None:
        """One that is there already is no error."""
        async with self.client() as api:
            answer = await api.post(f"/users/{name}")
            if answer.status_code != HTTPStatus.CONFLICT:
                answer.raise_for_status()

    async def server(self, user: str, server: str = "") -> dict[str, Any] | None:
        """The hub's model of the server, None when the hub says it is not there."""
        async with self.client() as api:
            answer = await api.get(f"/users/{user}", params={"include_stopped_servers": "1"})
            answer.raise_for_status()
            found: dict[str, Any] | None = answer.json()["servers"].get(server)
            return found

    async def _answers(self) -> bool:
        if self._hub is not None and self._hub.returncode is not None:
            raise AssertionError(f"the hub ended:\n{self.log[-3000:]}")
        try:
            async with self.client() as api:
                return (await api.get("/")).is_success
        except httpx.TransportError:
            return False

    async def _run(self, *command: str, log: str) -> asyncio.subprocess.Process:
        env = os.environ | {"CONFIGPROXY_AUTH_TOKEN": self.proxy_token}
        env.pop("JUPYTERHUB_API_TOKEN", None)
        with (self.folder / log).open("ab") as out:
            return await asyncio.create_subprocess_exec(
                *command, cwd=self.folder, env=env, stdout=out, stderr=out, stdin=asyncio.subprocess.DEVNULL
            )
