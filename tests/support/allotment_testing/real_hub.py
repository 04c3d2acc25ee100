"""A real JupyterHub on loopback without a proxy: the sign-in and roles that the broker relies on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

__all__ = ["RealHub", "real_hub"]

_CONFIG: Final = """
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    should_start = False
    async def add_route(self, *_): return None
    async def delete_route(self, *_): return None
    async def get_all_routes(self): return {{}}

access = "access:services!service=allotment"
c.JupyterHub.bind_url = "http://127.0.0.1:{public_port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.JupyterHub.db_url = "sqlite:///:memory:"
c.JupyterHub.cookie_secret = b"x" * 32
c.JupyterHub.pid_file = ""
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "pw"
c.DummyAuthenticator.allow_all = True
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.allow_named_servers = True
c.JupyterHub.oauth_require_pkce = True
c.JupyterHub.custom_scopes = {{"custom:allotment:act-as": {{"description": "act"}}}}
c.JupyterHub.load_groups = {{"staff": {{"users": ["ann"]}}}}
c.JupyterHub.load_roles = [
    {{"name": "user", "scopes": ["self", access]}},
    {{"name": "broker", "services": ["allotment"],
      "scopes": ["list:users", "read:servers", "delete:servers", "read:groups", "read:users:groups"]}},
    {{"name": "acting", "services": ["other-hub"], "scopes": ["custom:allotment:act-as", access]}},
]
c.JupyterHub.services = [
    {{"name": "allotment", "url": "http://127.0.0.1:9", "api_token": "{service_token}", "timeout": 1,
      "oauth_no_confirm": True, "oauth_client_allowed_scopes": [access]}},
    {{"name": "other-hub", "api_token": "{acting_token}"}},
]
c.JupyterHub.api_tokens = {{"{admin_token}": "root", "{user_token}": "ann"}}
"""


@dataclass(frozen=True, slots=True)
class RealHub:
    """`url` is the hub's own (no proxy), without a slash at the end."""

    url: str
    service_token: str = "s" * 32
    acting_token: str = "t" * 32
    admin_token: str = "a" * 32
    user_token: str = "b" * 32


@contextmanager
def real_hub(folder: Path) -> Iterator[RealHub]:
    """Started and answering; its log is `folder`/hub.log."""
    public_port, hub_port = _free_port(), _free_port()
    hub = RealHub(f"http://127.0.0.1:{hub_port}")
    config = _CONFIG.format(
        public_port=public_port,
        hub_port=hub_port,
        service_token=hub.service_token,
        acting_token=hub.acting_token,
        admin_token=hub.admin_token,
        user_token=hub.user_token,
    )
    (folder / "hub.py").write_text(config, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTERHUB")}
    with (folder / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(folder / "hub.py")],
            cwd=folder,
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        _wait(hub, process, folder / "hub.log")
        yield hub
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(hub: RealHub, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline, "the hub did not start"
        try:
            if httpx.get(f"{hub.url}/hub/api/", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
