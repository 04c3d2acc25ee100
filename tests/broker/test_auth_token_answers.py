"""The memory of token answers: short, bounded, shared between simultaneous callers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from allotment_hub.broker.services.ports import HubUnavailable
from allotment_hub.broker.token_answers import TokenAnswers

START = datetime(2030, 1, 1, tzinfo=UTC)


class Hub:
    """Counts the questions; `known` tokens have an answer."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.now = START

    async def ask(self, token: str) -> Mapping[str, Any] | None:
        self.asked.append(token)
        await self.gate.wait()
        if token == "down":
            raise HubUnavailable("The hub does not answer.")
        return {"name": token} if token in self.known else None

    def clock(self) -> datetime:
        return self.now


async def test_a_known_token_is_believed_thirty_seconds() -> None:
    hub = Hub("t")
    answers = TokenAnswers(ask=hub.ask, clock=hub.clock)
    assert await answers.answer("t") == {"name": "t"}
    hub.known.clear()
    hub.now += timedelta(seconds=29)
    assert await answers.answer("t") is not None
    hub.now += timedelta(seconds=1)
    assert await answers.answer("t") is None
    assert hub.asked == ["t", "t"]


async def test_an_unknown_token_is_asked_again_after_five_seconds() -> None:
    hub = Hub()
    answers = TokenAnswers(ask=hub.ask, clock=hub.clock)
    assert await answers.answer("t") is None
    hub.known.add("t")
    hub.now += timedelta(seconds=4)
    assert await answers.answer("t") is None
    hub.now += timedelta(seconds=1)
    assert await answers.answer("t") is not None


async def test_failures_are_not_remembered() -> None:
    hub = Hub()
    answers = TokenAnswers(ask=hub.ask, clock=hub.clock)
    for _ in range(2):
        with pytest.raises(HubUnavailable):
            await answers.answer("down")
    assert hub.asked == ["down", "down"]


async def test_simultaneous_callers_share_one_question_and_one_may_hang_up() -> None:
    hub = Hub("t")
    hub.gate.clear()
    answers = TokenAnswers(ask=hub.ask, clock=hub.clock)
    first = asyncio.ensure_future(answers.answer("t"))
    others = [asyncio.ensure_future(answers.answer("t")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    hub.gate.set()
    assert await asyncio.gather(*others) == [{"name": "t"}] * 20
    assert hub.asked == ["t"]


async def test_a_flood_of_unknown_tokens_leaves_connections_to_the_hub() -> None:
    hub = Hub()
    hub.gate.clear()
    answers = TokenAnswers(ask=hub.ask, clock=hub.clock)
    flood = [asyncio.ensure_future(answers.answer(f"t{number}")) for number in range(200)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(hub.asked) == 16
    hub.gate.set()
    assert set(await asyncio.gather(*flood)) == {None}


async def test_the_memory_is_bounded_and_holds_no_token() -> None:
    hub = Hub()
    answers = TokenAnswers(ask=hub.ask, clock=hub.clock, capacity=10)
    for number in range(50):
        await answers.answer(f"secret-{number}")
    held = vars(answers)["_answers"]
    assert len(held) == 10
    assert not any(b"secret" in key for key in held)
