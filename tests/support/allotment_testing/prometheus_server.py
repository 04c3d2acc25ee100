"""A real Prometheus on loopback, as Debian packages it, that scrapes what a test serves."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

__all__ = ["PrometheusServer", "prometheus_server"]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"


class PrometheusServer:
    def __init__(self, url: str, config: Path) -> None:
        self.url = url
        self.config = config
        self._http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=20)

    async def get(self, path: str, **query: str) -> Any:
        """The `data` of an answer of its API; whatever it refuses fails with its own words."""
        answer = await self._http.get(f"/api/v1/{path}", params=query)
        document = answer.json()
        assert document["status"] == "success", (query, document)
        return document["data"]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """What an instant query finds now."""
        found: list[dict[str, Any]] = (await self.get("query", query=expression))["result"]
        return found

    async def until(self, expression: str, *, deadline_s: float = 40.0) -> list[dict[str, Any]]:
        """Wait until this finds something."""
        async with asyncio.timeout(deadline_s):
            while True:
                if found := await self.query(expression):
                    return found
                await asyncio.sleep(0.2)

    async def ready(self, *, deadline_s: float = 60.0) -> None:
        """Wait until it listens and has read what it stored."""
        async with asyncio.timeout(deadline_s):
            while not await self._is_ready():  # noqa: ASYNC110 - another process has no event for us
                await asyncio.sleep(0.1)

    async def _is_ready(self) -> bool:
        try:
            return (await self._http.get("/-/ready")).is_success
        except httpx.TransportError:
            return False

    async def close(self) -> None:
        await self._http.aclose()


def configured(folder: Path, *, target: str, token: str) -> Path:
    """The configuration that deploy/ holds, with another target, its token, and rounds of a second."""
    shutil.copy(DEPLOY / "alerts.yaml", folder / "alerts.yaml")
    (folder / "allotment-token").write_text(token + "\n")
    document = yaml.safe_load((DEPLOY / "scrape.yaml").read_text())
    document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = document["scrape_configs"]
    job["static_configs"] = [{"targets": [urlsplit(target).netloc]}]
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def prometheus_server(folder: Path, *, target: str, token: str) -> AsyncIterator[PrometheusServer]:
    """Scrapes `target` (a URL) with `token` until the end; its log is in `folder`."""
    folder.mkdir()
    config = configured(folder, target=target, token=token)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, env=os.environ | {"GOMAXPROCS": "1"}
        )
    server = PrometheusServer(f"http://127.0.0.1:{port}", config)
    try:
        await server.ready()
        yield server
    finally:
        await server.close()
        if process.returncode is None:
            process.terminate()
        await process.wait()
