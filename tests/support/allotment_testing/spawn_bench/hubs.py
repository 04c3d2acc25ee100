"""An installation of ours and a stock JupyterHub with DockerSpawner, side by side on one dockerd."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import httpx
from allotment_hub.host.node import ensure_proxy, find_node

from allotment_testing.installation import Installation, free_port
from allotment_testing.spawn_bench.drive import HubUnderTest

__all__ = ["our_hub", "stock_hub"]

ROOT = Path(__file__).resolve().parents[4]
NETWORK = "stock"
STOCK = """
c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://{gateway}:{hub_port}"
c.JupyterHub.db_url = "sqlite:///{folder}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.ConfigurableHTTPProxy.command = ["{node}", "{proxy}"]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "bench", "scopes": ["admin:users", "admin:servers"], "services": ["bench"]}}
]
c.DockerSpawner.client_kwargs = {{"base_url": "{base_url}"}}
c.DockerSpawner.image = "{image}"
c.DockerSpawner.pull_policy = "skip"
c.DockerSpawner.remove = True
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.network_name = "{network}"
c.DockerSpawner.volumes = {{"stock-{{username}}": "/home/jovyan"}}
c.DockerSpawner.mem_limit = "8G"
c.DockerSpawner.cpu_limit = 2
"""


@contextmanager
def our_hub(*, base_url: str, flavor: str, gpus: str) -> Iterator[HubUnderTest]:
    """An installation on this engine; taken down with its data afterwards."""
    installation = Installation(engine="docker", gpus=gpus)
    try:
        # What `up` makes of an empty folder, with two things changed.
        installation.paths.site.parent.mkdir(parents=True)
        installation.paths.runtime.parent.mkdir()
        installation.paths.site.write_text(
            f"docker: {{socket: '{base_url}'}}\npolicies: {{sessions_per_person: 10}}\n"
        )
        installation.up()
        yield HubUnderTest(
            name="Allotment",
            url=installation.connection.hub_url,
            token=installation.connection.admin_token,
            options={"environment": "minimal", "flavor": flavor},
        )
    finally:
        installation.close()


@contextmanager
def stock_hub(folder: Path, *, base_url: str, image: str) -> Iterator[HubUnderTest]:
    """JupyterHub with DockerSpawner as its documentation says: own network, internal addresses."""
    folder.mkdir(parents=True)
    token = secrets.token_hex(16)
    node = find_node()
    proxy = ensure_proxy(ROOT / "deploy" / "proxy", node, lambda _line: None)
    port = free_port()
    config = folder / "jupyterhub_config.py"
    config.write_text(
        STOCK.format(
            port=port,
            hub_port=free_port(),
            api_port=free_port(),
            gateway=_make_network(base_url),
            folder=folder,
            node=node.node,
            proxy=proxy,
            token=token,
            base_url=base_url,
            image=image,
            network=NETWORK,
        )
    )
    with (folder / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            cwd=folder,
            stdout=log,
            stderr=log,
            env=os.environ | {"CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(16)},
        )
    hub = HubUnderTest(name="stock DockerSpawner", url=f"http://127.0.0.1:{port}", token=token, options={})
    try:
        _wait_for(hub, process, folder / "hub.log")
        yield hub
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _make_network(base_url: str) -> str:
    """The gateway's address: where containers reach the hub."""
    client = docker.DockerClient(base_url=base_url)
    try:
        network = client.networks.create(NETWORK, driver="bridge")
        network.reload()
        return str(network.attrs["IPAM"]["Config"][0]["Gateway"])
    finally:
        client.close()


def _wait_for(hub: HubUnderTest, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the stock hub ended:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.2)
        with suppress(httpx.TransportError), hub.client() as client:
            if client.get("/").is_success:
                return
    raise RuntimeError(f"the stock hub did not answer:\n{log.read_text(errors='replace')[-3000:]}")
