"""How full homes are: who may ask, what is said of it, and when it is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_hub.broker.services.homes import Homes, home_warning
from allotment_hub.site import HomeSettings
from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.home_gauge import HomeUsage, LocalHomeGauge, read_usage
from allotment_spawner.launch.helper import Finished
from allotment_spawner.wire import HomeView
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS

GIB = 2**30


@dataclass
class GaugeWithFigures:
    """Answers what the test put in; an exception is raised; `gate` holds it back."""

    answers: dict[str, HomeUsage | Exception | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def measure(self, user: str) -> HomeUsage | None:
        self.asked.append(user)
        await self.gate.wait()
        answer = self.answers.get(user, HomeUsage(used_bytes=GIB, files=10))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def gauge() -> GaugeWithFigures:
    made = GaugeWithFigures()
    made.gate.set()
    return made


@pytest.fixture
async def api(tmp_path: Path, gauge: GaugeWithFigures) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path, homes=HomeSettings(quota_gib=10), gauge=gauge) as made:
        made.hub.add_user("ann")
        made.hub.add_user("root", admin=True)
        yield made


def settled(api: BrokerApi) -> Homes:
    """As if its sessions had run for a while."""
    homes: Any = api.broker.homes
    homes._settled = timedelta(0)
    assert isinstance(homes, Homes)
    return homes


@pytest.fixture
async def ann(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(api.hub.add_token("ann", ACCESS)) as client:
        yield client


@pytest.fixture
async def root(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(api.hub.add_token("root", ACCESS)) as client:
        yield client


async def test_unknown_until_measured(ann: httpx.AsyncClient) -> None:
    home = HomeView.model_validate((await ann.get("homes/me")).json())
    assert (home.used_bytes, home.files, home.measured_at, home.warning) == (None, None, None, None)
    assert (home.limit_bytes, home.state) == (10 * GIB, "live")


async def test_measured_when_asked_and_then_known(ann: httpx.AsyncClient, gauge: GaugeWithFigures) -> None:
    gauge.answers["ann"] = HomeUsage(used_bytes=int(9.5 * GIB), files=7)
    measured = (await ann.post("homes/ann/measure")).json()
    assert (measured["used_bytes"], measured["files"]) == (int(9.5 * GIB), 7)
    assert "nearly full (9.5 of 10.0 GiB)" in measured["warning"]
    assert (await ann.get("homes/me")).json() == measured
    assert (await ann.post("homes/ann/measure")).json() == measured
    assert gauge.asked == ["ann"]


async def test_many_who_ask_at_once_cause_one_measurement(
    ann: httpx.AsyncClient, gauge: GaugeWithFigures
) -> None:
    gauge.gate.clear()
    asking = [asyncio.ensure_future(ann.post("homes/ann/measure")) for _ in range(5)]
    async with asyncio.timeout(10):
        while not gauge.asked:  # noqa: ASYNC110 - the request has no event of its own
            await asyncio.sleep(0.005)
    gauge.gate.set()
    answers = await asyncio.gather(*asking)
    assert [answer.status_code for answer in answers] == [200] * 5
    assert gauge.asked == ["ann"]


@pytest.mark.parametrize("answer", [EngineUnavailable("Docker is away.", "Wait."), None])
async def test_what_cannot_be_measured_keeps_the_last_figures_and_says_why(
    api: BrokerApi, ann: httpx.AsyncClient, gauge: GaugeWithFigures, answer: Exception | None
) -> None:
    before = (await ann.post("homes/ann/measure")).json()
    gauge.answers["ann"] = answer
    homes: Any = api.broker.homes
    row = await homes._measured("ann")
    assert (row.used_bytes, row.measured_at is not None) == (GIB, True)
    after = (await ann.get("homes/me")).json()
    assert after["measured_at"] == before["measured_at"]
    assert after["warning"] == ("Docker is away." if answer else "Measuring your home took too long.")


async def test_a_home_in_use_is_measured_by_itself(api: BrokerApi, gauge: GaugeWithFigures) -> None:
    await api.session("ann")
    homes = settled(api)
    await homes.round()
    await homes.round()
    assert gauge.asked == ["ann"]


async def test_a_session_that_has_just_started_is_left_alone(api: BrokerApi, gauge: GaugeWithFigures) -> None:
    await api.session("ann")
    homes: Any = api.broker.homes
    await homes.round()
    assert gauge.asked == []


async def test_a_failed_measurement_is_not_repeated_at_once(api: BrokerApi, gauge: GaugeWithFigures) -> None:
    gauge.answers["ann"] = EngineUnavailable("Docker is away.", "Wait.")
    await api.session("ann")
    homes = settled(api)
    await homes.round()
    await homes.round()
    assert gauge.asked == ["ann"]


async def test_operators_see_all_and_say_what_became_of_one(
    root: httpx.AsyncClient, ann: httpx.AsyncClient, gauge: GaugeWithFigures
) -> None:
    gauge.answers["big"] = HomeUsage(used_bytes=11 * GIB, files=1)
    await root.post("homes/ann/measure")
    await root.post("homes/big/measure")
    listed = (await root.get("homes")).json()
    assert [one["user"] for one in listed] == ["big", "ann"]
    assert "is full (11.0 of 10.0 GiB)" in listed[0]["warning"]
    gone = (await root.put("homes/big", json={"state": "archived"})).json()
    assert (gone["state"], gone["used_bytes"]) == ("archived", None)
    assert [one["user"] for one in (await ann.get("homes")).json()] == ["ann"]
    refused = await ann.get("homes?user=big")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")


async def test_who_comes_back_has_a_home_again(
    api: BrokerApi, root: httpx.AsyncClient, gauge: GaugeWithFigures
) -> None:
    await root.put("homes/ann", json={"state": "erased"})
    await api.session("ann")
    homes = settled(api)
    await homes.round()
    async with api.client(HUB_TOKEN) as hub:
        found = (await hub.get("homes?user=ann")).json()
    assert [one["state"] for one in found] == ["live"]


@pytest.mark.parametrize(
    ("used", "limit", "words"),
    [(None, 10, None), (5, None, None), (8, 10, None), (9, 10, "nearly full"), (10, 10, "is full")],
)
def test_warnings(used: int | None, limit: int | None, words: str | None) -> None:
    sizes = None if used is None else used * GIB, None if limit is None else limit * GIB
    for enforced in (True, False):
        found = home_warning(*sizes, 90, enforced=enforced)
        assert found is None if words is None else words in str(found)
        assert ("cannot save" in str(found)) == (enforced and words == "is full"), "a limit that is measured"


def finished(out: str, code: int | None = 0) -> Finished:
    return Finished(code, out, "")


def test_totals_are_read_and_half_ones_are_unknown() -> None:
    whole = "4096\t/mnt/home\nwhole\n3\t/mnt/home\nwhole\n"
    assert read_usage(finished(whole)) == HomeUsage(used_bytes=4096, files=3)
    assert read_usage(finished(whole, code=None)) is None
    assert read_usage(finished(whole.replace("whole", "stopped 1"))) == HomeUsage(4096, 3, whole=False)
    assert read_usage(finished("4096\t/mnt/home\nstopped 124\n3\t/mnt/home\nwhole\n")) is None
    assert read_usage(finished("stopped 124\nstopped 124\n")) is None
    assert read_usage(finished("")) is None


async def test_a_home_of_the_local_engine_counts_blocks_once_and_follows_nothing(tmp_path: Path) -> None:
    home = tmp_path / "a_2eb"
    (home / "deep").mkdir(parents=True)
    (home / "one").write_bytes(b"x" * 1_000_000)
    (home / "again").hardlink_to(home / "one")
    (home / "out").symlink_to("/usr")
    with (home / "sparse").open("wb") as sparse:
        sparse.truncate(10 * GIB)
    gauge = LocalHomeGauge(homes=tmp_path, limit_s=20)
    found = await gauge.measure("a.b")
    assert found is not None
    assert 1_000_000 <= found.used_bytes < 1_200_000
    assert (found.files, found.whole) == (5, True)
    assert await gauge.measure("nobody") == HomeUsage(used_bytes=0, files=0)
