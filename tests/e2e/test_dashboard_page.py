"""The dashboard in Chromium: live, by keyboard, on a phone, in the dark, closed to other pages' scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.chromium import CHROMIUM
from playwright.async_api import Browser, Page, async_playwright

WAIT_MS = 15_000


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        made.hub.add_user("ann")
        made.hub.add_user("root", admin=True)
        made.hub.signed_in_as = "ann"
        made.app.mount("/", made.hub.app)
        yield made


@pytest.fixture
async def page_url(api: BrokerApi) -> AsyncIterator[str]:
    async with api.served() as url:
        yield url


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**CHROMIUM)
        yield made
        await made.close()


async def opened(browser: Browser, url: str, **options: Any) -> tuple[Page, list[str]]:
    """The page, signed in and live; and what its console complains of."""
    context = await browser.new_context(timezone_id="Europe/Berlin", **options)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(url)
    await page.wait_for_selector("#live[data-state=on]", timeout=WAIT_MS)
    return page, complaints


async def test_a_session_appears_and_is_cancelled_by_keyboard(
    api: BrokerApi, page_url: str, browser: Browser
) -> None:
    page, complaints = await opened(browser, page_url)
    await api.lease("root", flavor="gpu-full")
    await api.lease("ann", server="training", flavor="gpu-full")
    card = page.locator("[data-server=training]")
    await card.wait_for(timeout=WAIT_MS)
    assert "place 1" in await card.inner_text()
    await card.locator("button[data-end]").focus()
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "ask-no"
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await card.wait_for(state="detached", timeout=WAIT_MS)
    await page.wait_for_function("document.getElementById('news').textContent.includes('training: Ended')")
    assert complaints == []


async def test_stopping_goes_through_the_hub(api: BrokerApi, page_url: str, browser: Browser) -> None:
    await api.session("ann", server="work")
    page, complaints = await opened(browser, page_url)
    card = page.locator("[data-server=work]")
    assert await card.locator("a.button").get_attribute("href") == "/user/ann/work/"
    assert "CET" in await card.inner_text() or "GMT+" in await card.inner_text()
    await card.locator("button[data-end]").click()
    await page.click("#ask-yes")
    async with asyncio.timeout(15):
        while not api.hub.stopped:  # noqa: ASYNC110 - the fake hub has no event for it
            await asyncio.sleep(0.02)
    assert api.hub.stopped == [("ann", "work")]
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_it_fits_and_can_be_read(
    api: BrokerApi, page_url: str, browser: Browser, scheme: str, width: int
) -> None:
    api.hub.signed_in_as = "root"
    await api.lease("ann", server="a-rather-long-server-name-30-x", flavor="gpu-10gb")
    await api.lease("root", server="another-long-name-of-a-server-", flavor="gpu-full")
    page, complaints = await opened(
        browser, page_url, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert await page.locator(".gpu").count() == 2
    nameless = """[...document.querySelectorAll('a,button,summary,[role=img]')].filter(one =>
        one.offsetParent && !(one.getAttribute('aria-label') || one.textContent.trim())).length"""
    assert await page.evaluate(nameless) == 0
    assert await page.evaluate(CONTRAST) >= 4.5
    assert complaints == []


CONTRAST = """(() => {
  const light = (rgb) => {
    const part = rgb.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
      .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = 21;
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.offsetParent || one.matches(".skip, script, title")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    worst = Math.min(worst, (a + 0.05) / (b + 0.05));
  }
  return worst;
})()"""


async def test_a_script_of_another_page_on_our_origin_learns_nothing(
    api: BrokerApi, page_url: str, browser: Browser
) -> None:
    """Somebody's notebook server shares the origin: its scripts meet an operator's cookie."""
    api.hub.signed_in_as = "root"
    await api.lease("ann", flavor="cpu")
    page, _ = await opened(browser, page_url, bypass_csp=True)  # such a server sets no policy
    await page.goto(page_url.replace("/services/allotment/", "/user/mallory/"))
    for path in ("", "board", "live", "api/v1/fleet", "api/v1/leases", "api/v1/me"):
        script = f"fetch('/services/allotment/{path}').then((answer) => answer.status)"
        assert await page.evaluate(script) == 403, path


async def test_signing_out_at_the_hub_leads_back_to_its_sign_in(
    api: BrokerApi, page_url: str, browser: Browser
) -> None:
    page, _ = await opened(browser, page_url)
    api.hub.tokens.clear()
    api.hub.signed_in_as = None
    api.context.auth.forget_answers()
    api.context.changes.bump()  # type: ignore[attr-defined]
    await page.wait_for_url("**/hub/login**", timeout=WAIT_MS)
