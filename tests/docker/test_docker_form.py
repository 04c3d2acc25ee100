"""From the form to the session in a container: home, shared folders and data, told by the real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import Containers, prepared_installation
from playwright.sync_api import Page, expect, sync_playwright

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
SLOW_MS = 120_000


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    """With a shared folder, a dataset from a folder of this machine, and a limit for homes."""
    made = prepared_installation(daemon)
    course, published = made.folder / "course", made.folder / "published"
    for folder in (course, published):
        folder.mkdir(mode=0o755)
    made.folder.chmod(0o755)  # sessions run as somebody else
    (course / "read.me").write_text("lesson one\n")
    (published / "digits.csv").write_text("1,2,3\n")
    with made.paths.site.open("a") as site:
        site.write(f"mounts: [{{name: course, title: Course files, path: {course}}}]\n")
        site.write(f"datasets: {{allow_paths: [{published}]}}\n")
        site.write("homes: {quota_gib: 10}\n")
    try:
        made.up()
        register(
            made, "digits", {"source": str(published / "digits.csv"), "title": "Digits", "licence": "CC0"}
        )
        yield made
    finally:
        made.close()


def register(installation: Installation, name: str, body: dict[str, Any]) -> None:
    answer = httpx.put(
        f"{installation.connection.broker_url}api/v1/registry/datasets/{name}",
        json=body,
        headers={"Authorization": f"token {installation.connection.admin_token}"},
    )
    assert answer.status_code == 200, answer.text


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": 1100, "height": height})
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})


def sign_in(page: Page, installation: Installation) -> None:
    there = installation.connection
    page.goto(f"{there.hub_url}/hub/login?next=/hub/spawn")
    page.fill("input[name=username]", there.user)
    page.fill("input[name=password]", there.user_password)
    page.click("input[type=submit], button[type=submit]")
    page.wait_for_url(re.compile("/hub/spawn"))


def lease_of(installation: Installation) -> dict[str, Any]:
    found: list[dict[str, Any]] = installation.broker("leases?user=demo&limit=1").json()
    return found[0]


def test_what_is_ticked_on_the_form_is_there_in_the_session(
    installation: Installation, containers: Containers
) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(SLOW_MS)
        sign_in(page, installation)
        expect(page.locator("[data-mount=course]")).to_contain_text("/data/course")
        expect(page.locator("[data-mount=course]")).to_contain_text("read only")
        expect(page.locator(".allot-home")).to_contain_text("Your home")
        data = page.locator("[data-dataset=digits]")
        expect(data).to_contain_text("Fetched before your session starts")
        data.locator("input").check()
        page.locator("input[name=flavor][value=cpu]").check(force=True)
        page.locator("input[name=app][value=notebook]").check(force=True)
        shoot(page, "docker-form")
        page.click("#allot-start")
        page.wait_for_url(re.compile("/user/demo/tree"), timeout=SLOW_MS)
        browser.close()
    lease = lease_of(installation)
    assert lease["datasets"] == ["digits"]
    assert lease["version"]
    assert containers.inside(lease["id"], "cat", "/data/course/read.me") == "lesson one\n"
    found = containers.inside(lease["id"], "find", "/datasets/digits", "-type", "f").split()
    assert [Path(one).name for one in found] == ["digits.csv"]
    assert containers.inside(lease["id"], "cat", found[0]) == "1,2,3\n"
    for target in ("/data/course/x", "/datasets/digits/x"):
        with pytest.raises(AssertionError, match="Read-only file system"):
            containers.inside(lease["id"], "touch", target)


def test_the_home_is_measured_and_shown_with_its_limit(installation: Installation) -> None:
    def measured() -> bool:
        (home,) = installation.broker("homes?user=demo").json()
        return home["used_bytes"] is not None and home["limit_bytes"] == 10 * 2**30

    wait_until(measured, what="the home was measured while its person works", limit_s=120)
