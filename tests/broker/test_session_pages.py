"""The notebook server's part against a real broker: pages follow their session and answer its last call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment.jupyter.pages import Pages
from allotment.jupyter.upstream import Upstream
from allotment.settings import Settings
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api, until
from allotment_testing.fake_hub_api import ACCESS


class PageThatSaves:
    """Answers a last call at once, or never."""

    def __init__(self, pages: Pages, *, saved: int = 0, failed: int = 0, silent: bool = False) -> None:
        self.pages = pages
        self.result = {"saved": saved, "failed": failed}
        self.silent = silent
        self.heard: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.heard.append(message)
        if message["type"] == "last_call" and not self.silent:
            self.pages.answer(self, message["id"], **self.result)

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.heard]


@asynccontextmanager
async def session_of_ann(api: BrokerApi, url: str) -> AsyncIterator[tuple[str, Pages]]:
    lease = await api.session("ann")
    token = api.hub.add_token("ann", ACCESS)
    upstream = Upstream(settings=Settings(url=url, token=token, hub_url=None, source="the test"), lease=lease)
    errors: list[BaseException] = []
    pages = Pages(
        follow=upstream.notices,
        answer=lambda call, saved, failed: upstream.saved(call, saved=saved, failed=failed),
        failed=errors.append,
    )
    try:
        yield lease, pages
    finally:
        await pages.close()
        await upstream.close()
    assert errors == []


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        made.hub.add_user("ann")
        made.hub.add_user("root", admin=True)
        yield made


async def last_call(api: BrokerApi, lease: str, wait_s: float) -> dict[str, int]:
    async with api.client(HUB_TOKEN) as hub:
        answer = await hub.post(f"leases/{lease}/last-call", json={"wait_s": wait_s}, timeout=30)
    assert answer.status_code == 200, answer.text
    told: dict[str, int] = answer.json()
    return told


async def test_every_page_is_told_and_their_answers_are_one(api: BrokerApi) -> None:
    async with api.served() as url, session_of_ann(api, url) as (lease, pages):
        one, two = PageThatSaves(pages, saved=2), PageThatSaves(pages, saved=1, failed=1)
        pages.enter(one)
        await until(lambda: one.kinds() == ["notices"])
        pages.enter(two)
        assert two.kinds() == ["notices"], "it learns at once what is known"
        told = await last_call(api, lease, 10)
    assert told == {"listeners": 1, "answered": 1, "saved": 3, "failed": 1}


async def test_without_a_page_nobody_listens_and_a_stop_waits_for_nobody(api: BrokerApi) -> None:
    async with api.served() as url, session_of_ann(api, url) as (lease, pages):
        page = PageThatSaves(pages)
        pages.enter(page)
        await until(lambda: page.kinds() == ["notices"])
        pages.leave(page)
        await until(lambda: api.context.streams.open_streams == 0)
        async with asyncio.timeout(5):
            told = await last_call(api, lease, 10)
    assert told["listeners"] == 0


async def test_a_page_that_leaves_or_stays_silent_holds_nothing_up(api: BrokerApi) -> None:
    async with api.served() as url, session_of_ann(api, url) as (lease, pages):
        silent, gone, good = (
            PageThatSaves(pages, silent=True),
            PageThatSaves(pages, silent=True),
            PageThatSaves(pages, saved=1),
        )
        for page in (silent, gone, good):
            pages.enter(page)
        await until(lambda: good.kinds() == ["notices"])
        calling = asyncio.ensure_future(last_call(api, lease, 1.0))
        await until(lambda: "last_call" in gone.kinds())
        pages.leave(gone)
        told = await asyncio.wait_for(calling, 5)
    assert told == {"listeners": 1, "answered": 1, "saved": 1, "failed": 1}, "the silent one counts as failed"


async def test_a_page_that_opens_late_sees_what_is_to_be_seen(api: BrokerApi) -> None:
    async with api.served() as url, session_of_ann(api, url) as (lease, pages):
        first = PageThatSaves(pages)
        pages.enter(first)
        await until(lambda: first.kinds() == ["notices"])
        token = api.hub.add_token("root", ACCESS)
        async with api.client(token) as operator:
            await operator.post(f"leases/{lease}/notices", json={"sentence": "Good morning."})
            await operator.post(f"leases/{lease}/stop", json={"after_s": 600})
            await until(lambda: first.kinds() == ["notices", "notice", "notice"])
            await operator.delete(f"leases/{lease}/stop")
            await until(lambda: first.kinds()[-1] == "withdrawn")
        late = PageThatSaves(pages)
        pages.enter(late)
        assert [one["sentence"] for one in late.heard[0]["list"]] == ["Good morning."]


async def test_a_stream_that_breaks_is_opened_again(api: BrokerApi) -> None:
    async with api.served() as url, session_of_ann(api, url) as (lease, pages):
        page = PageThatSaves(pages, saved=1)
        pages.enter(page)
        await until(lambda: page.kinds() == ["notices"])
        api.context.streams.close()
        await until(lambda: page.kinds() == ["notices", "notices"])
        assert (await last_call(api, lease, 10))["saved"] == 1


async def test_a_broker_that_is_away_is_unknown_and_no_error() -> None:
    def nobody(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    settings = Settings(url="http://broker/services/allotment/", token="t", hub_url=None, source="the test")
    upstream = Upstream(settings=settings, lease="x", transport=httpx.MockTransport(nobody))
    assert await upstream.lease() is None
    await upstream.saved("0" * 32, saved=1, failed=0)
    await upstream.close()
