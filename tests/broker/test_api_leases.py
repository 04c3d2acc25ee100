"""Leases over HTTP: who sees what, who may end what, and that others' ids are like unknown ones."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from allotment_spawner.wire import EnvironmentView, FlavorView, LeaseReply, LeaseView
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from pydantic import TypeAdapter


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        made.hub.add_user("ann")
        made.hub.add_user("ben")
        made.hub.add_user("root", admin=True)
        yield made


@pytest.fixture
async def ann(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(api.hub.add_token("ann", ACCESS)) as client:
        yield client


@pytest.fixture
async def ben(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(api.hub.add_token("ben", ACCESS)) as client:
        yield client


@pytest.fixture
async def root(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(api.hub.add_token("root", ACCESS)) as client:
        yield client


async def test_the_whole_life_of_a_session(api: BrokerApi, ann: httpx.AsyncClient) -> None:
    reply: Any = await api.lease("ann", attempt="a1")
    assert reply["lease"]["state"] == "granted"
    lease_id, devices = reply["lease"]["id"], reply["launch"]["devices"]
    async with api.client(HUB_TOKEN) as hub:
        key = {"Idempotency-Key": "a1"}
        assert (await hub.put(f"leases/{lease_id}/renew", headers=key)).status_code == 200
        confirm = await hub.put(f"leases/{lease_id}/confirm", headers=key, json={"engine_ref": lease_id})
        assert confirm.status_code == 200
        active = await hub.put(f"leases/{lease_id}/active", headers=key, json={"devices_seen": devices})
        assert LeaseReply.model_validate(active.json()).lease.state == "active"
        mine = (await ann.get("leases?live=true")).json()
        assert [one["id"] for one in mine] == [lease_id]
        assert mine[0]["class"] == "interactive"
        assert mine[0]["active_at"].endswith("Z")
        assert isinstance(mine[0]["price_per_hour"], str)
        ended = await hub.delete(f"leases/{lease_id}?reason=stopped")
        assert ended.json()["lease"]["state"] in ("ending", "ended")
        late = await hub.put(f"leases/{lease_id}/confirm", headers=key, json={"engine_ref": lease_id})
        assert (late.status_code, late.json()["code"]) == (409, "wrong_state")


async def test_the_same_key_gets_the_same_answer(api: BrokerApi) -> None:
    first: Any = await api.lease("ann", attempt="same")
    again: Any = await api.lease("ann", attempt="same")
    assert again["lease"]["id"] == first["lease"]["id"]
    assert again["launch"] == first["launch"]


async def test_people_and_the_hub_see_different_shapes(api: BrokerApi, ann: httpx.AsyncClient) -> None:
    reply: Any = await api.lease("ann")
    path = f"leases/{reply['lease']['id']}"
    person = (await ann.get(path)).json()
    LeaseView.model_validate(person)
    assert "launch" not in person
    async with api.client(HUB_TOKEN) as hub:
        LeaseReply.model_validate((await hub.get(path)).json())


async def test_others_ids_are_like_unknown_ones(api: BrokerApi, ben: httpx.AsyncClient) -> None:
    reply: Any = await api.lease("ann")
    real, unknown = reply["lease"]["id"], uuid4().hex
    for method, suffix in (("GET", ""), ("GET", "/events"), ("GET", "/explain"), ("DELETE", "")):
        answers = [await ben.request(method, f"leases/{one}{suffix}") for one in (real, unknown, "x", "ä")]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.content for answer in answers}) == 1
        headers = [{**answer.headers, "date": ""} for answer in answers]
        assert all(one == headers[0] for one in headers)
    assert (await ben.get("leases")).json() == []


async def test_others_ids_take_as_long_as_unknown_ones(api: BrokerApi, ben: httpx.AsyncClient) -> None:
    """Both are found in the same look-up; a guesser learns nothing from the clock."""
    reply: Any = await api.lease("ann")
    took: dict[str, list[float]] = {reply["lease"]["id"]: [], uuid4().hex: []}
    for _ in range(60):
        for lease_id, times in took.items():
            began = time.perf_counter()
            await ben.get(f"leases/{lease_id}")
            times.append(time.perf_counter() - began)
    others, unknown = (statistics.median(times) for times in took.values())
    assert abs(others - unknown) < 0.004


async def test_a_person_cancels_a_queued_lease(api: BrokerApi, ann: httpx.AsyncClient) -> None:
    await api.lease("ben", flavor="gpu-full")
    queued: Any = await api.lease("ann", flavor="gpu-full")
    assert queued["lease"]["state"] == "queued"
    answer = await ann.delete(f"leases/{queued['lease']['id']}")
    assert (answer.status_code, answer.json()["state"]) == (200, "ended")
    assert answer.json()["end_reason"] == "cancelled"
    assert api.hub.stopped == []
    again = await ann.delete(f"leases/{queued['lease']['id']}")
    assert (again.status_code, again.json()["end_reason"]) == (200, "cancelled")


async def test_a_person_stops_a_running_one_through_the_hub(api: BrokerApi, ann: httpx.AsyncClient) -> None:
    api.hub.users["ann"].servers["work"] = (None, True)
    reply: Any = await api.lease("ann", server="work", flavor="cpu")
    answer = await ann.delete(f"leases/{reply['lease']['id']}")
    assert answer.status_code == 202
    assert api.hub.stopped == [("ann", "work")]


async def test_a_person_gives_no_reason(api: BrokerApi, ann: httpx.AsyncClient) -> None:
    await api.lease("ben", flavor="gpu-full")
    queued: Any = await api.lease("ann", flavor="gpu-full")
    answer = await ann.delete(f"leases/{queued['lease']['id']}?reason=node_restarted")
    assert answer.json()["end_reason"] == "cancelled"


async def test_the_hub_gives_only_its_own_reasons(api: BrokerApi) -> None:
    reply: Any = await api.lease("ann", flavor="cpu")
    async with api.client(HUB_TOKEN) as hub:
        for reason in ("abandoned", "node_restarted", "nonsense"):
            answer = await hub.delete(f"leases/{reply['lease']['id']}?reason={reason}")
            assert answer.status_code == 422
        older = await hub.delete(f"leases/{reply['lease']['id']}", headers={"Idempotency-Key": "older"})
        assert (older.status_code, older.json()["code"]) == (409, "stale_attempt")


async def test_lists(api: BrokerApi, ann: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    for server in ("one", "two", "three"):
        await api.lease("ann", server=server, flavor="cpu")
    await api.lease("ben", flavor="cpu")
    assert [one["server"] for one in (await ann.get("leases?limit=2")).json()] == ["three", "two"]
    assert {one["user"] for one in (await ann.get("leases")).json()} == {"ann"}
    assert {one["user"] for one in (await root.get("leases")).json()} == {"ann", "ben"}
    assert len((await root.get("leases?user=ben&server=")).json()) == 1
    assert (await root.get("leases?user=nobody")).json() == []


async def test_choices_follow_the_groups_at_the_hub(
    api: BrokerApi, ann: httpx.AsyncClient, ben: httpx.AsyncClient
) -> None:
    api.hub.users["ben"].groups = ("staff",)
    forged = {"X-Allotment-Groups": "staff"}
    mine = (await ann.get("flavors", headers=forged)).json()
    TypeAdapter(list[FlavorView]).validate_python(mine)
    theirs = (await ben.get("flavors")).json()
    assert not next((one["available"] for one in mine if one["id"] == "staff"), False)
    assert next(one["available"] for one in theirs if one["id"] == "staff")
    environments = (await ann.get("environments")).json()
    TypeAdapter(list[EnvironmentView]).validate_python(environments)
    assert {one["id"]: one["available"] for one in environments} == {"minimal": True, "pytorch": False}


async def test_refusals_have_their_own_words(api: BrokerApi) -> None:
    body = {"user": "ann", "server": "", "environment": "minimal", "flavor": "cpu"}
    cases = (
        ({"flavor": "gpu-99tb"}, 404, "unknown_flavor"),
        ({"environment": "nothing"}, 404, "unknown_environment"),
        ({"environment": "pytorch"}, 409, "environment_unavailable"),
        ({"flavor": "staff"}, 403, "flavor_not_allowed"),
    )
    async with api.client(HUB_TOKEN) as hub:
        for change, status, code in cases:
            answer = await hub.post("leases", json=body | change, headers={"Idempotency-Key": uuid4().hex})
            assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_explanations_name_others_only_to_operators(
    api: BrokerApi, ann: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await api.lease("ben", flavor="gpu-full")
    queued: Any = await api.lease("ann", flavor="gpu-full")
    path = f"leases/{queued['lease']['id']}/explain"
    mine, operators = await ann.get(path), await root.get(path)
    assert "ben" not in mine.text
    assert mine.json()["devices"][0]["holder"] == "another person"
    assert mine.json()["devices"][0]["lease"] is None
    assert operators.json()["devices"][0]["holder"] == "ben"


async def test_the_fleet_shows_holders(api: BrokerApi, root: httpx.AsyncClient) -> None:
    slice_, card = await api.lease("ann"), await api.lease("ben", flavor="gpu-full")
    leased: list[Any] = []
    async with asyncio.timeout(10):  # a new slice is seen when the machine is looked at again
        while len(leased) < 2:
            fleet = (await root.get("fleet")).json()
            found = [one for gpu in fleet["gpus"] for one in (*gpu["slices"], gpu["whole"]) if one]
            leased = [(one["user"], one["lease"]) for one in found if one["state"] == "leased"]
            await asyncio.sleep(0.05)
    expected: list[Any] = [slice_["lease"], card["lease"]]
    assert sorted(leased) == [(one["user"], one["id"]) for one in expected]
    assert fleet["simulated"] is True


async def test_me(api: BrokerApi, ann: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    mine = (await ann.get("me")).json()
    assert (mine["name"], mine["operator"], mine["act_as"], mine["simulated"]) == ("ann", False, False, True)
    assert (await root.get("me")).json()["operator"] is True
