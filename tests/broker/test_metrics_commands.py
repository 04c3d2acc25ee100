"""`allot top` and `allot metrics stream` against a real broker, also while it is away."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from allotment.cli import build_app
from allotment.client import Client
from allotment.errors import Refused, Unreachable
from allotment.samples import Samples
from allotment.settings import Settings
from allotment.watching import watch
from allotment_hub.broker.serving import Server, bind
from allotment_hub.site import MetricSettings, Site
from allotment_spawner.gpu.simulator.state import SimWork
from allotment_testing.broker_api import BrokerApi, broker_api, until
from allotment_testing.fake_hub_api import ACCESS
from typer.testing import CliRunner, Result

GIB = 2**30


class Allot:
    """Runs `allot` as one of the people, while the broker goes on."""

    def __init__(self, api: BrokerApi, url: str) -> None:
        self.api = api
        self.url = url
        self.tokens = {name: api.hub.add_token(name, ACCESS) for name in ("ann", "olga")}

    def env(self, user: str) -> dict[str, str]:
        return {"ALLOTMENT_URL": self.url, "ALLOTMENT_TOKEN": self.tokens[user]}

    async def __call__(self, user: str, *arguments: str, columns: int = 160) -> Result:
        env = {**self.env(user), "COLUMNS": str(columns)}
        return await asyncio.to_thread(CliRunner().invoke, build_app(), list(arguments), env=env)

    def client(self, user: str) -> Client:
        return Client(Settings(url=self.url, token=self.tokens[user], hub_url=None, source="the test"))


@pytest.fixture
async def allot(tmp_path: Path) -> AsyncIterator[Allot]:
    site = Site(metrics=MetricSettings(every_s=1))
    async with broker_api(tmp_path, site=site) as api, api.served() as url:
        api.hub.add_user("ann")
        api.hub.add_user("olga", groups=("allotment-operators",))
        yield Allot(api, url)


async def busy_session(api: BrokerApi) -> str:
    """Ann's session on a whole card that works at 70 %."""
    lease = await api.session("ann", flavor="gpu-full")
    gpu = next(one for one in (await api.agent.inventory()).gpus if not one.mig)
    api.agent.control.load(gpu.uuid, used_bytes=4 * GIB, work=SimWork(sm_percent=70, power_w=300))
    await api.broker.monitoring.collector.once()  # type: ignore[attr-defined]
    return lease


async def test_top_shows_load_and_cost_in_one_look(allot: Allot) -> None:
    await busy_session(allot.api)
    seen = await allot("ann", "top")
    assert seen.exit_code == 0, seen.output
    for part in (
        "1 session of yours runs",
        "simulated",
        "Whole GPU",
        "70 %",
        "300 W",
        "credits",
        "whole GPU",
    ):
        assert part in seen.output
    assert "ann" not in seen.output
    everybody = await allot("olga", "top", "--all", "--once")
    assert "ann" in everybody.output
    assert "1 session runs" in everybody.output
    nobody = await allot("olga", "top")
    assert "0 sessions of yours run" in nobody.output
    assert "--all" in nobody.output, "somebody else's session runs"


async def test_top_fits_a_narrow_terminal(allot: Allot) -> None:
    await busy_session(allot.api)
    seen = await allot("ann", "top", "--once", columns=60)
    assert max(len(line) for line in seen.output.splitlines()) <= 60
    assert "70 %" in seen.output
    assert "Power" not in seen.output


async def test_top_for_scripts(allot: Allot) -> None:
    lease = await busy_session(allot.api)
    seen = json.loads((await allot("ann", "top", "--json")).stdout)
    (one,) = seen["leases"]
    assert (one["lease"], one["devices"][0]["sm_percent"], seen["every_s"]) == (lease, 70, 1)
    assert one["price_per_hour"] == "3.200000"  # text, as all money


async def test_everybody_is_for_operators(allot: Allot) -> None:
    for command in (("top", "--all"), ("metrics", "stream", "--all")):
        done = await allot("ann", *command)
        assert (done.exit_code, "Only operators" in done.output) == (1, True)


async def test_the_stream_is_lines_of_json(allot: Allot) -> None:
    await busy_session(allot.api)
    done = await allot("ann", "metrics", "stream", "--count", "2")
    assert done.exit_code == 0, done.output
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert second["at"] > first["at"]


async def test_an_interval_leaves_rounds_out(allot: Allot) -> None:
    done = await allot("ann", "metrics", "stream", "--count", "2", "--interval", "2s")
    first, second = (Samples.model_validate_json(line) for line in done.stdout.splitlines())
    assert 1.8 <= (second.at - first.at).total_seconds() < 4
    wrong = await allot("ann", "metrics", "stream", "--interval", "soon")
    assert (wrong.exit_code, "no time to wait" in wrong.output) == (2, True)


async def test_top_is_live_in_a_terminal_and_gives_it_back(allot: Allot) -> None:
    await busy_session(allot.api)
    ours, theirs = pty.openpty()
    env = os.environ | allot.env("ann") | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    program = "from allotment.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "top", stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    shown = bytearray()
    asyncio.get_running_loop().add_reader(ours, lambda: shown.extend(_read(ours)))
    try:
        await until(lambda: shown.count(b"70 %") >= 2, deadline_s=30)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        await until(lambda: b"\x1b[?1049l" in shown)
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"\x1b[?1049h" in shown
    assert b"Traceback" not in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""  # the other end is closed


@asynccontextmanager
async def served_at(api: BrokerApi, port: int) -> AsyncIterator[int]:
    """A broker at this port (0: any), as after a restart with the same address."""
    listening = bind("127.0.0.1", port)
    server = Server(api.app, streams=api.context.streams)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await until(lambda: server.started)
        yield listening.getsockname()[1]
    finally:
        server.stop()
        await serving


async def test_the_stream_goes_on_after_the_broker_was_away(tmp_path: Path) -> None:
    async with broker_api(tmp_path, site=Site(metrics=MetricSettings(every_s=1))) as api:
        api.hub.add_user("ann")
        pauses: list[float] = []
        async with served_at(api, 0) as port:
            settings = Settings(
                url=f"http://127.0.0.1:{port}/services/allotment/",
                token=api.hub.add_token("ann", ACCESS),
                hub_url=None,
                source="the test",
            )
            client = Client(settings)
            rounds = watch(client, everybody=False, sleep=pauses.append)
            assert isinstance(await asyncio.to_thread(next, rounds), Samples)
        gone = [await asyncio.to_thread(_next_trouble, rounds) for _ in range(3)]
        assert all(isinstance(one, Unreachable) for one in gone)
        api.context.ready = False  # it compares its book first: that is no refusal for good
        async with served_at(api, port):
            assert isinstance(await asyncio.to_thread(_next_trouble, rounds), Unreachable)
            api.context.ready = True
            async with asyncio.timeout(10):
                await asyncio.to_thread(_next_round, rounds)
            await asyncio.to_thread(rounds.close)  # type: ignore[attr-defined]
        assert pauses[:3] == [0.5, 1.0, 2.0]
        client.close()


def _next_trouble(rounds: Iterator[Samples | Unreachable]) -> Samples | Unreachable:
    """The next that is no round: some may have been on their way."""
    return next(found for found in rounds if isinstance(found, Unreachable))


def _next_round(rounds: Iterator[Samples | Unreachable]) -> Samples:
    return next(found for found in rounds if isinstance(found, Samples))


async def test_where_nobody_answers_or_says_no_it_ends(allot: Allot) -> None:
    nowhere = Settings(
        url="http://127.0.0.1:9/services/allotment/", token="x", hub_url=None, source="the test"
    )
    with Client(nowhere) as client, pytest.raises(Unreachable):
        next(watch(client, everybody=False))
    with allot.client("ann") as client, pytest.raises(Refused):
        await asyncio.to_thread(next, watch(client, everybody=True))
