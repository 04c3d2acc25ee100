"""What `up` waits for before it says that a session could start."""

from __future__ import annotations

import json
from typing import Any

import pytest
from allotment_hub.host import waiting
from allotment_hub.host.probes import Answer
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.waiting import session_problem

SETTINGS = HostSettings("127.0.0.1", 8000, "127.0.0.1", 1, 2, 3, None, None, "node", "proxy", "code")


def flavor(**changes: Any) -> dict[str, Any]:
    plain = {"available": False, "total": 0, "resources": {"gpu": {"kind": "slice"}}}
    return {**plain, **changes}


def asked(monkeypatch: pytest.MonkeyPatch, *flavors: dict[str, Any], engine: bool = True) -> str | None:
    bodies = {
        "/hub/api/": {"version": "6"},
        "/fleet": {"engine": {"ok": engine, "problem": "It is off."}, "agent": {"ok": True}},
        "/flavors": list(flavors),
    }

    def answer(url: str, **_: object) -> Answer:
        body = next(body for end, body in bodies.items() if url.endswith(end))
        return Answer(200, json.dumps(body).encode())

    monkeypatch.setattr(waiting, "request", answer)
    return session_problem(SETTINGS, token="t")


def test_nothing_that_this_machine_could_give_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No flavor" in (asked(monkeypatch, flavor(), flavor(total=None)) or "")
    assert "It is off." in (asked(monkeypatch, flavor(available=True), engine=False) or "")
    assert asked(monkeypatch, flavor(), flavor(available=True)) is None


def test_flavors_for_groups_that_the_asking_account_is_not_in_are_no_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(monkeypatch, flavor(total=7)) is None
    assert asked(monkeypatch, flavor(total=None, resources={"gpu": {"kind": "none"}})) is None
