"""What JupyterLab is told of a session, by what the broker and the environment say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from allotment.jupyter.room import Room
from allotment.jupyter.session import SessionView
from allotment.jupyter.upstream import Upstream
from allotment.settings import Settings


@pytest.mark.parametrize(("devices", "simulated"), [("MIG-1", True), ("", False)])
async def test_only_a_gpu_is_called_simulated(tmp_path: Path, devices: str, simulated: bool) -> None:
    def broker(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"simulated": True})

    settings = Settings(url="http://b/services/allotment/", token="t", hub_url=None, source="a test")
    upstream = Upstream(settings=settings, lease="x", transport=httpx.MockTransport(broker))
    env = {"ALLOTMENT_LEASE": "x", "ALLOTMENT_DEVICES": devices}
    room = Room(home=tmp_path)
    view = SessionView(env=env, upstream=upstream, room=room, packages=lambda: {"state": "none"})
    assert (await view.document())["simulated"] is simulated
    async with asyncio.timeout(10):  # it has begun to count the home
        await room.close()
    await upstream.close()
