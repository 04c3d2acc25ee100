"""The hub's client of the broker: token file, retries, problems, streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from allotment_spawner.core.errors import BrokerUnavailable, GrantExpired, Refusal
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.wire import Confirm

Answer = Callable[[httpx.Request], httpx.Response]


class Time:
    """A clock that only sleeping moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


def client(answer: Answer, token: Path, *, retry_for_s: float = 5.0) -> BrokerClient:
    time = Time()
    return BrokerClient(
        url="http://broker/services/allotment/",
        token_file=token,
        retry_for_s=retry_for_s,
        transport=httpx.MockTransport(answer),
        monotonic=time,
        sleep=time.sleep,
    )


def problem(code: str, status: int = 409) -> httpx.Response:
    body = {"type": f"urn:allotment:problem:{code}", "title": code, "status": status, "code": code}
    content = json.dumps(body | {"detail": "It is over.", "next_step": "Start again."})
    return httpx.Response(status, content=content, headers={"Content-Type": "application/problem+json"})


async def test_the_token_file_is_read_again_when_it_changes(token: Path) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json=[])

    broker = client(answer, token)
    await broker.flavors("ann")
    fresh = token.with_name("fresh")
    fresh.write_text("second\n")
    fresh.replace(token)
    await broker.flavors("ann")
    token.unlink()
    await broker.flavors("ann")
    await broker.close()
    assert seen == ["Bearer first", "Bearer second", "Bearer second"]


async def test_a_missing_token_is_a_refusal(tmp_path: Path) -> None:
    broker = client(lambda _: httpx.Response(200, json=[]), tmp_path / "none", retry_for_s=0.0)
    with pytest.raises(BrokerUnavailable):
        await broker.flavors("ann")
    await broker.close()


async def test_a_call_is_repeated_with_the_same_key_until_the_broker_is_back(token: Path) -> None:
    keys: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) == 1:
            raise httpx.ConnectError("refused")
        if len(keys) == 2:
            return httpx.Response(502, text="proxy")
        return problem("grant_expired")

    broker = client(answer, token)
    with pytest.raises(GrantExpired) as refused:
        await broker.confirm("l1", attempt="key", body=Confirm(engine_ref="x"))
    await broker.close()
    assert keys == ["key"] * 3
    assert (refused.value.sentence, refused.value.next_step) == ("It is over.", "Start again.")


async def test_a_broker_that_stays_away_is_a_refusal_after_a_bounded_time(token: Path) -> None:
    calls = 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        raise httpx.ConnectError("refused")

    broker = client(answer, token)
    with pytest.raises(BrokerUnavailable):
        await broker.get("l1")
    await broker.close()
    assert 5 < calls < 20


async def test_an_unknown_problem_keeps_its_sentence(token: Path) -> None:
    broker = client(lambda _: problem("something_new"), token)
    with pytest.raises(Refusal, match="It is over"):
        await broker.get("l1")
    await broker.close()


async def test_changes_are_versions_and_comments_are_skipped(token: Path) -> None:
    text = ': hello\n\nevent: changed\ndata: {"version": 3}\n\nevent: other\ndata: {}\n\n'
    text += 'event: changed\ndata: {"version": 4}\n\n'
    headers = {"Content-Type": "text/event-stream"}
    broker = client(lambda _: httpx.Response(200, text=text, headers=headers), token)
    assert [version async for version in broker.changes()] == [3, 4]
    await broker.close()
