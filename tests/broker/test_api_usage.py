"""Reports over HTTP: who reads what, which time it is of, files, and entries that operators make by hand."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_hub.broker.store.budgets import Budget, add_budget
from allotment_spawner.money_wire import UsageView
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from allotment_testing.written_entries import FIRST, some_entry, write_entries

MARCH = {"from": "2030-03-01", "to": "2030-04-01"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        for name in ("ann", "ben", "prof"):
            made.hub.add_user(name, groups=("physics",))
        made.hub.add_user("root", admin=True)
        yield made


def store_of(api: BrokerApi) -> Any:
    broker: Any = api.broker
    return broker.store


async def filled(api: BrokerApi) -> None:
    """ann: 0.05 and 0.25 to physics; ben: 1 to physics and 2 of his own; prof: 4 to physics."""
    wrong = "ben's session was wrong"
    await write_entries(
        store_of(api),
        some_entry(),
        some_entry(amount=Decimal("0.25"), charged_to="physics", flavor="gpu-10gb"),
        some_entry(owner="ben", amount=Decimal(1), charged_to="physics", reason=wrong, refers_to="x"),
        some_entry(owner="ben", amount=Decimal(2), from_at=FIRST + timedelta(days=1)),
        some_entry(owner="prof", amount=Decimal(4), charged_to="physics"),
        some_entry(owner="ann", amount=Decimal(8), from_at=datetime(2030, 4, 1, tzinfo=UTC)),
    )


async def mind(api: BrokerApi, group: str, owner: str) -> None:
    budget = Budget(
        id="b1", scope="group", name=group, unit="money", amount=Decimal(100), period="month", starts_on=None,
        ends_on=None, hard=True, owner=owner, note="", made_by="root", made_at=FIRST,
    )  # fmt: skip
    await store_of(api).write("budget", lambda tx: add_budget(tx.connection, budget))


async def ask(api: BrokerApi, who: str, **query: str) -> httpx.Response:
    token = HUB_TOKEN if who == "hub" else api.hub.add_token(who, ACCESS)
    async with api.client(token) as client:
        return await client.get("usage", params=MARCH | query)


async def total(api: BrokerApi, who: str, **query: str) -> Decimal:
    answer = await ask(api, who, **query)
    assert answer.status_code == 200, answer.text
    return UsageView.model_validate(answer.json()).total


async def test_people_read_their_own_and_operators_all(api: BrokerApi) -> None:
    await filled(api)
    assert await total(api, "ann") == Decimal("0.30")
    assert await total(api, "ann", user="ann") == Decimal("0.30")
    assert await total(api, "ann", group="physics") == Decimal("0.25")
    assert await total(api, "root") == await total(api, "hub") == Decimal("7.30")
    assert await total(api, "root", user="ben") == 3
    assert await total(api, "root", group="physics") == Decimal("5.25")
    assert await total(api, "root", user="ben", group="physics") == 1


async def test_others_are_not_read(api: BrokerApi) -> None:
    await filled(api)
    for query in ({"user": "ben"}, {"user": "ben", "group": "physics"}, {"user": "nobody"}):
        answer = await ask(api, "ann", **query)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
        assert "ben" not in answer.text
    assert await total(api, "ann", group="a group that is not") == 0


async def test_a_budgets_owner_reads_its_group_without_names(api: BrokerApi) -> None:
    await filled(api)
    await mind(api, "physics", "prof")
    answer = await ask(api, "prof", group="physics", group_by="user,flavor")
    view = UsageView.model_validate(answer.json())
    assert view.total == Decimal("5.25")
    assert {(row.key["user"], row.amount) for row in view.rows} == {
        ("another person", Decimal(1)), ("another person", Decimal("0.25")), ("prof", Decimal(4)),
    }  # fmt: skip
    for secret in ("ann", "ben", "was wrong", '"x"'):
        assert secret not in answer.text
    for other in ({"group": "art"}, {}, {"user": "prof", "group": "physics"}):
        assert await total(api, "prof", **other) == (0 if other.get("group") == "art" else 4)
    for file in ("csv", "parquet"):
        found = (await ask(api, "prof", group="physics", format=file)).content
        assert b"another person" in found
        assert b"ben" not in found
    assert (await ask(api, "prof", group="physics", user="ben")).status_code == 403
    assert await total(api, "ann", group="physics") == Decimal("0.25")


async def test_the_time_of_a_report(api: BrokerApi) -> None:
    await filled(api)
    assert await total(api, "ann", to="2030-04-02") == Decimal("8.30")
    assert await total(api, "ann", **{"from": "2030-03-01T12:00:00Z"}) == Decimal("0.30")
    assert await total(api, "ann", **{"from": "2030-03-01T13:00:00.000001+01:00"}) == 0
    async with api.client(api.hub.add_token("ann", ACCESS)) as client:
        now = datetime.now(UTC)
        view = UsageView.model_validate((await client.get("usage")).json())
        assert view.from_ == now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        assert view.to.day == 1
        assert view.from_ < now < view.to
        view = UsageView.model_validate((await client.get("usage", params={"to": "2030-03-01"})).json())
        assert view.from_ == datetime(2030, 2, 1, tzinfo=UTC)


MEANINGLESS: list[dict[str, str]] = [
    {"from": "yesterday"}, {"from": "2030-03-01T12:00:00"}, {"from": "0001-01-01"}, {"to": "9999-12-31"},
    {"from": "2030-02-30"}, {"from": "2030-04-01"}, {"to": "2030-02-01"}, {"group_by": "owner"},
    {"group_by": "day,day"}, {"after": "5"}, {"after": "-1.2"}, {"limit": "0"}, {"limit": "1001"},
    {"format": "xlsx"}, {"from": "0001-01-01T00:00:00+14:00"}, {"user": "a\nb"},
]  # fmt: skip


async def test_what_means_nothing_is_refused(api: BrokerApi) -> None:
    for query in MEANINGLESS:
        answer = await ask(api, "root", **query)
        assert answer.status_code == 422, (query, answer.text)
        assert answer.json()["next_step"]


async def test_pages_of_entries(api: BrokerApi) -> None:
    await write_entries(store_of(api), *[some_entry() for _ in range(5)])
    first = (await ask(api, "ann", limit="3")).json()
    assert (len(first["entries"]), first["total"]) == (3, "0.25")
    second = (await ask(api, "ann", limit="3", after=first["next"])).json()
    assert (len(second["entries"]), second["total"], second["next"]) == (2, "0.25", None)
    assert len({one["id"] for one in first["entries"] + second["entries"]}) == 5


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\uff1d1", '=cmd|"/c calc"!A1']


async def test_no_cell_is_a_formula(api: BrokerApi) -> None:
    entries = [some_entry(owner=one, amount=Decimal("-0.5"), reason='a "b", c') for one in FORMULAS]
    await write_entries(store_of(api), *entries)
    answer = await ask(api, "root", format="csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert (
        answer.headers["content-disposition"] == 'attachment; filename="usage-2030-03-01-to-2030-03-31.csv"'
    )
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["owner"] for row in rows] == [f"'{one}" for one in FORMULAS]
    for row in rows:
        assert row["amount"] == "-0.5"
        assert (row["from"], row["reason"]) == ("2030-03-01T12:00:00Z", 'a "b", c')
    grouped = csv.DictReader(io.StringIO((await ask(api, "root", format="csv", group_by="user")).text))
    found = {(row["user"], row["amount"], row["entries"]) for row in grouped}
    assert found == {(f"'{one}", "-0.5", "1") for one in FORMULAS}


async def by_hand(api: BrokerApi, what: str, key: str, **body: Any) -> httpx.Response:
    async with api.client(api.hub.add_token("root", ACCESS)) as client:
        return await client.post(f"usage/{what}", json=body, headers={"Idempotency-Key": key})


async def test_corrections_and_refunds_are_new_entries(api: BrokerApi) -> None:
    lease = await api.session("ann", server="work")
    of = some_entry(lease=lease, amount=Decimal(2), charged_to="physics")
    await write_entries(store_of(api), of)
    back = await by_hand(api, "refunds", "k1", lease=lease, amount="0.5", reason="The disk was slow.")
    assert back.status_code == 201, back.text
    told = ("kind", "amount", "owner", "charged_to", "refers_to", "reason")
    assert {name: back.json()[name] for name in told} == {
        "kind": "refund", "amount": "-0.5", "owner": "ann", "charged_to": "physics", "refers_to": of["id"],
        "reason": "The disk was slow.",
    }  # fmt: skip
    again = await by_hand(api, "refunds", "k1", lease=lease, amount="0.5", reason="The disk was slow.")
    assert again.json()["id"] == back.json()["id"]
    more = await by_hand(api, "corrections", "k2", entry=of["id"], amount="-0.25", reason="Too much.")
    assert more.json()["amount"] == "-0.25"
    assert await total(api, "ann") == Decimal("1.25")
    for body, code in (
        ({"lease": lease, "amount": "1.26", "reason": "x"}, "bad_options"),
        ({"lease": lease, "amount": "0", "reason": "x"}, "bad_options"),
        ({"lease": lease, "amount": "0.1", "reason": " "}, "bad_options"),
        ({"lease": lease, "amount": "0.1", "reason": "a\nb"}, "bad_options"),
        ({"lease": lease, "entry": of["id"], "amount": "0.1", "reason": "x"}, "bad_options"),
        ({"amount": "0.1", "reason": "x"}, "bad_options"),
        ({"lease": lease, "amount": "NaN", "reason": "x"}, "bad_options"),
        ({"entry": "unknown", "amount": "0.1", "reason": "x"}, "no_such_entry"),
    ):
        refused = await by_hand(api, "refunds", "k3", **body)
        assert refused.json()["code"] == code, (body, refused.text)
    assert await total(api, "ann") == Decimal("1.25")


async def test_what_runs_is_told_beside_the_total(api: BrokerApi) -> None:
    await api.session("ann", server="work", flavor="gpu-full")

    async def running(who: str, **query: str) -> Decimal:
        async with api.client(api.hub.add_token(who, ACCESS)) as client:
            view = UsageView.model_validate((await client.get("usage", params=query)).json())
        assert view.total == len(view.entries) == 0
        return view.running

    async with asyncio.timeout(10):
        while await running("ann") == 0:  # noqa: ASYNC110 - a millionth costs two milliseconds
            await asyncio.sleep(0.01)
    assert await running("root") > 0
    assert await running("root", user="ann") > 0
    assert await running("root", user="ben") == await running("ben") == await running("ann", group="art") == 0
    assert await running("ann", **MARCH) == 0  # that month is not now
