"""What `allot images build` lays out of saved environments: what an operator approves now, nothing older."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer
from allotment.client import Client
from allotment.settings import Settings
from allotment_hub.commands.image_making import lay_out_saved
from allotment_hub.paths import Paths
from allotment_testing.broker_api import broker_api
from allotment_testing.fake_hub_api import ACCESS

SAVED = {"title": "Team", "base": "minimal", "packages": [{"name": "six", "version": "1"}]}


async def test_nothing_is_built_whose_approval_was_taken_back(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "data")
    folder = paths.data / "environments"
    async with broker_api(tmp_path / "broker", engine_name="docker") as api, api.served() as url:
        api.hub.add_user("ann")
        api.hub.add_user("root", admin=True)
        tokens = [api.hub.add_token(name, ACCESS) for name in ("ann", "root")]

        def lay_out(*names: str) -> None:
            settings = Settings(url=url, token=tokens[1], hub_url=None, source="this test")
            with Client(settings) as client:
                lay_out_saved(client, paths, list(names))

        async with api.client(tokens[0]) as ann, api.client(tokens[1]) as root:
            checksum = (await ann.put("saved/team", json=SAVED)).json()["checksum"]
            with pytest.raises(typer.Exit):
                await asyncio.to_thread(lay_out, "team")
            await root.post("saved/team/approve", json={"checksum": checksum})
            await asyncio.to_thread(lay_out, "team")
            assert (folder / "team" / "cpu.lock").exists()
            await root.post("saved/team/refuse", json={"because": "No."})
            assert (await ann.delete("saved/team")).status_code == 204
            kept = folder / "Not-A-Name"
            kept.mkdir()
            await asyncio.to_thread(lay_out, "team", "Not-A-Name", "..", "x" * 90, "minimal")
            assert [one.name for one in folder.iterdir()] == ["Not-A-Name"]
