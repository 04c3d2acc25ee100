"""`allot env` from a home to an approved environment, against a real broker."""

from __future__ import annotations

import asyncio
import json
import sys
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from allotment.cli import build_app
from allotment.packages.layout import SWITCH, Overlay
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from allotment_testing.tiny_wheels import tiny_wheel
from typer.testing import CliRunner, Result

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass
class Allot:
    """`allot` in a session of somebody's, with a home of its own."""

    api: BrokerApi
    url: str
    home: Path
    tokens: dict[str, str]

    async def __call__(self, *arguments: str, who: str = "ann", answer: str = "", **more: str) -> Result:
        variables = {
            "HOME": str(self.home),
            "COLUMNS": "160",
            "ALLOTMENT_URL": self.url,
            "ALLOTMENT_TOKEN": self.tokens[who],
            "ALLOTMENT_ENVIRONMENT": "minimal",
            "ALLOTMENT_VERSION": "ab" * 6,
            "PYTHONNOUSERSITE": SWITCH,
        }
        app = build_app()
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["env", *arguments], env=variables | more, input=answer
        )

    def install(self, *names: str) -> None:
        folder = Overlay(
            folder=f"{self.home}/.allotment/packages/minimal", environment="minimal", python=PYTHON
        )
        Path(folder.site_packages).mkdir(parents=True, exist_ok=True)
        for name in names:
            with zipfile.ZipFile(tiny_wheel(self.home, name)) as wheel:
                wheel.extractall(folder.site_packages)


@pytest.fixture
async def allot(tmp_path: Path) -> AsyncIterator[Allot]:
    home = tmp_path / "home"
    home.mkdir()
    async with broker_api(tmp_path / "broker", engine_name="docker") as api, api.served() as url:
        for name in ("ann", "ben"):
            api.hub.add_user(name)
        api.hub.add_user("root", admin=True)
        yield Allot(
            api, url, home, {name: api.hub.add_token(name, ACCESS) for name in ("ann", "ben", "root")}
        )


async def test_from_a_home_to_an_environment_for_all(allot: Allot) -> None:
    empty = await allot("save", "team")
    assert (empty.exit_code, "There is nothing to save" in empty.output) == (1, True)
    allot.install("alpha", "beta")
    saved = await allot("save", "team", "--title", "The team's")
    assert saved.exit_code == 0, saved.output
    assert "2 packages upon minimal: saved as team." in saved.output
    refused = await allot("approve", "team", "--yes", who="ben")
    assert (refused.exit_code, "There is no saved environment team" in refused.output) == (1, True)
    asked = await allot("approve", "team", who="root", answer="n\n")
    assert (asked.exit_code, "alpha==1.0" in asked.output) == (1, True)
    approved = await allot("approve", "team", who="root", answer="y\n")
    assert (approved.exit_code, "allot images build team" in approved.output) == (0, True)
    seen = await allot("saved", who="ben")
    assert "another person" in seen.output
    listed = json.loads((await allot("saved", "--json", who="ben")).stdout)
    assert [(one["name"], one["state"], len(one["packages"])) for one in listed] == [("team", "approved", 2)]


async def test_what_people_write_is_text_to_the_terminal(allot: Allot) -> None:
    allot.install("alpha")
    titles = {"one": "[/b] not closed", "two": "[link=https://x.example]official[/link] :warning:"}
    for name, title in titles.items():
        assert (await allot("save", name, "--title", title)).exit_code == 0
    listed = await allot("saved", who="root", COLUMNS="200")
    assert listed.exit_code == 0, listed.exception
    for title in titles.values():
        assert title in listed.output


async def test_refused_with_words_for_the_owner(allot: Allot) -> None:
    allot.install("alpha")
    await allot("save", "team")
    done = await allot("refuse", "team", "--because", "Use scipy.", who="root")
    assert done.exit_code == 0, done.output
    shown = await allot("show", "team")
    assert "refused" in shown.output
    assert "Use scipy." in shown.output


async def test_what_is_installed_here(allot: Allot) -> None:
    nothing = await allot("list")
    assert "You have installed nothing" in nothing.output
    allot.install("alpha", "beta")
    [row] = json.loads((await allot("list", "--json")).stdout)["overlays"]
    assert (row["environment"], row["packages"], row["state"]) == ("minimal", 2, "unchecked")
    kept = await allot("clean", answer="n\n")
    assert (kept.exit_code, "(2 packages)" in kept.output) == (1, True)
    moved = await allot("aside", "--yes")
    assert (moved.exit_code, ".aside-" in moved.output) == (0, True)
    assert "nothing to delete" in (await allot("clean", "--yes", "--environment", "pytorch")).output
    bad = await allot("clean", "--yes", "--environment", "../..")
    assert (bad.exit_code, "is no environment's name" in bad.output) == (1, True)


async def test_outside_a_session_of_an_image(allot: Allot) -> None:
    done = await allot("check", PYTHONNOUSERSITE="")
    assert (done.exit_code, "this session runs from no image" in done.output) == (1, True)


async def test_packages_of_this_home_alone_are_named(allot: Allot) -> None:
    allot.install("alpha", "local")
    [info] = allot.home.rglob("local-1.0.dist-info")
    origin: dict[str, Any] = {"url": f"file://{allot.home}/src", "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(origin))
    saved = await allot("save", "team")
    assert "Left out: local was installed from a folder or file of this home." in saved.output
    assert "1 package upon minimal" in saved.output
    told = await allot("save", "team", "--json")
    assert [one["name"] for one in json.loads(told.stdout)["packages"]] == ["alpha"]
    assert "Left out: local" in told.stderr
