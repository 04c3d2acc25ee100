"""Every refusal has its status in the one table, and its problem cannot be forged by its details."""

from __future__ import annotations

import pytest
from allotment_hub.broker.problems import (
    STATUS,
    TooManyStreams,
    problem_of,
    refusal_of,
    response_of,
    status_of,
)
from allotment_hub.broker.services.ports import HubUnavailable
from allotment_spawner.core.errors import BrokerUnavailable, NoSuchLease, Refusal, TooManySessions


def every_refusal() -> list[type[Refusal]]:
    found, todo = [], [Refusal]
    while todo:
        subclasses = todo.pop().__subclasses__()
        found += subclasses
        todo += subclasses
    return [kind for kind in found if kind.__module__.startswith("allotment_")]


@pytest.mark.parametrize("kind", every_refusal(), ids=lambda kind: str(kind.__name__))
def test_every_refusal_has_a_status(kind: type[Refusal]) -> None:
    assert any(parent in STATUS for parent in kind.__mro__)
    problem = problem_of(kind("It did not work.", "Try again.", status=299, code="forged", extra=1))
    assert (problem.code, problem.status) == (kind.code, status_of(kind("", "")))
    assert problem.model_dump()["extra"] == 1


def test_refusals_that_no_table_names() -> None:
    assert status_of(Refusal("No.", "Stop.")) == 422
    assert status_of(refusal_of(HubUnavailable("Silence."))) == 503
    assert status_of(refusal_of(ValueError("?"))) == 500
    assert status_of(NoSuchLease("", "")) == 404


def test_only_what_patience_helps_names_a_time_to_try_again() -> None:
    kinds: tuple[tuple[type[Refusal], bool], ...] = (
        (BrokerUnavailable, True),
        (TooManyStreams, True),
        (TooManySessions, False),
        (NoSuchLease, False),
    )
    assert [("retry-after" in response_of(kind("", "")).headers) for kind, _ in kinds] == [
        named for _, named in kinds
    ]
