"""What the dashboard makes of the services' answers: words, the axis, findings with remedies."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from allotment_hub.broker.services.views import (
    EngineHealthView,
    Explanation,
    FleetView,
    GpuView,
    HealthView,
    ProcessView,
    RuleView,
    SliceView,
    StrayView,
    WholeView,
)
from allotment_hub.dashboard.board import choices, ended_sessions, sessions
from allotment_hub.dashboard.machine import cards, findings
from allotment_hub.dashboard.render import BoardData, Pages
from allotment_hub.dashboard.words import END_WORDS, STATE_WORDS, gigabytes, price, wait
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import FlavorView, LeaseView
from allotment_testing.fake_things import some_quote

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def lease(state: str, **more: Any) -> LeaseView:
    fields: dict[str, Any] = {
        "id": "l1", "kind": "session", "user": "ann b", "server": "w/x", "environment": "minimal",
        "flavor": "gpu-10gb", "state": state, "devices": (), "place": None, "expected_start": None,
        "class": "interactive", "granted_at": None, "active_at": None, "stopped_at": None, "ended_at": None,
        "end_reason": None, "price_per_hour": Decimal("0.4"),
    }  # fmt: skip
    return LeaseView.model_validate(fields | more)


def flavor(**more: Any) -> FlavorView:
    fields: dict[str, Any] = {
        "id": "gpu-10gb", "title": "10 GB GPU", "resources": {"gpu": {"kind": "slice", "profile": "1g.10gb",
        "count": 1, "memory_bytes": 10 * 2**30}, "cpu": 2.0, "memory_bytes": 8 * 2**30}, "free": 5,
        "total": 7, "price_per_hour": Decimal("0.4"), "currency": "credits", "available": True,
        "reason": None,
        "expected_wait_s": None,
    }  # fmt: skip
    return FlavorView.model_validate(fields | more)


def gpu(**more: Any) -> GpuView:
    fields: dict[str, Any] = {
        "uuid": "GPU-1", "index": 0, "model": "A100", "memory_bytes": 80 * 2**30, "pool": "mig", "mig": True,
        "axis": 8, "island": 0, "problem": None, "slices": (), "whole": None, "processes": (),
    }  # fmt: skip
    return GpuView.model_validate(fields | more)


def fleet(*gpus: GpuView, **more: Any) -> FleetView:
    fields: dict[str, Any] = {
        "node": "n", "boot_id": "b", "simulated": True, "driver_version": None, "agent": HealthView(ok=True),
        "engine": EngineHealthView(name="local", ok=True), "gpus": gpus, "strays": (),
    }  # fmt: skip
    return FleetView.model_validate(fields | more)


def pages() -> Pages:
    return Pages(title="T", currency="c", engine="docker", simulated=False, prefix="/p", version="1")


def board(leases: list[LeaseView], explanations: dict[str, Explanation]) -> BoardData:
    return BoardData(leases=leases, flavors=[], environments=[], explanations=explanations, fleet=None)


def slice_(start: int, size: int, state: str = "leased", **more: Any) -> SliceView:
    fields = {"uuid": "MIG-1", "profile": f"{size}g", "start": start, "size": size, "state": state}
    return SliceView.model_validate(fields | more)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("0.4", "0.40"),
        ("1", "1.00"),
        ("0.125", "0.125"),
        ("3.200000", "3.20"),
        ("1E+2", "100.00"),
        ("0", "0.00"),
    ],
)
def test_prices_lose_no_digit(amount: str, words: str) -> None:
    assert price(Decimal(amount), "EUR") == f"{words} EUR per hour"


def test_unknown_is_not_zero() -> None:
    assert gigabytes(None) is None
    assert gigabytes(0) is None
    assert wait(None) is None
    assert wait(0) == "about a minute"
    assert wait(1500) == "about 25 min"


def test_every_state_and_reason_has_words() -> None:
    assert set(STATE_WORDS) == set(LeaseState)
    assert set(END_WORDS) == set(EndReason)


@pytest.mark.parametrize(
    ("state", "link", "action"),
    [
        ("queued", "/hub/spawn-pending/ann%20b/w%2Fx", "Cancel"),
        ("granted", "/hub/spawn-pending/ann%20b/w%2Fx", "Cancel"),
        ("active", "/user/ann%20b/w%2Fx/", "Stop"),
        ("ending", "/user/ann%20b/w%2Fx/", None),
    ],
)
def test_session_cards(state: str, link: str, action: str | None) -> None:
    found = sessions([lease(state)], flavors=[flavor()], environments=[], explanations={}, currency="credits")
    assert [(one.link, one.action, one.flavor, one.environment) for one in found] == [
        (link, action, "10 GB GPU", "minimal")
    ]


def test_ended_sessions_say_why() -> None:
    over = lease("ended", end_reason="start_failed", ended_at=NOON)
    assert sessions([over], flavors=[], environments=[], explanations={}, currency="") == []
    ended = ended_sessions([over], flavors=[], explanations={}, currency="credits")[0]
    assert (ended.reason, ended.cost, ended.why) == ("did not start", None, None)
    stopped = RuleView(rule="stopped", sentence="It was stopped.")
    announced = RuleView(rule="announced", sentence="<Used up>")
    why = Explanation(lease="l1", state="ended", sentence="", rules=(stopped, announced), devices=(), help=())
    assert "&lt;Used up&gt;" in pages().board(board([over], {"l1": why}))
    bare = why.model_copy(update={"rules": (stopped,)})
    assert "It was stopped." not in pages().board(board([over], {"l1": bare})), "said already"


def test_a_session_says_what_it_has_cost_and_who_pays() -> None:
    def said(**changes: Any) -> str | None:
        [one] = sessions(
            [lease("active", **changes)], flavors=[], environments=[], explanations={}, currency="credits"
        )
        return one.cost

    assert said() is None, "not known, or not begun"
    assert said(cost=Decimal("0.126667"), currency="EUR") == "0.13 EUR"
    assert said(cost=Decimal("0.126667"), charged_to="a <group>") == "0.13 credits, charged to a <group>"


@pytest.mark.parametrize(
    ("more", "state", "count"),
    [
        ({}, "free", "5 of 7 free"),
        ({"free": 0}, "taken", "0 of 7 free"),
        ({"free": None, "total": None}, "free", "always free"),
        ({"free": 0, "total": 0, "available": False, "reason": "No such card."}, "unavailable", ""),
        ({"quote": some_quote("0.4", refusal="Used up.")}, "unavailable", "5 of 7 free"),
    ],
)
def test_choices(more: dict[str, Any], state: str, count: str) -> None:
    found = choices([flavor(**more)])[0]
    assert (found.state, found.count) == (state, count)
    assert (found.reason is not None) is (state == "unavailable")
    assert found.resources == "1g.10gb (10 GB) · 2 CPUs · 8 GB memory"


@pytest.mark.parametrize(
    ("kind", "count", "words"),
    [("slice", 1, "slice of a GPU"), ("whole", 1, "whole GPU"), ("whole", 2, "2 × whole GPUs")],
)
def test_a_device_that_nothing_here_has_is_named_by_its_kind(kind: str, count: int, words: str) -> None:
    gpu = {"kind": kind, "profile": None, "count": count, "memory_bytes": None}
    assert choices([flavor(resources={"gpu": gpu})])[0].resources == words


@pytest.mark.parametrize(
    ("held", "drawn"),
    [
        ([], [(0, 8, "free")]),
        ([(0, 4)], [(0, 4, "leased"), (4, 4, "free")]),
        (
            [(6, 1), (2, 2)],
            [(0, 2, "free"), (2, 2, "leased"), (4, 2, "free"), (6, 1, "leased"), (7, 1, "free")],
        ),
        ([(0, 8)], [(0, 8, "leased")]),
    ],
)
def test_the_axis_is_drawn_whole(held: list[tuple[int, int]], drawn: list[tuple[int, int, str]]) -> None:
    card = cards(fleet(gpu(slices=tuple(slice_(*one) for one in held))).model_dump())[0]
    assert [(part.start, part.size, part.state) for part in card.parts] == drawn


def test_findings_come_with_remedies() -> None:
    assert findings(fleet(gpu()).model_dump()) == []
    process = ProcessView(pid=42, device_uuid="MIG-1", name=None, explained=False)
    broken = gpu(
        problem="Xid 79", slices=(slice_(0, 1, "quarantined", note="still there"),), processes=(process,)
    )
    whole = gpu(index=1, mig=False, axis=0, whole=WholeView(state="quarantined"))
    silent = {
        "agent": HealthView(ok=False, problem=None),
        "engine": EngineHealthView(name="docker", ok=False, problem="denied"),
        "strays": (StrayView(engine_ref="allotment-x", note="unknown"),),
    }
    found = findings(fleet(broken, whole, **silent).model_dump())
    assert len(found) == 7
    assert all(one.what and one.remedy for one in found)
    said = " ".join(one.what for one in found)
    for word in (
        "no reason is known",
        "denied",
        "Xid 79",
        "42",
        "name unknown",
        "still there",
        "allotment-x",
    ):
        assert word in said


def test_pages_render_what_is_unknown() -> None:
    empty = fleet(node=None, boot_id=None, simulated=None, agent=HealthView(ok=False)).model_dump()
    data = BoardData(leases=[], flavors=[], environments=[], explanations={}, fleet=empty)
    page = pages().page(data, person="ann", csrf="x")
    assert "node unknown" in page
    assert "driver unknown" in page
    assert "the agent does not answer" in page
    assert "imulated" not in page
    assert "no wall between people" not in page
