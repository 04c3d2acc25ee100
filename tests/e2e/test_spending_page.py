"""The page of spending in Chromium: sums and bars, its links and files, for people, owners and operators."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.store.budgets import Budget, add_budget
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.browser_looks import least_contrast, nameless_controls, overflow_px
from allotment_testing.chromium import CHROMIUM
from allotment_testing.written_entries import some_entry, write_entries
from playwright.async_api import Browser, Page, async_playwright

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
MARCH = "from=2026-03-01&to=2026-03-31"
LONG = "a-person-with-a-rather-long-name@physics.university.example"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        for name in ("ann", "ben", LONG):
            made.hub.add_user(name, groups=("physics",))
        made.hub.add_user("root", admin=True)
        made.hub.signed_in_as = "ann"
        made.app.mount("/", made.hub.app)
        yield made


@pytest.fixture
async def url(api: BrokerApi) -> AsyncIterator[str]:
    async with api.served() as url:
        yield f"{url}usage"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**CHROMIUM)
        yield made
        await made.close()


DAY = datetime(2026, 3, 1, 9, tzinfo=UTC)


def sessions() -> list[dict[str, Any]]:
    """Of three people on four sizes over twelve days."""
    found = []
    for number in range(12):
        for place, (owner, flavor, price) in enumerate(
            (
                ("ann", "gpu-10gb", "0.40"),
                ("ann", "cpu", "0.05"),
                ("ben", "gpu-full", "3.20"),
                (LONG, "gpu-40gb", "1.60"),
            )
        ):
            hours = Decimal((number * 7 + place * 5) % 9) + Decimal("0.25")
            share = {"gpu-10gb": "0.125", "gpu-40gb": "0.5", "gpu-full": "1", "cpu": "0"}[flavor]
            found.append(
                some_entry(
                    owner=owner,
                    flavor=flavor,
                    environment="minimal",
                    from_at=DAY + timedelta(days=number),
                    amount=hours * Decimal(price),
                    seconds=hours * 3600,
                    gpu_seconds=hours * 3600 * Decimal(share),
                    charged_to="physics" if place % 2 == 0 else None,
                )
            )
    return found


def spent() -> list[dict[str, Any]]:
    """The sessions, a home, a refund, a correction."""
    home = {
        "kind": "storage",
        "volume": "home",
        "flavor": None,
        "environment": None,
        "seconds": Decimal(86400),
    }
    by_hand = {"seconds": Decimal(0), "flavor": "gpu-10gb"}
    back, price = "Given back, because the machine was restarted.", "<b>The</b> price of the night was wrong."
    later = DAY + timedelta(days=3)
    return [
        *sessions(),
        some_entry(**home, from_at=DAY, amount=Decimal("0.004217")),
        some_entry(**by_hand, kind="refund", amount=Decimal("-1.20"), from_at=later, reason=back),
        some_entry(**by_hand, kind="correction", amount=Decimal("0.75"), from_at=later, reason=price),
    ]


async def filled(api: BrokerApi) -> None:
    broker: Any = api.broker
    await write_entries(broker.store, *spent())

    def budget(name: str, amount: int, scope: Any, owner: str | None) -> Budget:
        return Budget(
            id=f"b-{name}", scope=scope, name=name, unit="money", amount=Decimal(amount), period="month",
            starts_on=None, ends_on=None, hard=True, owner=owner, note="", made_by="root",
            made_at=datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip

    for one in (budget("physics", 500, "group", "ann"), budget("ann", 30, "user", None)):
        await broker.store.write("budget", lambda tx, one=one: add_budget(tx.connection, one))
    await broker.load()


async def opened(browser: Browser, url: str, **options: Any) -> tuple[Page, list[str]]:
    """The page after the sign-in; and what its console complains of."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    answer = await page.goto(url)
    assert answer is not None
    assert answer.ok, await page.inner_text("body")
    return page, complaints


def exact(entries: list[dict[str, Any]]) -> Decimal:
    return sum((one["amount"] for one in entries), Decimal(0))


async def big(page: Page) -> Decimal:
    return Decimal(await page.get_attribute(".big span", "title") or "")


async def sums(page: Page, heading: str) -> Decimal:
    cells = page.locator(f"table[aria-labelledby={heading}] tbody td.num:last-child")
    return sum([Decimal(await one.get_attribute("title") or "") for one in await cells.all()], Decimal(0))


async def test_it_adds_up_and_leads_back(api: BrokerApi, url: str, browser: Browser) -> None:
    await filled(api)
    page, complaints = await opened(browser, f"{url}?{MARCH}")
    assert page.url == f"{url}?{MARCH}"  # after the sign-in, which it went through
    mine = [one for one in spent() if one["owner"] == "ann"]
    assert (
        await big(page) == await sums(page, "flavors-title") == await sums(page, "days-title") == exact(mine)
    )
    assert await page.locator("table[aria-labelledby=days-title] tbody tr").count() == 31
    words = await page.inner_text("main")
    assert "Given back, because the machine was restarted." in words
    assert "<b>The</b> price" in words
    assert "Storage of the home" in words
    assert "ben" not in words
    await page.click("header .brand")
    await page.click("text=Spending")
    assert page.url == url
    assert complaints == []


async def test_the_range_by_keyboard(api: BrokerApi, url: str, browser: Browser) -> None:
    await filled(api)
    page, complaints = await opened(browser, f"{url}?{MARCH}")
    await page.focus("input[name=to]")
    await page.fill("input[name=to]", "2026-03-04")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**to=2026-03-04*")
    end = datetime(2026, 3, 5, tzinfo=UTC)
    few = [one for one in spent() if one["owner"] == "ann" and one["from_at"] < end]
    assert await big(page) == exact(few)
    assert await page.locator("table[aria-labelledby=days-title] tbody tr").count() == 4
    await page.click("text=This month")
    assert "Nothing was charged in these days." in await page.inner_text("main")
    assert await page.locator(".presets [aria-current]").inner_text() == "This month"
    assert complaints == []


async def test_files_come_down(api: BrokerApi, url: str, browser: Browser) -> None:
    await filled(api)
    page, _ = await opened(browser, f"{url}?{MARCH}", accept_downloads=True)
    for title in ("Entries, CSV", "Entries, Parquet", "By day and size, CSV"):
        async with page.expect_download() as coming:
            await page.click(f"a:text-is('{title}')")
        file = await (await coming.value).path()
        found = await asyncio.to_thread(file.read_bytes)
        if title.endswith("Parquet"):
            assert found[:4] == found[-4:] == b"PAR1"
        else:
            amounts = [Decimal(row["amount"]) for row in csv.DictReader(io.StringIO(found.decode()))]
            assert sum(amounts) == await big(page)


async def test_an_owner_sees_the_group_and_no_names(api: BrokerApi, url: str, browser: Browser) -> None:
    await filled(api)
    page, complaints = await opened(browser, f"{url}?{MARCH}")
    await page.click("text=Group physics")
    assert await big(page) == exact([one for one in spent() if one["charged_to"] == "physics"])
    assert await sums(page, "people-title") == await big(page)
    words = await page.inner_text("main")
    assert "another person" in words
    assert "ben" not in words
    assert complaints == []
    answer = await page.goto(f"{url}?whose=all")
    assert answer is not None
    assert answer.status == 403
    assert "Only operators" in await page.inner_text("main")
    answer = await page.goto(f"{url}?whose=group&group=art")
    assert answer is not None
    assert answer.status == 403


async def test_operators_see_everybody(api: BrokerApi, url: str, browser: Browser) -> None:
    await filled(api)
    api.hub.signed_in_as = "root"
    page, complaints = await opened(browser, f"{url}?{MARCH}")
    await page.click("text=Everybody")
    assert (
        await big(page)
        == await sums(page, "people-title")
        == await sums(page, "groups-title")
        == exact(spent())
    )
    await page.fill("input[name=user]", "ben")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("user=ben"))
    assert await big(page) == exact([one for one in spent() if one["owner"] == "ben"])
    link = await page.locator("a:text-is('Entries, CSV')").get_attribute("href")
    assert link is not None
    assert "user=ben" in link
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_and_can_be_read(api: BrokerApi, url: str, browser: Browser, scheme: Any) -> None:
    await filled(api)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for who, whose in (("ann", "mine"), ("root", "all")):
        api.hub.signed_in_as = who
        page, complaints = await opened(browser, f"{url}?{MARCH}&whose={whose}", color_scheme=scheme)
        for width in (320, 390, 1280):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.screenshot(path=SHOTS / f"spending-{whose}-{scheme}-{width}.png", full_page=True)
            assert await overflow_px(page) <= 0
            assert await nameless_controls(page, within="body") == []
            ratio, element = await least_contrast(page, within="main")
            assert ratio >= 4.5, element
        assert complaints == []


async def test_a_script_of_another_page_on_our_origin_learns_nothing(
    api: BrokerApi, url: str, browser: Browser
) -> None:
    """Somebody's notebook server shares the origin: its scripts meet an operator's cookie."""
    api.hub.signed_in_as = "root"
    page, _ = await opened(browser, url, bypass_csp=True)
    await page.goto(url.replace("/services/allotment/usage", "/user/mallory/"))
    for path in ("usage?whose=all", "api/v1/usage", "api/v1/usage?format=csv"):
        script = f"fetch('/services/allotment/{path}').then((answer) => answer.status)"
        assert await page.evaluate(script) == 403, path
