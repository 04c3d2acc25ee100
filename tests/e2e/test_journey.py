"""A person's way in Chromium: sign in, pick, work in JupyterLab, wait, cancel, be refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.installation import Installation, wait_until
from playwright.sync_api import Browser, BrowserContext, Page, expect

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
SLOW_MS = 90_000
CELL = "import os; print('device=' + os.environ['ALLOTMENT_DEVICES'])"


@pytest.fixture(scope="module")
def demo(browser: Browser, installation: Installation) -> Iterator[BrowserContext]:
    """The demo person's browser, signed in by the form."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="Europe/Berlin")
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.goto(installation.connection.hub_url)
    shoot(page, "sign-in")
    page.fill("input[name=username]", installation.connection.user)
    page.fill("input[name=password]", installation.connection.user_password)
    page.click("input[type=submit], button[type=submit]")
    page.wait_for_url(re.compile("/hub/(home|spawn)"))
    yield context
    context.close()


def shoot(page: Page, name: str) -> None:
    """Keep what a person sees, to be looked at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def leases(installation: Installation, user: str, server: str = "") -> list[dict[str, Any]]:
    """Newest first."""
    found: list[dict[str, Any]] = installation.broker(f"leases?user={user}&server={server}&limit=5").json()
    return found


def state_of(installation: Installation, user: str, server: str) -> str | None:
    found = leases(installation, user, server)
    return found[0]["state"] if found else None


def by_api(installation: Installation, user: str, server: str, flavor: str, state: str) -> None:
    """Start a named server and wait until its lease has this state."""
    body = {"user_options": {"environment": "minimal", "flavor": flavor}}
    installation.hub("POST", f"/users/{user}/servers/{server}", body)
    wait_until(lambda: state_of(installation, user, server) == state, what=f"{server} is {state}", limit_s=90)


def pick(page: Page, installation: Installation, server: str, flavor: str) -> None:
    """Choose on the form, with the keyboard's focus on the card, and start."""
    page.goto(f"{installation.connection.hub_url}/hub/spawn/demo/{server}".rstrip("/"))
    page.locator("input[name=environment][value=minimal]").check(force=True)
    page.locator(f"input[name=flavor][value={flavor}]").check(force=True)
    page.click("#allot-start")


def test_from_sign_in_to_a_cell_on_the_leased_slice(demo: BrowserContext, installation: Installation) -> None:
    page = demo.new_page()
    pick(page, installation, "", "gpu-10gb")
    page.wait_for_url(re.compile("/user/demo/"), timeout=SLOW_MS)
    page.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=SLOW_MS)
    page.wait_for_selector(".jp-Notebook .cm-content", timeout=SLOW_MS)
    shoot(page, "jupyterlab")
    expect(page.locator("body")).to_contain_text("Python 3 (ipykernel) | Idle", timeout=SLOW_MS)
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.type(CELL)
    page.keyboard.press("Shift+Enter")
    shoot(page, "jupyterlab-cell")
    (lease,) = leases(installation, "demo")
    (device,) = lease["devices"]
    expect(page.locator(".jp-OutputArea-output").first).to_contain_text(
        f"device={device['uuid']}", timeout=SLOW_MS
    )
    expect(page.locator("body")).not_to_contain_text("Jupyter news")
    assert (lease["state"], device["profile"]) == ("active", "1g.10gb")
    page.close()


def test_the_brokers_page_knows_who_it_is(demo: BrowserContext, installation: Installation) -> None:
    page = demo.new_page()
    page.goto(installation.connection.broker_url)
    page.wait_for_selector("#live[data-state=on]")
    expect(page.locator("body")).to_contain_text("10 GB GPU")
    expect(page.locator("body")).to_contain_text(re.compile("simulated", re.IGNORECASE))
    shoot(page, "broker-page")
    page.close()


def test_the_page_of_spending_is_a_click_away(demo: BrowserContext, installation: Installation) -> None:
    page = demo.new_page()
    page.goto(installation.connection.broker_url)
    page.click("nav >> text=Spending")
    expect(page.locator("h1")).to_have_text("Spending")
    expect(page.locator(".total")).to_contain_text("running now and not in it yet")
    page.click("text=Last month")
    expect(page.locator("main")).to_contain_text("Nothing was charged in these days.")
    page.close()


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_the_form_fits(demo: BrowserContext, installation: Installation, look: str) -> None:
    page = demo.new_page()
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{installation.connection.hub_url}/hub/spawn/demo/look")
    expect(page.locator("input[name=flavor][value=gpu-2x]")).to_be_disabled()
    shoot(page, f"form-{look}")
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, "it scrolls sideways"
    page.close()


def test_a_wait_shows_its_place_live_and_cancel_ends_the_right_server(
    demo: BrowserContext, installation: Installation
) -> None:
    by_api(installation, "admin", "one", "gpu-40gb", "active")
    by_api(installation, "admin", "two", "gpu-40gb", "queued")
    page = demo.new_page()
    pick(page, installation, "second", "gpu-40gb")
    expect(page.locator("#allot-place")).to_have_text("2", timeout=SLOW_MS)
    shoot(page, "waiting-2")
    installation.hub("DELETE", "/users/admin/servers/two")
    expect(page.locator("#allot-place")).to_have_text("1")
    shoot(page, "waiting-1")
    page.click("#allot-cancel button")
    wait_until(lambda: state_of(installation, "demo", "second") == "ended", what="the wait is over")
    assert leases(installation, "demo", "second")[0]["end_reason"] == "cancelled"
    assert state_of(installation, "demo", "") == "active", "the other server was left alone"
    page.wait_for_load_state()
    shoot(page, "cancelled")
    page.close()


def test_a_refusal_says_why_and_what_next(demo: BrowserContext, installation: Installation) -> None:
    for name in ("s1", "s2"):
        by_api(installation, "demo", name, "cpu", "active")
    page = demo.new_page()
    pick(page, installation, "s3", "cpu")
    refusal = page.locator(".allot-refusal")
    expect(refusal).to_contain_text("3 live sessions", timeout=SLOW_MS)
    expect(refusal).to_contain_text("Stop one of them first")
    shoot(page, "refusal")
    kept = leases(installation, "demo", "s3")[0]
    assert (kept["state"], kept["end_reason"], kept["devices"]) == ("ended", "refused", [])
    for name in ("s1", "s2"):
        installation.hub("DELETE", f"/users/demo/servers/{name}")
        wait_until(partial(_ended, installation, name), what=f"{name} is gone")
    page.close()


def _ended(installation: Installation, server: str) -> bool:
    return state_of(installation, "demo", server) == "ended"
