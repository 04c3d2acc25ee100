"""Limits of sessions, devices and hours, also for twenty starts at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.site import Limit, Site
from allotment_spawner.core.errors import LimitReached
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.wire import LeaseReply
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.budget_life import ask, notices_of, quote_of, run, world_in

GPUS = ("gpu-10gb", "gpu-20gb", "gpu-40gb", "gpu-full")


ELSE = "Stop a session first, or choose another size."


def limited(folder: Path, *limits: Limit, **groups: str) -> BrokerWorld:
    return world_in(folder, groups, site=Site(limits=limits))


async def live(broker: Broker, user: str) -> int:
    return len(await broker.leases.find(user=user, server=None, live=True, limit=99))


async def test_twenty_starts_at_once_get_no_more_than_may_be(tmp_path: Path) -> None:
    world = limited(tmp_path, Limit(sessions=3), Limit(flavors=GPUS, devices=1))
    async with world.broker() as broker:
        asked = [ask(broker, "ada", "cpu", server=f"s{number}") for number in range(20)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, LeaseReply) for one in found) == 3
        assert sum(isinstance(one, LimitReached) for one in found) == 17
        assert await live(broker, "ada") == 3
        asked = [ask(broker, "bob", "gpu-10gb", server=f"s{number}") for number in range(10)]
        asked += [ask(broker, "bob", "gpu-full", server=f"w{number}") for number in range(10)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, LeaseReply) for one in found) == 1
        assert await live(broker, "bob") == 1, "GPUs and slices together"
        assert (await ask(broker, "bob", "cpu", server="more")).lease.state is LeaseState.GRANTED


async def test_the_sentence_and_the_quote_say_what_the_limit_is(tmp_path: Path) -> None:
    world = limited(
        tmp_path,
        Limit(groups=("students",), flavors=("gpu-10gb",), sessions=1), Limit(flavors=("gpu-2x",), devices=0),
        ada="students", bob="staff",
    )  # fmt: skip
    async with world.broker() as broker:
        await ask(broker, "ada", "gpu-10gb")
        with pytest.raises(LimitReached) as said:
            await ask(broker, "ada", "gpu-10gb", server="second")
        assert said.value.sentence == "You have 1 session of 10 GB GPU, and may have 1 at a time."
        assert said.value.next_step == ELSE
        assert said.value.details["limit"] == 1
        quote = await quote_of(broker, "ada")
        assert quote.refusal == f"{said.value.sentence} {said.value.next_step}"
        for server in ("one", "two"):
            await ask(broker, "bob", "gpu-10gb", server=server)
        none = (await quote_of(broker, "bob", "gpu-2x")).refusal
        assert none is not None
        assert none.startswith("You may have no GPU or slice of Two whole GPUs at a time")


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit(sessions=1), "You have 1 session, and may have 1 at a time. Stop a session first."),
        (Limit(devices=1), f"You have 1 GPU or slice, and may have 1 at a time. {ELSE}"),
    ],
)
async def test_another_size_is_proposed_where_it_would_help(tmp_path: Path, limit: Limit, said: str) -> None:
    async with limited(tmp_path, limit).broker() as broker:
        await ask(broker, "ada", "gpu-10gb")
        assert (await quote_of(broker, "ada", "gpu-20gb")).refusal == said


async def test_replacing_a_session_is_not_one_more(tmp_path: Path) -> None:
    world = limited(tmp_path, Limit(sessions=1))
    async with world.broker() as broker:
        await ask(broker, "ada", "cpu")
        assert (await ask(broker, "ada", "gpu-10gb")).lease.flavor == "gpu-10gb"
        assert await live(broker, "ada") == 1
        with pytest.raises(LimitReached):
            await ask(broker, "ada", "cpu", server="named")


async def test_a_session_ends_after_its_hours_and_is_told_when_it_begins(tmp_path: Path) -> None:
    world = limited(
        tmp_path, Limit(hours=8), Limit(groups=("students",), hours=2.5), Limit(flavors=("cpu",), hours=48),
        ada="students",
    )  # fmt: skip
    async with world.broker() as broker:
        session = await run(world, broker, "ada")
        other = await run(world, broker, "bob", flavor="cpu")
        assert (await quote_of(broker, "ada")).longest_s == 2.5 * 3600
        await broker.budget_watch.round()
        assert await notices_of(broker, session.lease) == [
            "A session like this may run for 2 h 30 min at a time."
        ]
        [told] = await broker.notices.of(other.lease)
        assert told.stop_at == world.clock() + timedelta(hours=8)
    world.site = Site(policies=world.site.policies)  # what was said holds, whatever site.yaml says now
    async with world.broker() as broker:
        await broker.budget_watch.round()
        assert len(await broker.notices.of(session.lease)) == 1
        world.clock.advance(2.5 * 3600 - 60)
        await world.rounds(broker, 2)
        assert world.hub.stop_requests == []
        world.clock.advance(60)
        await world.rounds(broker, 2)
        assert set(world.hub.stop_requests) == {("ada", "")}


async def test_an_operator_lets_a_session_run_on(tmp_path: Path) -> None:
    world = limited(tmp_path, Limit(hours=1))
    async with world.broker() as broker:
        session = await run(world, broker, "ada")
        await broker.budget_watch.round()
        assert await broker.notices.withdraw_stop(session.lease, made_by="ada") == 0, "nobody's own"
        assert await broker.notices.withdraw_stop(session.lease, made_by=None) == 1
        await broker.budget_watch.round()
    async with world.broker() as broker:
        world.clock.advance(3 * 3600)
        await broker.budget_watch.round()
        await world.rounds(broker, 2)
        assert await notices_of(broker, session.lease) == []
        assert world.hub.stop_requests == []


async def test_a_session_that_was_over_its_time_before_it_was_told_gets_the_grace(tmp_path: Path) -> None:
    world = limited(tmp_path, Limit(hours=1))
    async with world.broker() as broker:
        session = await run(world, broker, "ada")
    world.clock.advance(5 * 3600)
    async with world.broker() as broker:
        await broker.budget_watch.round()
        [told] = await broker.notices.of(session.lease)
        assert told.stop_at == world.clock() + timedelta(minutes=10)
