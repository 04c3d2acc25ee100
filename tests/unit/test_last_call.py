"""A stop that was asked for is carried out, whatever the broker answers to the last call before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from allotment_spawner.core.errors import BrokerUnavailable
from allotment_spawner.spawners.last_call import last_call
from allotment_spawner.spawners.session import Session
from allotment_spawner.wire import LastCall


class AnswersWith:
    """A broker whose answer is these bytes, or this refusal."""

    def __init__(self, answer: bytes | Exception) -> None:
        self._answer = answer
        self.asked: list[str] = []

    async def last_call(self, lease: str, *, wait_s: float) -> LastCall:
        self.asked.append(lease)
        if isinstance(self._answer, Exception):
            raise self._answer
        return LastCall.model_validate_json(self._answer)


@pytest.mark.parametrize("answer", [b"{}", b"<html>", BrokerUnavailable("It restarts.", "Wait.")])
async def test_an_answer_that_is_none_holds_no_stop_up(answer: bytes | Exception) -> None:
    broker: Any = AnswersWith(answer)
    workload: Any = SimpleNamespace()
    await last_call(Session(user="ann", server="", lease="l1", workload=workload), broker=broker)
    assert broker.asked == ["l1"]
