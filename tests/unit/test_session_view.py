"""What JupyterLab is told of a session, by what the broker and the environment say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment.jupyter.purse import tightest
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


def budget(name: str, left: str, *, scope: str = "group", hard: bool = True, **other: Any) -> dict[str, Any]:
    whole = {"scope": scope, "name": name, "left": left, "amount": "8", "changes": "2.50", "hard": hard}
    return {**whole, "unit": "money", "until": None, "something": "new", **other}


async def test_cost_and_the_budget_that_ends_it_are_told(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "leases/x": {"user": "mia", "cost": "0.126667", "currency": "EUR", "charged_to": "physics"},
        "budgets": [budget("physics", "4.2"), budget("mia", "1", scope="user", hard=False)],
    }

    asked: dict[str, str] = {}

    def broker(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/services/allotment/api/v1/")
        asked[path] = request.url.params.get("user", "")
        return httpx.Response(200, json=told.get(path, {}))

    settings = Settings(url="http://b/services/allotment/", token="t", hub_url=None, source="a test")
    upstream = Upstream(settings=settings, lease="x", transport=httpx.MockTransport(broker))
    room = Room(home=tmp_path)
    env = {"ALLOTMENT_LEASE": "x", "JUPYTERHUB_USER": "mia & co"}
    view = SessionView(env=env, upstream=upstream, room=room, packages=dict)
    document = await view.document()
    assert (document["cost"], document["currency"], document["charged_to"]) == ("0.126667", "EUR", "physics")
    assert document["budget"] == {
        "title": "the budget of physics",
        "left": "4.2",
        "limit": "10.50",
        "unit": "money",
        "hard": True,
        "until": None,
    }
    assert (asked["budgets"], asked["leases/x"]) == ("mia & co", "")
    view.forget()
    told["budgets"] = {"code": "not a list"}
    assert (await view.document())["budget"] is None
    async with asyncio.timeout(10):  # it has begun to count the home
        await room.close()
    await upstream.close()


def test_the_tightest_hard_budget_of_this_session_counts() -> None:
    found = [
        budget("other", "0"),
        budget("ben", "0", scope="user"),
        budget("physics", "9"),
        budget("*", "2", scope="user"),
        budget("mia", "0.1", scope="user", hard=False),
    ]
    assert tightest(found, user="mia", charged_to="physics") == {
        "title": "your budget",
        "left": "2",
        "limit": "10.50",
        "unit": "money",
        "hard": True,
        "until": None,
    }
    soft = tightest(found[4:], user="mia", charged_to=None)
    assert soft is not None
    assert soft["left"] == "0.1"
    assert tightest(found[:2], user="mia", charged_to=None) is None
    assert tightest([], user=None, charged_to=None) is None


@pytest.mark.parametrize(
    "odd", [None, "x", [], {}, {"scope": "user"}, {**budget("mia", "NaN-ish", scope="user")}]
)
def test_what_a_newer_broker_may_tell_takes_no_status_bar_away(odd: Any) -> None:
    assert tightest([odd], user="mia", charged_to=None) is None
