"""`allot data` and the routes behind it, against a broker that serves."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from allotment.cli import build_app
from allotment_hub.site import DatasetSettings, Mount, Site
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from allotment_testing.file_server import FileServer, file_server
from typer.testing import CliRunner, Result

BODY = os.urandom(700_000)


@dataclass
class Place:
    api: BrokerApi
    server: FileServer
    url: str
    token: str

    async def allot(self, *words: str, token: str | None = None) -> Result:
        """In a thread: the command is synchronous, and the broker lives on this loop."""
        env = {"ALLOTMENT_URL": self.url, "ALLOTMENT_TOKEN": token or self.token, "COLUMNS": "160"}
        return await asyncio.to_thread(CliRunner().invoke, build_app(), ["data", *words], env=env)

    async def listed(self) -> dict[str, dict[str, Any]]:
        done = await self.allot("list", "--json")
        assert done.exit_code == 0, done.output
        return {one["name"]: one for one in json.loads(done.stdout)["datasets"]}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with file_server(**{"iris.csv": BODY}) as server:
        site = Site(
            datasets=DatasetSettings(allow_hosts=(server.host,)),
            mounts=(Mount(name="course", path=str(tmp_path), title="The course"),),
        )
        async with broker_api(tmp_path / "b", site=site, engine_name="docker") as api, api.served() as url:
            api.hub.add_user("root", admin=True)
            api.hub.add_user("ann")
            yield Place(api, server, url, api.hub.add_token("root", ACCESS))


async def test_add_list_warm_pin_evict_remove(place: Place) -> None:
    told = ("--title", "Iris", "--licence", "CC-BY-4.0", "--sha256", hashlib.sha256(BODY).hexdigest())
    done = await place.allot("add", "iris", place.server.url("/iris.csv?signature=secret"), *told)
    assert done.exit_code == 0, done.output
    place.server.files["/iris.csv?signature=secret"] = BODY
    assert "registered" in done.stdout
    twice = await place.allot("add", "iris", place.server.url("/iris.csv"))
    assert twice.exit_code == 1
    assert "already" in twice.output
    assert (await place.listed())["iris"]["view"]["state"] == "absent"
    warm = await place.allot("warm", "iris")
    assert warm.exit_code == 0, warm.output
    found = (await place.listed())["iris"]
    assert (found["view"]["state"], found["cached_bytes"], found["files"]) == ("ready", len(BODY), 1)
    shown = (await place.allot("list")).stdout
    assert "CC-BY-4.0" in shown
    assert "700.0 kB" in shown
    assert "secret" not in shown
    assert (await place.allot("pin", "iris")).exit_code == 0
    refused = await place.allot("evict", "iris")
    assert refused.exit_code == 1
    assert "pinned" in refused.output
    assert (await place.allot("pin", "iris", "--off")).exit_code == 0
    assert (await place.allot("evict", "iris")).exit_code == 0
    assert (await place.listed())["iris"]["view"]["state"] == "absent"
    assert (await place.allot("remove", "iris", "--yes")).exit_code == 0
    assert await place.listed() == {}
    assert (await place.allot("remove", "iris", "--yes")).exit_code == 0


async def test_what_cannot_come_is_said(place: Place) -> None:
    assert (await place.allot("add", "gone", place.server.url("/gone"))).exit_code == 0
    warm = await place.allot("warm", "gone")
    assert warm.exit_code == 1
    assert "HTTP 404" in warm.output
    assert "HTTP 404" in (await place.allot("list")).output
    evil = await place.allot("add", "evil", "http://169.254.1.1/latest")
    assert evil.exit_code == 1
    assert "allow_hosts" in evil.output
    assert (await place.allot("warm", "never-was")).exit_code == 1
    assert (await place.allot("add", "Not A Name", "https://data.example/x")).exit_code == 1


async def test_people_see_datasets_without_their_sources_and_change_nothing(place: Place) -> None:
    token = place.api.hub.add_token("ann", ACCESS)
    assert (await place.allot("add", "iris", place.server.url("/iris.csv"))).exit_code == 0
    for words in (("list",), ("warm", "iris"), ("add", "x", "https://data.example/x"), ("evict", "iris")):
        assert (await place.allot(*words, token=token)).exit_code == 1
    async with place.api.client(token) as ann:
        (view,) = (await ann.get("datasets")).json()
        assert view["path"] == "/datasets/iris"
        assert "source" not in view
        assert (await ann.get("mounts")).json() == [
            {"name": "course", "title": "The course", "path": "/data/course", "writable": False}
        ]


@pytest.mark.parametrize(
    "body",
    [
        {"source": ""},
        {"source": "x" * 2001},
        {"source": "https://data.example/x", "title": "a\nb"},
        {"source": "https://data.example/x", "checksum": "abc"},
        {"source": "https://data.example/x", "size_bytes": -1},
        {"source": "https://data.example/x", "size_bytes": 2**61},
        {"source": "https://data.example/x", "groups": [""]},
        {"source": "https://data.example/x", "more": 1},
    ],
)
async def test_bodies_that_do_not_fit(place: Place, body: dict[str, Any]) -> None:
    async with place.api.client(place.token) as root:
        assert (await root.put("registry/datasets/x", json=body)).status_code == 422
