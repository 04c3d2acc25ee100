"""Saved environments: who may ask, see and decide, and what never gets into a requirements file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_testing.broker_api import MINIMAL, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS

SIX = {"name": "six", "version": "1.17.0"}
GIT = {"name": "tool", "version": "2", "link": "git+https://example.org/tool@" + "0" * 40}


@dataclass
class World:
    api: BrokerApi
    ann: httpx.AsyncClient
    ben: httpx.AsyncClient
    root: httpx.AsyncClient

    async def save(self, *packages: Any, name: str = "mine", **changes: Any) -> httpx.Response:
        body = {"title": "Mine", "base": "minimal", "packages": list(packages or (SIX,)), **changes}
        return await self.ann.put(f"saved/{name}", json=body)

    async def approve(self, name: str = "mine", **changes: Any) -> httpx.Response:
        found = (await self.root.get(f"saved/{name}")).json()
        return await self.root.post(
            f"saved/{name}/approve", json={"checksum": found.get("checksum", "0" * 64), **changes}
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with broker_api(tmp_path, engine_name="docker") as api:
        for name in ("ann", "ben"):
            api.hub.add_user(name)
        api.hub.add_user("root", admin=True)
        tokens = [api.hub.add_token(name, ACCESS) for name in ("ann", "ben", "root")]
        async with api.client(tokens[0]) as ann, api.client(tokens[1]) as ben, api.client(tokens[2]) as root:
            yield World(api, ann, ben, root)


async def test_from_asked_to_approved(world: World) -> None:
    saved = (await world.save()).json()
    assert (saved["state"], saved["owner"], saved["base_digest"]) == ("asked", "ann", MINIMAL)
    assert saved["packages"] == [{**SIX, "link": None, "hashes": []}]
    assert (await world.ben.get("saved")).json() == []
    assert (await world.ben.get("saved/mine")).status_code == 404
    assert (
        await world.ann.post("saved/mine/approve", json={"checksum": saved["checksum"]})
    ).status_code == 403
    approved = (await world.approve()).json()
    assert (approved["state"], approved["decided_by"]) == ("approved", "root")
    seen = (await world.ben.get("saved")).json()
    assert [(one["name"], one["owner"], one["decided_by"]) for one in seen] == [
        ("mine", "another person", None)
    ]


async def test_what_was_looked_at_is_what_is_approved(world: World) -> None:
    looked_at = (await world.save()).json()["checksum"]
    await world.save({"name": "another", "version": "1"})
    answer = await world.approve(checksum=looked_at)
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")
    assert (await world.approve()).status_code == 200
    changed = await world.save()
    assert (changed.status_code, changed.json()["code"]) == (409, "wrong_state")
    assert (await world.ann.delete("saved/mine")).status_code == 409


async def test_what_it_is_called_is_looked_at_too(world: World) -> None:
    looked_at = (await world.save()).json()["checksum"]
    await world.save(title="PyTorch, by the operators")
    answer = await world.approve(checksum=looked_at)
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")


async def test_addresses_are_for_those_who_build_from_them(world: World) -> None:
    link = "https://files.example.org/tool-2-py3-none-any.whl?token=secret"
    await world.save({"name": "tool", "version": "2", "link": link})
    await world.approve(allow_links=True)
    for one in (await world.ben.get("saved")).json(), [(await world.ben.get("saved/mine")).json()]:
        assert [package["link"] for package in one[0]["packages"]] == [None]
    for client in world.ann, world.root:
        assert (await client.get("saved/mine")).json()["packages"][0]["link"] == link


async def test_addresses_need_an_explicit_yes(world: World) -> None:
    assert (await world.save(SIX, GIT)).status_code == 200
    answer = await world.approve()
    assert (answer.status_code, answer.json()["code"]) == (409, "links_not_allowed")
    assert answer.json()["packages"] == ["tool"]
    assert (await world.approve(allow_links=True)).json()["state"] == "approved"


@pytest.mark.parametrize(
    "package",
    [
        {"name": "six", "version": "1 --index-url https://evil.example/"},
        {"name": "six", "version": "1\n-e ."},
        {"name": "-r/etc/passwd", "version": "1"},
        {"name": "six @ https://evil.example/six.whl", "version": "1"},
        {"name": "six", "version": "1", "link": "file:///etc/passwd"},
        {"name": "six", "version": "1", "link": "http://169.254.169.254/x.whl"},
        {"name": "six", "version": "1", "link": "https://user:secret@example.org/x.whl"},
        {"name": "six", "version": "1", "link": "https://example.org/x.whl --pre"},
        {"name": "six", "version": "1", "link": "https://example.org/${HOME}.whl"},
        {"name": "six", "version": "1", "link": "git+ssh://example.org/x"},
        {"name": "six", "version": "1", "hashes": ["sha256:00"]},
        {"name": "six", "version": "1", "editable": True},
    ],
)
async def test_nothing_but_pins_can_be_asked_for(world: World, package: dict[str, Any]) -> None:
    answer = await world.save(package)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_options")
    assert (await world.root.get("saved")).json() == []


async def test_bad_lists(world: World) -> None:
    twice = await world.save(SIX, {"name": "SIX", "version": "2"})
    assert twice.status_code == 422
    assert (await world.save(name="Not-A-Name")).status_code == 422
    assert (await world.save(base="nothing")).json()["code"] == "environment_not_allowed"
    assert (await world.save(base="pytorch")).json()["code"] == "environment_unavailable"
    assert (await world.save(base_version="0" * 12)).json()["code"] == "unknown_version"
    assert (await world.save(base_version="ab" * 6)).status_code == 200
    assert (await world.save(name="pytorch")).json()["code"] == "name_taken"


async def test_a_name_is_its_first_owners(world: World) -> None:
    await world.save()
    body = {"title": "Theirs", "base": "minimal", "packages": [SIX]}
    answer = await world.ben.put("saved/mine", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
    assert (await world.ben.delete("saved/mine")).status_code == 404
    assert (await world.ann.delete("saved/mine")).status_code == 204
    assert (await world.ben.put("saved/mine", json=body)).status_code == 200


async def test_refused_with_the_reason_and_asked_again(world: World) -> None:
    await world.save()
    refused = await world.root.post("saved/mine/refuse", json={"because": "Too old."})
    assert (refused.json()["state"], refused.json()["note"]) == ("refused", "Too old.")
    assert (await world.ann.get("saved/mine")).json()["note"] == "Too old."
    assert (await world.ben.get("saved/mine")).status_code == 404
    assert (await world.save({"name": "six", "version": "1.18"})).json()["state"] == "asked"


async def test_no_name_is_one_of_what_images_are_built_upon(world: World) -> None:
    answer = await world.save(name="minimal-packages")
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")


async def test_nobody_fills_the_table(world: World) -> None:
    answers = [await world.save(name=f"mine{number}") for number in range(21)]
    assert [one.status_code for one in answers] == [200] * 20 + [429]
    assert answers[-1].json()["code"] == "too_many_saved"


async def test_one_upon_another_becomes_both_upon_the_first(world: World) -> None:
    await world.save(SIX, {"name": "Under_Score", "version": "1"}, name="first")
    await world.approve("first")
    image = {
        "digest": "sha256:" + "cd" * 32,
        "environment": "first",
        "reference": "allotment/first:0.1.0-cpu",
        "title": "First",
        "base": "minimal",
    }
    assert (await world.root.post("images", json=image)).status_code == 200
    listed = (await world.ben.get("environments")).json()
    assert "first" in [one["id"] for one in listed]
    second = (await world.save({"name": "under-score", "version": "2"}, base="first", name="second")).json()
    assert (second["base"], second["base_digest"]) == ("minimal", image["digest"])
    assert [(one["name"], one["version"]) for one in second["packages"]] == [
        ("six", "1.17.0"), ("under-score", "2"),
    ]  # fmt: skip


async def test_the_local_engine_has_nothing_to_save(tmp_path: Path) -> None:
    async with broker_api(tmp_path) as api:
        api.hub.add_user("ann")
        async with api.client(api.hub.add_token("ann", ACCESS)) as ann:
            body = {"title": "Mine", "base": "minimal", "packages": [SIX]}
            answer = await ann.put("saved/mine", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "environment_unavailable")
