"""`allot metrics stream`: which rounds become lines, whatever the broker's clock does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from allotment.cli import build_app
from allotment.commands import metrics
from allotment.samples import Samples
from typer.testing import CliRunner

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def lines(monkeypatch: pytest.MonkeyPatch, afters: list[int], *arguments: str) -> list[int]:
    """Seconds after noon of the rounds that were printed."""

    def rounds(_client: object, *, everybody: bool) -> Iterator[Samples]:
        assert not everybody
        yield from (Samples(at=NOON + timedelta(seconds=after), every_s=5) for after in afters)

    monkeypatch.setattr(metrics, "watch", rounds)
    env = {"ALLOTMENT_URL": "http://127.0.0.1:9/services/allotment/", "ALLOTMENT_TOKEN": "t" * 32}
    done = CliRunner().invoke(build_app(), ["metrics", "stream", *arguments], env=env)
    assert done.exit_code == 0, done.output
    found = [datetime.fromisoformat(json.loads(line)["at"]) for line in done.stdout.splitlines()]
    return [int((at - NOON).total_seconds()) for at in found]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [((), [0, 5, 10, -3590, -3585, -3580, -3575]), (("--interval", "10s"), [0, 10, -3590, -3580])],
)
def test_a_clock_that_is_set_back_does_not_silence_the_stream(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], printed: list[int]
) -> None:
    afters = [0, 5, 10, -3590, -3585, -3580, -3575]
    assert lines(monkeypatch, afters, *arguments) == printed
