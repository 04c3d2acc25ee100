"""`allot say` and `allot stop` against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from allotment.cli import build_app
from allotment.commands.stop import seconds_of
from allotment.errors import WrongUse
from allotment_testing.broker_api import BrokerApi, broker_api, until
from allotment_testing.fake_hub_api import ACCESS
from typer.testing import CliRunner, Result


class Allot:
    """Runs `allot` as one of the people, while the broker goes on."""

    def __init__(self, api: BrokerApi, url: str) -> None:
        self.api = api
        self.url = url
        self.tokens = {name: api.hub.add_token(name, ACCESS) for name in ("ann", "ben", "olga")}

    async def __call__(self, user: str, *arguments: str) -> Result:
        env = {"ALLOTMENT_URL": self.url, "ALLOTMENT_TOKEN": self.tokens[user], "COLUMNS": "160"}
        return await asyncio.to_thread(CliRunner().invoke, build_app(), list(arguments), env=env)

    async def notices(self, lease: str) -> list[str]:
        async with self.api.client(self.tokens["olga"]) as client:
            found = (await client.get(f"leases/{lease}/notices")).json()
        return [one["sentence"] for one in found]


@pytest.fixture
async def allot(tmp_path: Path) -> AsyncIterator[Allot]:
    async with broker_api(tmp_path) as api, api.served() as url:
        for name in ("ann", "ben"):
            api.hub.add_user(name)
        api.hub.add_user("olga", groups=("allotment-operators",))
        yield Allot(api, url)


async def test_operators_say_things_to_one_or_to_all(allot: Allot) -> None:
    ann, ben = await allot.api.session("ann"), await allot.api.session("ben")
    one = await allot("olga", "say", ann, "We", "restart", "at", "six.")
    every = await allot("olga", "say", "--all", "--level", "error", "The disk is full.")
    assert (one.exit_code, every.exit_code) == (0, 0), one.output + every.output
    assert "2 sessions told" in every.output
    assert await allot.notices(ann) == ["We restart at six.", "The disk is full."]
    assert await allot.notices(ben) == ["The disk is full."]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("say", "--all", "Hello."), 1, "Only operators"),
        (("say", "LEASE", "Hello."), 1, "Only operators"),
        (("say", "LEASE"), 2, "nothing to say"),
        (("stop", "LEASE", "--in", "soon"), 2, "no time to wait"),
        (("stop", "LEASE", "--withdraw", "--in", "5m"), 2, "--withdraw goes alone"),
        (("stop", "unknown", "--in", "5m"), 1, "no such lease"),
    ],
)
async def test_a_refusal_is_a_sentence(
    allot: Allot, arguments: tuple[str, ...], code: int, said: str
) -> None:
    lease = await allot.api.session("ann")
    done = await allot("ann", *(lease if one == "LEASE" else one for one in arguments))
    assert done.exit_code == code, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert await allot.notices(lease) == []


async def test_nobody_stops_or_reads_anothers_session(allot: Allot) -> None:
    lease = await allot.api.session("ann")
    for arguments in (("stop", lease), ("stop", lease, "--in", "5m"), ("stop", lease, "--withdraw")):
        done = await allot("ben", *arguments)
        assert done.exit_code == 1
        assert "no such lease" in done.stderr
    assert allot.api.hub.users["ann"].servers[""] == (None, True)


async def test_a_stop_can_be_announced_and_called_off(allot: Allot) -> None:
    lease = await allot.api.session("ann")
    later = await allot("olga", "stop", lease, "--in", "2h", "--because", "New cards come.")
    assert later.exit_code == 0, later.output
    assert "its person was told" in later.output
    assert await allot.notices(lease) == ["This session is going to be stopped. New cards come."]
    mine = await allot("ann", "stop", lease, "--withdraw")
    assert "No stop was announced" in mine.output, "what an operator announced is not hers to call off"
    assert (await allot("olga", "stop", lease, "--withdraw")).exit_code == 0
    assert await allot.notices(lease) == []


@pytest.mark.parametrize("announced", [False, True])
async def test_a_stop_goes_through_the_hub(allot: Allot, announced: bool) -> None:
    lease = await allot.api.session("ann")
    done = await allot("ann", "stop", lease, *(("--because", "I am done.") if announced else ()))
    assert done.exit_code == 0, done.output
    await until(lambda: "" not in allot.api.hub.users["ann"].servers)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("10", 600), ("2h", 7200), ("1 d", 86400), ("0", 0)]
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "-5m", "1.5h", "5 weeks", "1e9", "m"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(WrongUse):
        seconds_of(text)
