"""What is typed is in the file within seconds: tabs may be closed, sessions stopped without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from allotment_spawner.launch.names import safe_name
from allotment_testing.installation import Installation, wait_until
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

SLOW_MS = 90_000
CELL = ".jp-Notebook .cm-content"
DIALOG = ".jp-Dialog"
FILES = "**/api/contents/**"
HIDE = """() => {
  Object.defineProperty(document, 'hidden', { get: () => true, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


@pytest.fixture(scope="module")
def demo(browser: Browser, installation: Installation) -> Iterator[BrowserContext]:
    """Demo's browser, with a session that runs."""
    installation.start_session("demo", "", flavor="cpu")
    context = browser.new_context(viewport={"width": 1280, "height": 800})
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


def opened(demo: BrowserContext, installation: Installation, name: str, door: str = "lab/tree") -> Page:
    """A new notebook of that name in a page of its own, ready to type into."""
    cell: dict[str, Any] = {"cell_type": "code", "id": "first", "source": "", "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    book = {"cells": [cell | {"execution_count": None}], "metadata": {"kernelspec": kernel}}
    path = installation.paths.homes / safe_name("demo") / name
    path.write_text(json.dumps(book | {"nbformat": 4, "nbformat_minor": 5}))
    page = demo.new_page()
    reset = "?reset" if door.startswith("lab") else ""
    page.goto(f"{installation.connection.hub_url}/user/demo/{door}/{name}{reset}")
    page.wait_for_selector(CELL, timeout=SLOW_MS)
    return page


def on_disk(installation: Installation, name: str) -> str:
    """Sources and outputs of the file; nothing while it is being written."""
    text = (installation.paths.homes / safe_name("demo") / name).read_text()
    try:
        book = json.loads(text)
    except json.JSONDecodeError:
        return ""
    outputs = ["".join(one.get("text", "")) for cell in book["cells"] for one in cell["outputs"]]
    return "\n".join(["".join(cell["source"]) for cell in book["cells"]] + outputs)


def write(page: Page, text: str) -> None:
    page.locator(CELL).first.click()
    page.keyboard.press("Control+End")
    # at once: what comes while a dialog opens would be typed into that
    page.keyboard.insert_text(text)


def kept(installation: Installation, name: str, text: str) -> None:
    wait_until(lambda: text in on_disk(installation, name), what=f"{name} holds {text!r}", limit_s=60)


def test_a_tab_may_be_closed_without_saving(demo: BrowserContext, installation: Installation) -> None:
    page = opened(demo, installation, "closed.ipynb")
    expect(page.locator("body")).to_contain_text("Python 3 (ipykernel) | Idle", timeout=SLOW_MS)
    write(page, "print('typed', 'and run')")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".jp-OutputArea-output")).to_contain_text("typed and run", timeout=SLOW_MS)
    kept(installation, "closed.ipynb", "\ntyped and run")
    page.close()


def test_in_notebook_as_well(demo: BrowserContext, installation: Installation) -> None:
    page = opened(demo, installation, "seven.ipynb", door="notebooks")
    write(page, "typed = 'in Notebook'")
    kept(installation, "seven.ipynb", "in Notebook")
    page.close()


def test_what_is_typed_during_a_save_is_saved_next(demo: BrowserContext, installation: Installation) -> None:
    """JupyterLab itself forgets it: after a save it calls the document clean."""
    page = opened(demo, installation, "during.ipynb")
    # a kernel that has come writes its language into the notebook, which would be saved by itself
    expect(page.locator("body")).to_contain_text("Python 3 (ipykernel) | Idle", timeout=SLOW_MS)
    held: list[Route] = []
    page.route(FILES, lambda route: held.append(route) if _writes(route.request) else route.continue_())
    with page.expect_request(_writes):
        write(page, "first = 1")
    write(page, "; second = 2")
    assert len(held) == 1, "one save at a time"
    held[0].continue_()
    page.unroute(FILES)
    kept(installation, "during.ipynb", "first = 1; second = 2")
    assert page.locator(DIALOG).count() == 0, "nobody is asked whether to overwrite"
    page.close()


def test_a_failed_save_is_told_once_and_tried_when_the_page_is_left(
    demo: BrowserContext, installation: Installation
) -> None:
    page = opened(demo, installation, "full.ipynb")
    refused = json.dumps({"message": "No space left on device"})
    page.route(
        FILES,
        lambda route: (
            route.fulfill(status=507, body=refused) if _writes(route.request) else route.continue_()
        ),
    )
    write(page, "kept = 'at last'")
    expect(page.locator(DIALOG)).to_contain_text("No space left on device", timeout=SLOW_MS)
    page.unroute(FILES)
    page.locator(f"{DIALOG} button").last.click()
    expect(page.locator(DIALOG)).to_have_count(0)
    page.evaluate(HIDE)
    kept(installation, "full.ipynb", "at last")
    page.close()


def test_a_stop_without_a_browser_loses_nothing(demo: BrowserContext, installation: Installation) -> None:
    page = opened(demo, installation, "stopped.ipynb")
    write(page, "typed = 'before the stop'")
    kept(installation, "stopped.ipynb", "before the stop")
    page.close()
    installation.hub("DELETE", "/users/demo/server")
    over = "leases?user=demo&live=true"
    wait_until(lambda: not installation.broker(over).json(), what="the session is over", limit_s=60)
    assert "before the stop" in on_disk(installation, "stopped.ipynb")


def _writes(request: Request) -> bool:
    return request.method == "PUT" and "/api/contents/" in request.url
