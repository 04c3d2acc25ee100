"""`allot usage`, `allot refund` and `allot correct` against a real broker."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from allotment.cli import build_app
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from allotment_testing.written_entries import some_entry, write_entries
from typer.testing import CliRunner, Result

MARCH = ("--from", "2030-03-01", "--to", "2030-04-01")


class Allot:
    """Runs `allot` as one of the people, while the broker goes on."""

    def __init__(self, api: BrokerApi, url: str) -> None:
        self.api = api
        self.url = url
        self.tokens = {name: api.hub.add_token(name, ACCESS) for name in ("ann", "olga")}
        self.lease = ""

    async def __call__(self, user: str, *arguments: str) -> Result:
        env = {"ALLOTMENT_URL": self.url, "ALLOTMENT_TOKEN": self.tokens[user], "COLUMNS": "160"}
        return await asyncio.to_thread(CliRunner().invoke, build_app(), list(arguments), env=env)


@pytest.fixture
async def allot(tmp_path: Path) -> AsyncIterator[Allot]:
    async with broker_api(tmp_path / "data") as api, api.served() as url:
        for name in ("ann", "ben"):
            api.hub.add_user(name)
        api.hub.add_user("olga", groups=("allotment-operators",))
        made = Allot(api, url)
        made.lease = await api.session("ann")
        broker: Any = api.broker
        await write_entries(
            broker.store,
            some_entry(lease=made.lease, amount=Decimal("2.000001")),
            some_entry(flavor="gpu-10gb", gpu_seconds=Decimal(450), amount=Decimal("0.40")),
            some_entry(owner="=ben", amount=Decimal(4)),
        )
        yield made


async def test_sums_for_people_and_for_operators(allot: Allot) -> None:
    mine = await allot("ann", "usage", *MARCH)
    assert mine.exit_code == 0, mine.output
    for words in ("Flavor", "gpu-10gb", "0.12 h", "0.40", "2.000001", "Total: 2.400001 credits"):
        assert words in mine.output
    assert "=ben" not in mine.output
    every = await allot("olga", "usage", *MARCH, "--by", "user,day")
    for words in ("User", "Day", "=ben", "2030-03-01", "Total: 6.400001 credits"):
        assert words in every.output
    one = await allot("olga", "usage", *MARCH, "--user", "=ben")
    assert "Total: 4.00 credits" in one.output
    none = await allot("olga", "usage", *MARCH, "--group", "art")
    assert "Nothing was charged." in none.output


async def test_json_is_the_routes_answer(allot: Allot) -> None:
    done = await allot("olga", "usage", *MARCH, "--json", "--by", "day,kind", "--limit", "2")
    async with allot.api.client(allot.tokens["olga"]) as client:
        query = {"from": "2030-03-01", "to": "2030-04-01", "group_by": "day,kind", "limit": "2"}
        answer = (await client.get("usage", params=query)).json()
    told = json.loads(done.stdout)
    assert told["total"] == "6.400001"
    assert told == answer | {"running": told["running"]}
    rest = await allot("olga", "usage", *MARCH, "--json", "--after", told["next"])
    assert [one["owner"] for one in json.loads(rest.stdout)["entries"]] == ["=ben"]


async def test_files_are_written_whole_or_not_at_all(allot: Allot, tmp_path: Path) -> None:
    table, rows = tmp_path / "u.csv", tmp_path / "u.parquet"
    done = await allot("olga", "usage", *MARCH, "--csv", str(table), "--parquet", str(rows))
    assert done.exit_code == 0, done.output
    found = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"))))
    assert [one["owner"] for one in found] == ["ann", "ann", "'=ben"]
    assert sum(Decimal(one["amount"]) for one in found) == Decimal("6.400001")
    assert pq.read_table(rows).column("owner").to_pylist() == ["ann", "ann", "=ben"]
    shown = await allot("olga", "usage", *MARCH, "--csv", "-")
    assert shown.stdout_bytes == table.read_bytes()
    refused = await allot("ann", "usage", *MARCH, "--user", "ben", "--csv", str(table))
    assert refused.exit_code == 1
    assert "only for your own" in refused.output
    assert len(found) == table.read_text(encoding="utf-8").count("\n") - 1
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == ["u.csv", "u.parquet"]


async def test_operators_give_back_and_correct(allot: Allot) -> None:
    back = await allot("olga", "refund", allot.lease, "0.5", "--because", "The disk was slow.")
    assert back.exit_code == 0, back.output
    assert "-0.50 credits for ann." in back.output
    less = await allot("olga", "correct", allot.lease, "-0.25", "--because", "Too much.", "--json")
    assert less.exit_code == 0, less.output
    made = json.loads(less.stdout)
    assert (made["kind"], made["amount"]) == ("correction", "-0.25")
    more = await allot("olga", "correct", made["id"], "1", "--entry", "--because", "Not too much.")
    assert "1.00 credits for ann." in more.output
    mine = await allot("ann", "usage", *MARCH, "--by", "kind")
    assert "Total: 2.650001 credits" in mine.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("refund", "LEASE", "1", "--because", "x"), 1, "Only operators"),
        (("refund", "LEASE", "much", "--because", "x"), 2, "no amount"),
        (("refund", "LEASE", "1"), 2, "Missing option '--because'"),
        (("correct", "LEASE", "-1e3", "--because", "x"), 2, "no amount"),
        (("usage", "--from", "yesterday"), 1, "no day or time"),
        (("usage", "--by", "owner"), 1, "Choose from user, group"),
        (("usage", "--json", "--csv", "x"), 2, "Give one of them"),
        (("usage", "--csv", "/no/such/folder/x.csv"), 2, "cannot be written"),
    ],
)
async def test_a_refusal_is_a_sentence(
    allot: Allot, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = await allot("ann", *(allot.lease if one == "LEASE" else one for one in arguments))
    assert done.exit_code == code, done.output
    assert said in done.output
    assert "Traceback" not in done.output


async def test_nobody_gets_back_more_than_was_charged(allot: Allot) -> None:
    done = await allot("olga", "refund", allot.lease, "2.000002", "--because", "x")
    assert done.exit_code == 1
    assert "2.000001 credits stand in the books" in done.output
