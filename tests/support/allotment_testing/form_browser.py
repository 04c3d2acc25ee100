"""A real hub with a fake broker behind it, and a person's Chromium signed in there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from allotment_testing.chromium import CHROMIUM
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.hub_process import HubProcess

__all__ = ["LOOKS", "chromium", "look_at", "running_hub", "shoot", "signed_in"]

LOOKS = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
_SHOTS = Path(__file__).resolve().parents[3] / ".cache" / "screenshots"


@asynccontextmanager
async def running_hub(broker: FakeBroker, folder: Path) -> AsyncIterator[HubProcess]:
    process = HubProcess(folder=folder, broker_url=broker.url, broker_token=broker.write_token(folder))
    process.extra = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0.5}'
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**CHROMIUM)
        yield made
        await made.close()


@asynccontextmanager
async def signed_in(browser: Browser, hub: HubProcess, name: str) -> AsyncIterator[BrowserContext]:
    """This person's browser; its clock is Berlin's."""
    context = await browser.new_context(
        viewport={"width": 1280, "height": 900}, timezone_id="Europe/Berlin", locale="en-GB"
    )
    context.set_default_timeout(30_000)
    page = await context.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await page.fill("input[name=username]", name)
    await page.fill("input[name=password]", "any")
    await page.click("input[type=submit], button[type=submit]")
    await page.wait_for_url(re.compile("/hub/(home|spawn)"))
    await page.close()
    yield context
    await context.close()


async def look_at(page: Page, look: str) -> None:
    """Light or dark at a desk, or light on a phone: 390 px wide."""
    width, height = LOOKS[look]
    await page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    await page.set_viewport_size({"width": width, "height": height})


async def shoot(page: Page, name: str) -> None:
    """The page at its full height, so that the bar at the window's foot hides nothing."""
    _SHOTS.mkdir(parents=True, exist_ok=True)
    size = page.viewport_size or {"width": 1280, "height": 900}
    height = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": size["width"], "height": height})
    await page.screenshot(path=_SHOTS / f"{name}.png", full_page=True)
    await page.set_viewport_size(size)
