"""Allotment inside JupyterLab: the status bar, messages as notifications, documents saved before a stop."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.host.probes import request
from allotment_spawner.launch.names import safe_name
from allotment_testing.installation import Installation, wait_until
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
SLOW_MS = 90_000
STATUS = ".allot-status"
TOAST = ".Toastify__toast"
THEME = ".jupyter/lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
_SAID = r"Allotment: 10 GB GPU.*in minimal.*0\.40 credits per hour\. So far 0\.\d+ credits\."
DOCUMENTS = ".jupyter/lab/user-settings/@jupyterlab/docmanager-extension/plugin.jupyterlab-settings"
UNSAVED = ".lm-DockPanel-tabBar .jp-mod-dirty"


@pytest.fixture(scope="module")
def lease(installation: Installation) -> str:
    """A session of demo's on a slice; the last test ends it."""
    body = {"user_options": {"environment": "minimal", "flavor": "gpu-10gb"}}
    installation.hub("POST", "/users/demo/server", body)
    wait_until(lambda: newest(installation)["state"] == "active", what="it runs", limit_s=90)
    return str(newest(installation)["id"])


@pytest.fixture(scope="module")
def demo(browser: Browser, installation: Installation, lease: str) -> Iterator[BrowserContext]:
    """Demo's browser, signed in by the form."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, timezone_id="Europe/Berlin")
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.goto(installation.connection.hub_url)
    page.fill("input[name=username]", installation.connection.user)
    page.fill("input[name=password]", installation.connection.user_password)
    page.click("input[type=submit], button[type=submit]")
    page.wait_for_url(re.compile("/hub/(home|spawn)|/user/demo"))
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(demo: BrowserContext, installation: Installation) -> Iterator[Page]:
    """JupyterLab with nothing open but its launcher; it saves nothing by itself."""
    settings = installation.paths.homes / safe_name("demo") / DOCUMENTS
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('{"autosave": false}')
    page = demo.new_page()
    page.goto(f"{installation.connection.hub_url}/user/demo/lab?reset")
    page.wait_for_selector(STATUS, timeout=SLOW_MS)
    page.wait_for_selector(".jp-LauncherCard", timeout=SLOW_MS)
    yield page
    page.close()


def newest(installation: Installation) -> dict[str, Any]:
    found: dict[str, Any] = installation.broker("leases?user=demo&server=&limit=1").json()[0]
    return found


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def operate(
    installation: Installation, method: str, path: str, body: Mapping[str, object] | None = None
) -> Any:
    """An operator's request to the broker."""
    url = f"{installation.connection.broker_url}api/v1/{path}"
    answer = request(url, method=method, token=installation.connection.admin_token, body=body, timeout_s=20)
    assert answer.status in (200, 201), (answer.status, answer.body)
    return answer.json()


def write_in_new_notebook(page: Page, text: str) -> None:
    """Typed and not saved."""
    page.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=SLOW_MS)
    page.wait_for_selector(".jp-Notebook .cm-content", timeout=SLOW_MS)
    expect(page.locator("body")).to_contain_text("Python 3 (ipykernel) | Idle", timeout=SLOW_MS)
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.type(text)
    expect(page.locator(UNSAVED)).to_have_count(1)


def on_disk(installation: Installation) -> str:
    """What the home's notebooks hold."""
    home = installation.paths.homes / safe_name("demo")
    found = [json.loads(file.read_text()) for file in home.glob("*.ipynb")]
    return "\n".join("".join(cell["source"]) for one in found for cell in one["cells"])


def test_the_status_bar_says_size_time_and_where_to_go(page: Page) -> None:
    item = page.locator(STATUS)
    expect(item).to_have_text(re.compile(r"^10 GB GPU · \d+ min"))
    expect(item).to_have_attribute("aria-label", re.compile(_SAID))
    expect(item).to_have_attribute("href", "/services/allotment/")
    shoot(page, "lab-status-light")
    with page.context.expect_page() as opened:
        item.click()
    expect(opened.value.locator("body")).to_contain_text("10 GB GPU")
    opened.value.close()


def test_the_status_bar_fits_a_dark_theme(page: Page, installation: Installation) -> None:
    item = page.locator(STATUS)
    light = colours(item)
    theme = installation.paths.homes / safe_name("demo") / THEME
    theme.parent.mkdir(parents=True, exist_ok=True)
    theme.write_text('{"theme": "JupyterLab Dark"}')
    page.reload()
    page.wait_for_selector("body[data-jp-theme-light=false]", state="attached", timeout=SLOW_MS)
    expect(item).to_have_text(re.compile("10 GB GPU"))
    shoot(page, "lab-status-dark")
    theme.unlink()
    assert colours(item) != light


def colours(item: Locator) -> str:
    found: str = item.evaluate("(node) => getComputedStyle(node).color")
    return found


def test_a_message_is_a_notification_once(page: Page, installation: Installation, lease: str) -> None:
    said = {"level": "warning", "sentence": "We restart at six.", "next_step": "Save your work."}
    operate(installation, "POST", f"leases/{lease}/notices", said)
    expect(page.locator(TOAST)).to_contain_text("We restart at six. Save your work.")
    long = "Tomorrow this machine gets new cards. " * 10
    operate(installation, "POST", "notices", {"sentence": long.strip()})
    page.get_by_role("button", name="Read all").click()
    expect(page.locator(".jp-Dialog")).to_contain_text(long.strip())
    shoot(page, "lab-message-long")
    page.keyboard.press("Enter")
    markup = "<img src=x onerror=\"document.title='owned'\"> [here](javascript:alert(1))"
    operate(installation, "POST", f"leases/{lease}/notices", {"sentence": markup})
    expect(page.locator(TOAST).filter(has_text=markup)).to_have_count(1)
    assert page.locator(f"{TOAST} img[src=x], {TOAST} a").count() == 0
    page.reload()
    page.wait_for_selector(STATUS, timeout=SLOW_MS)
    operate(installation, "POST", f"leases/{lease}/notices", {"sentence": "And one more thing."})
    expect(page.locator(TOAST)).to_have_count(1)
    expect(page.locator(TOAST)).to_contain_text("And one more thing.")


def test_a_full_home_and_broken_packages_are_told_with_what_helps(page: Page) -> None:
    packages = {
        "state": "broken",
        "sentence": "Packages that you installed do not work.",
        "next_step": "Move them aside.",
        "choices": [{"id": "aside", "title": "Move aside", "command": "allot env aside"}],
    }
    home = {"used_bytes": 950, "limit_bytes": 1000, "free_bytes": 50, "warning": "Your home is nearly full."}

    def answer(route: Route) -> None:
        document = route.fetch().json()
        route.fulfill(json={**document, "home": home, "packages": packages})

    page.route("**/allotment/session*", answer)
    page.reload()
    toasts = page.locator(TOAST)
    expect(toasts.filter(has_text="Your home is nearly full.")).to_have_count(1, timeout=SLOW_MS)
    expect(page.locator(STATUS)).to_contain_text("home 95 % full")
    shoot(page, "lab-warnings")
    page.get_by_role("button", name="Move aside").click()
    expect(toasts.filter(has_text=re.compile("You had installed nothing|keeps no packages"))).to_have_count(1)


def test_cost_and_what_is_left_are_in_the_status_bar(page: Page) -> None:
    budget = {"title": "the budget of physics", "limit": "20", "unit": "money", "hard": True, "until": None}
    told = {"cost": "0.126667", "currency": "credits", "charged_to": "physics"}

    def answer(route: Route) -> None:
        document = route.fetch().json()
        route.fulfill(json={**document, **told, "budget": {**budget, "left": left}})

    page.route("**/allotment/session*", answer)
    for left, low, shot in (("12.349", False, "lab-money"), ("0.5", True, "lab-money-low")):
        page.reload()
        item = page.locator(STATUS)
        shown = f"0.13 credits · {left[:-1] if not low else '0.50'} credits left"
        expect(item).to_contain_text(shown, timeout=SLOW_MS)
        assert (item.get_attribute("data-low") is not None) is low
        expect(item).to_have_attribute(
            "title",
            re.compile(r"So far 0\.126667 credits\. physics pays\. Left of the budget of physics: .* 20\.00"),
        )
        shoot(page, shot)


def test_an_announced_stop_saves_at_once_and_can_be_called_off(
    page: Page, installation: Installation, lease: str
) -> None:
    write_in_new_notebook(page, "kept = 'by the announcement'")
    assert "by the announcement" not in on_disk(installation)
    operate(installation, "POST", f"leases/{lease}/stop", {"after_s": 900, "sentence": "New cards come."})
    toasts = page.locator(TOAST)
    said = re.compile(r"New cards come\. This session ends at \d.* [A-Z]{3}\S*\.")  # its zone too
    expect(toasts.filter(has_text=said)).to_have_count(1)
    expect(toasts.filter(has_text="1 document saved.")).to_have_count(1)
    expect(page.locator(STATUS)).to_contain_text("stops in 14 min")
    assert "by the announcement" in on_disk(installation)
    shoot(page, "lab-stop-announced")
    assert page.locator(STATUS).get_attribute("data-ends") is not None
    operate(installation, "DELETE", f"leases/{lease}/stop")
    expect(toasts.filter(has_text="called off")).to_have_count(1)
    expect(page.locator(STATUS)).not_to_contain_text("stops in")
    operate(installation, "POST", f"leases/{lease}/stop", {"after_s": 8 * 3600})
    expect(page.locator(STATUS)).to_contain_text("stops in 7 h 59 min")
    assert page.locator(STATUS).get_attribute("data-ends") is None, "no alarm for hours"
    operate(installation, "DELETE", f"leases/{lease}/stop")
    expect(page.locator(STATUS)).not_to_contain_text("stops in")


def test_a_document_that_cannot_be_saved_is_named_as_lost(
    page: Page, installation: Installation, lease: str
) -> None:
    write_in_new_notebook(page, "lost = 'no room'")
    page.route("**/api/contents/**", _refuse_writes)
    operate(installation, "POST", f"leases/{lease}/stop", {"after_s": 900})
    expect(page.locator(TOAST).filter(has_text="1 document could NOT be saved.")).to_have_count(1)
    assert newest(installation)["state"] == "active"
    operate(installation, "DELETE", f"leases/{lease}/stop")
    page.unroute("**/api/contents/**")


def test_a_stop_saves_what_is_open(page: Page, installation: Installation) -> None:
    write_in_new_notebook(page, "kept = 'by the last call'")
    installation.hub("DELETE", "/users/demo/server")
    expect(page.locator(TOAST).filter(has_text="being stopped now. 1 document saved.")).to_have_count(1)
    wait_until(lambda: newest(installation)["state"] == "ended", what="it is over")
    assert "by the last call" in on_disk(installation)


def _refuse_writes(route: Route) -> None:
    if route.request.method in ("PUT", "PATCH"):
        route.fulfill(status=507, json={"message": "No space left on device"})
    else:
        route.continue_()
