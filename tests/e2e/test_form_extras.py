"""The form and the waiting page in Chromium: versions, homes, data, pairs that do not go together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from allotment_spawner.wire import Work
from allotment_testing.browser_looks import (
    hidden_on_focus,
    least_contrast,
    nameless_controls,
    overflow_px,
)
from allotment_testing.chromium import CHROMIUM
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.fake_things import OLDER, some_datasets, some_mounts, some_versions
from allotment_testing.hub_process import HubProcess
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
REPO = "https://git.example.org/ann/a-course-with-a-rather-long-name-to-wrap-on-a-phone.git"
GIB = 2**30
WHY = "PyTorch 2.13 needs driver 560.28.03 or newer; this machine has 535.104.05."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[FakeBroker]:
    fake = FakeBroker(slices=2)
    fake.versions, fake.mounts, fake.datasets = some_versions(), some_mounts(), some_datasets()
    fake.used_bytes = 9 * GIB + GIB // 2
    await fake.up()
    yield fake
    await fake.down()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(broker: FakeBroker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    process = HubProcess(folder=folder, broker_url=broker.url, broker_token=broker.write_token(folder))
    process.extra = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0.5}'
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**CHROMIUM)
        yield made
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mia(browser: Browser, hub: HubProcess) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    page = await context.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await page.fill("input[name=username]", "mia")
    await page.fill("input[name=password]", "any")
    await page.click("input[type=submit], button[type=submit]")
    await page.wait_for_url(re.compile("/hub/(home|spawn)"))
    await page.close()
    yield context
    await context.close()


async def shoot(page: Page, name: str) -> None:
    """The page at its full height, so that the bar at the window's foot hides nothing."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    size = page.viewport_size or {"width": 1280, "height": 900}
    height = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": size["width"], "height": height})
    await page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
    await page.set_viewport_size(size)


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
async def test_the_whole_form_fits_and_can_be_read(mia: BrowserContext, hub: HubProcess, look: str) -> None:
    page = await mia.new_page()
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    await page.set_viewport_size(
        {"width": 390, "height": 844} if look == "phone" else {"width": 1280, "height": 900}
    )
    asked = f"opt-version={OLDER}&opt-datasets=imagenet&opt-repo={REPO}&opt-flavor=gpu-2x"
    await page.goto(f"{hub.url}/hub/spawn?{asked}")
    await expect(page.locator("#allot-summary")).to_contain_text("Data is fetched first")
    await shoot(page, f"extras-{look}")
    assert await overflow_px(page) <= 0
    assert await nameless_controls(page) == []
    assert await hidden_on_focus(page) == []
    contrast, where = await least_contrast(page)
    assert contrast >= 4.5, where
    assert complaints == []
    await page.close()


async def test_a_pair_that_does_not_go_together_says_why(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker
) -> None:
    broker.reasons = {"gpu-10gb": WHY}
    page = await mia.new_page()
    await page.goto(f"{hub.url}/hub/spawn/mia/pair")
    card = page.locator("[data-flavor=gpu-10gb]")
    await expect(card.locator(".allot-outcome")).to_have_text(WHY)
    await expect(page.locator("#allot-start")).to_be_enabled()
    await card.locator("input").check(force=True)
    await expect(page.locator("#allot-start")).to_be_disabled()
    await expect(page.locator("#allot-summary")).to_contain_text("cannot run on 10 GB GPU")
    await shoot(page, "extras-pair")
    broker.reasons = {}
    broker.schedule()  # as when an operator updates the driver: the page hears of it
    await expect(page.locator("#allot-start")).to_be_enabled()
    await expect(card.locator(".allot-outcome")).to_have_text("Starts now: 2 of 2 free.")
    await page.close()


async def test_a_full_disk_closes_the_form_until_there_is_room(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker
) -> None:
    broker.closed = "The disk for homes has 1.2 GiB left; below 5 GiB nothing new is started."
    page = await mia.new_page()
    await page.goto(f"{hub.url}/hub/spawn/mia/full")
    await expect(page.locator("#allot-closed")).to_contain_text("1.2 GiB left")
    await expect(page.locator("#allot-start")).to_be_disabled()
    await shoot(page, "extras-full")
    broker.closed = None
    broker.schedule()
    await expect(page.locator("#allot-closed")).to_be_hidden()
    await expect(page.locator("#allot-start")).to_be_enabled()
    await page.close()


async def test_the_waiting_page_shows_what_is_on_its_way(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker
) -> None:
    broker.waits_for = Work(sentence="Fetching imagenet: 25 %", got_bytes=GIB, total_bytes=4 * GIB)
    page = await mia.new_page()
    await page.goto(f"{hub.url}/hub/spawn/mia/data")
    await page.locator("[data-dataset=imagenet] input").check()
    await page.click("#allot-start")
    await expect(page.locator("#allot-work-line")).to_have_text("Fetching imagenet: 25 %")
    await expect(page.locator("#allot-work-bytes")).to_have_text("1 GB of 4 GB")
    await expect(page.locator("#allot-work-bar")).to_have_attribute("aria-valuenow", "25")
    await expect(page.locator("#allot-heading")).to_have_text("Getting your data ready")
    await expect(page.locator("#allot-cpu")).to_be_hidden()
    await shoot(page, "extras-waiting")
    broker.waits_for = Work(sentence="Checking imagenet", got_bytes=None, total_bytes=None)
    broker.schedule()
    await expect(page.locator("#allot-work-line")).to_have_text("Checking imagenet")
    await expect(page.locator("#allot-work-bar")).to_be_hidden()
    assert broker.of("mia", "data").request.datasets == ("imagenet",)
    await page.click("#allot-cancel button")
    async with asyncio.timeout(20):
        while broker.of("mia", "data").reason is None:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.05)
    broker.waits_for = None
    await page.close()
