"""What the form says about money: prices, changes, what is left and for how long."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from allotment_spawner.core.errors import BudgetExhausted, ChargeNotAllowed, LimitReached
from allotment_spawner.spawners.choices import preselected
from allotment_spawner.spawners.defaults import cheapest_without_gpu
from allotment_spawner.spawners.money import amount, budgets_of, cannot_pay, money_of, span
from allotment_spawner.spawners.options import Choice
from allotment_spawner.spawners.refusals import blames_choice, problem_refusal, spawn_exception
from allotment_spawner.wire import FlavorView, Problem
from allotment_testing.fake_things import some_budget, some_quote
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
OWN: dict[str, Any] = {"scope": "user", "id": "own"}


def flavor(quote: Any = None, *, flavor_id: str = "gpu", gpu: bool = True) -> FlavorView:
    kind = "slice" if gpu else "none"
    return FlavorView.model_validate(
        {
            "id": flavor_id,
            "title": flavor_id,
            "resources": {"gpu": {"kind": kind}, "cpu": 2.0, "memory_bytes": 2**30},
            "free": 3,
            "total": 7,
            "price_per_hour": "0.40",
            "currency": "credits",
            "available": True,
            "reason": None,
            "expected_wait_s": None,
            "quote": quote,
        }
    )


def test_spans_and_amounts_never_promise_more_than_there_is() -> None:
    assert [span(one) for one in (-5, 59, 60, 3599, 3600, 5400, 86_399)] == [
        "less than a minute",
        "less than a minute",
        "1 min",
        "59 min",
        "1 h",
        "1 h 30 min",
        "23 h 59 min",
    ]
    assert [span(one) for one in (86_400, 97_200, 40 * 86_400 + 7200)] == ["1 day", "1 day 3 h", "40 days"]
    assert amount(Decimal("4.199999"), "EUR") == "4.19 EUR"
    assert amount(Decimal("0.000001"), "EUR") == "less than 0.01 EUR"
    assert amount(Decimal(0), "EUR") == "0.00 EUR"


@given(st.decimals(min_value=0, max_value=10**9, places=6))
def test_what_is_said_to_be_there_is_there(left: Decimal) -> None:
    said = amount(left, "EUR")
    if said.startswith("less"):
        assert 0 < left < Decimal("0.01")
    else:
        assert left - Decimal("0.01") < Decimal(said.split()[0]) <= left


def test_without_a_quote_the_price_alone_is_said() -> None:
    money = money_of(flavor(), NOW)
    assert money["price"] == "0.40 credits an hour"
    assert (money["change"], money["longest"]) == (None, "")
    assert budgets_of([flavor()]) == {"budgets": [], "charge_to": []}


def test_the_price_now_its_next_change_and_the_longest_time() -> None:
    quote = some_quote("0.20", change="0.40", longest_s=14_400)
    money = money_of(flavor(quote), NOW)
    assert money["price"] == "0.20 credits an hour", "the quote's, not the catalogue's"
    assert money["change"]["price"] == "0.40 credits an hour"
    assert money["change"]["at"] == quote.changes[0].at.isoformat()
    assert money["longest"] == "At most 4 h at a time."


def test_how_long_it_lasts_is_told_for_each_group_that_can_be_chosen() -> None:
    rich, poor = some_budget("rich", left="10", lasts_s=90_000), some_budget("poor", left="0.02", lasts_s=180)
    mine = some_budget("mia", left="1", lasts_s=9000, **OWN)
    quote = some_quote(
        "0.40",
        charge_to="rich",
        may_charge=("poor", "rich"),
        choices=(poor, rich),
        budgets=(mine, rich),
        lasts_s=9000,
    )
    charges = money_of(flavor(quote), NOW)["charges"]
    assert charges[""] == charges["rich"]
    assert charges[""] == {"to": "rich", "lasts": "What is left pays for 2 h 30 min.", "why": None}
    assert charges["poor"]["why"] == "The budget of poor lacks 0.05 credits for the shortest time."
    shown = budgets_of([flavor(quote)])
    assert shown["charge_to"] == ["poor", "rich"]
    assert [(one["title"], one["line"], one["percent"], one["tone"]) for one in shown["budgets"]] == [
        ("Your own budget", "1.00 of 20.00 credits left", 5, "low"),
        ("Budget of poor", "0.02 of 20.00 credits left", 0, "low"),
        ("Budget of rich", "10.00 of 20.00 credits left", 50, "ok"),
    ]


def test_several_budgets_of_one_group_count_together() -> None:
    money, hours = (
        some_budget("a", left="10", lasts_s=7200),
        some_budget("a", left="1", lasts_s=3600, unit="gpu_hours", id="hours"),
    )
    quote = some_quote("1", charge_to="b", may_charge=("a", "b"), choices=(hours, money), minimum="2")
    charges = money_of(flavor(quote), NOW)["charges"]
    assert charges["a"] == {"to": "a", "lasts": "What is left pays for 1 h.", "why": None}
    assert len(budgets_of([flavor(quote)])["budgets"]) == 2


@pytest.mark.parametrize(("period", "ends"), [("month", False), ("term", True)])
def test_what_lasts_longer_than_its_period_has_no_other_end(period: str, ends: bool) -> None:
    long = some_budget("a", left="10", lasts_s=40 * 86_400, period=period)
    quote = some_quote("1", charge_to="a", may_charge=("a",), budgets=(long,))
    said = money_of(flavor(quote), NOW)["charges"][""]["lasts"]
    assert said == (
        "What is left pays for 40 days." if ends else "What is left pays to the end of its period."
    )
    endless = long.model_copy(update={"lasts_s": 1e300})
    assert money_of(flavor(quote.model_copy(update={"budgets": (endless,)})), NOW)


def test_a_soft_budget_only_warns() -> None:
    soft = some_budget("a", left="4", lasts_s=36_000, hard=False)
    charges = money_of(flavor(some_quote("0.40", charge_to="a", may_charge=("a",), budgets=(soft,))), NOW)
    assert charges["charges"][""]["lasts"].startswith("The budget lasts for 10 h; after that you are warned")
    over = some_budget("a", left="-1.5", lasts_s=0.0, hard=False, unit="gpu_hours")
    quote = some_quote("0.40", charge_to="a", may_charge=("a",), budgets=(over,))
    assert "used up" in money_of(flavor(quote), NOW)["charges"][""]["lasts"]
    assert budgets_of([flavor(quote)])["budgets"][0]["line"] == "Overdrawn by 1.50 of 20.00 GPU hours"
    free = some_quote("0", budgets=(some_budget("a", left="4"),))
    assert money_of(flavor(free), NOW)["charges"][""]["lasts"] == ""


def test_an_empty_request_takes_what_can_be_paid() -> None:
    refused = some_quote("0.05", refusal="0.01 credits lack.")
    cpu, other = (
        flavor(refused, flavor_id="cpu", gpu=False),
        flavor(some_quote("1"), flavor_id="b", gpu=False),
    )
    assert cheapest_without_gpu([cpu, other]) == "b"
    dear, cut = flavor(flavor_id="dear", gpu=False), flavor(some_quote("0.1"), flavor_id="cut", gpu=False)
    assert cheapest_without_gpu([dear, cut]) == "cut", "by what it costs this person now"
    assert cheapest_without_gpu([cpu]) == "cpu", "the broker's refusal says what lacks"


def test_a_place_in_line_is_not_given_up_for_what_cannot_be_paid() -> None:
    poor, rich = some_budget("a", left="0.06"), some_budget("a", left="0.08")
    lacks = some_quote("0.40", budgets=(poor,), refusal="0.01 lacks.")
    assert cannot_pay(flavor(lacks)) == "0.01 lacks."
    beside = some_quote("0.40", budgets=(rich,), refusal="Beside what waits 0.05 lacks.")
    assert cannot_pay(flavor(beside)) is None, "what waits is given up first"
    assert cannot_pay(flavor(some_quote("0.40", refusal="One session at a time."))) is None
    assert cannot_pay(flavor()) is None


@pytest.mark.parametrize(
    ("last", "offered", "chosen"), [("a", ["a", "b"], "a"), ("gone", ["a", "b"], ""), (None, [], "")]
)
def test_the_last_group_is_chosen_again_while_it_can_be(
    last: str | None, offered: list[str], chosen: str
) -> None:
    choices: dict[str, Any] = {
        "environments": [{"id": "minimal", "available": True}],
        "flavors": [{"id": "cpu", "available": True}],
        "defaults": {"environment": "minimal", "flavor": "cpu"},
        "charge_to": offered,
    }
    assert preselected(choices, Choice(charge_to=last))["charge_to"] == chosen


@pytest.mark.parametrize(
    ("kind", "status"), [(BudgetExhausted, 402), (ChargeNotAllowed, 403), (LimitReached, 429)]
)
def test_refusals_about_money_keep_their_words_and_do_not_become_the_default(kind: Any, status: int) -> None:
    problem = Problem(
        type="urn", title="t", status=status, detail="0.05 lacks <b>.", code=kind.code, next_step="Ask."
    )
    refusal = problem_refusal(problem)
    assert type(refusal) is kind
    assert blames_choice(refusal)
    error = spawn_exception(refusal)
    assert error.status_code == status
    assert error.jupyterhub_message == "0.05 lacks <b>. Ask."
    assert "&lt;b&gt;" in error.jupyterhub_html_message


def test_times_are_utc_until_a_script_shows_the_readers_own() -> None:
    at = datetime(2026, 12, 1, 21, tzinfo=UTC)
    quote = some_quote("1").model_copy(
        update={"changes": (some_quote("1", change="2").changes[0].model_copy(update={"at": at}),)}
    )
    assert money_of(flavor(quote), NOW)["change"]["clock"] == "21:00 UTC"
