"""A report's rows, its total and its pages of entries are one sum, however it is grouped and paged."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from allotment_hub.broker.routes.usage_download import download
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.usage import GROUPS, Ask, Cursor, Usage
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.usage import Wanted
from allotment_spawner.money_wire import EntryView, UsageView
from allotment_testing.written_entries import FIRST, some_entry, write_entries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXACT = Context(prec=500)
SINCE, UNTIL = datetime(2030, 3, 1, tzinfo=UTC), datetime(2030, 4, 1, tzinfo=UTC)
NAMES = st.sampled_from(["ann", "ben", "=cleo", "dée"])
AMOUNTS = st.decimals(-1000, 10**9, places=6)
EVERY_GROUPING = [names for count in range(len(GROUPS) + 1) for names in combinations(GROUPS, count)]


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["usage", "storage", "refund", "correction"]))
    stored = kind == "storage"
    return some_entry(
        kind=kind,
        owner=draw(NAMES),
        charged_to=draw(st.sampled_from([None, "physics", "art"])),
        volume="home" if stored else None,
        from_at=FIRST + timedelta(seconds=draw(st.integers(-10 * 86400, 40 * 86400))),
        seconds=draw(st.decimals(0, 10**8, places=6)),
        gpu_seconds=draw(st.decimals(0, 10**8, places=20)),
        amount=draw(AMOUNTS),
        currency=draw(st.sampled_from(["credits"] * 9 + ["EUR"])),
        flavor=None if stored else draw(st.sampled_from(["cpu", "gpu-10gb"])),
        environment=None if stored else draw(st.sampled_from(["minimal", "pytorch"])),
        reason=draw(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)),
    )


def no_cost(_lease: Lease, _now: datetime) -> tuple[Decimal, str | None]:
    return Decimal(0), None


def usage_of(store: Store, zone: str = "Europe/Berlin") -> Usage:
    return Usage(
        store=store, book=Book(), zone=zone, currency="credits", titles={}, unposted=no_cost,
        clock=lambda: FIRST,
    )  # fmt: skip


def exactly(amounts: list[Decimal]) -> Decimal:
    total = Decimal(0)
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total


async def every_page(usage: Usage, ask: Ask, limit: int) -> tuple[UsageView, list[EntryView]]:
    """The first page's report, and the entries of all pages; rows and total are the same on each."""
    first = view = await usage.report(ask, limit=limit)
    found = list(view.entries)
    while view.next is not None:
        view = await usage.report(ask, cursor=Cursor.read(view.next), limit=limit)
        assert (view.total, view.rows) == (first.total, first.rows)
        assert len(view.entries) <= limit
        found += view.entries
    return first, found


def with_store(folder: Path, work: Callable[[Store], Any]) -> None:
    async def run() -> None:
        store = Store(url=sqlite_url(folder / "b.sqlite"))
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())


@settings(
    max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(entries=st.lists(written(), max_size=25), limit=st.integers(1, 9))
def test_rows_total_and_pages_are_one_sum(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]], limit: int
) -> None:
    inside = [one for one in entries if SINCE <= one["from_at"] < UNTIL]
    ours = [one for one in inside if one["currency"] == "credits"]
    expected = exactly([one["amount"] for one in ours])

    async def check(store: Store) -> None:
        await write_entries(store, *entries)
        usage = usage_of(store)
        for names in EVERY_GROUPING:
            view, found = await every_page(usage, Ask(Wanted(SINCE, UNTIL), names), limit)
            assert view.total == expected
            for part in ("amount", "seconds", "gpu_seconds"):
                wanted = exactly([one[part] for one in ours])
                assert exactly([getattr(row, part) for row in view.rows]) == wanted
                assert exactly([getattr(one, part) for one in found]) == wanted
            assert sum(row.entries for row in view.rows) == len(ours)
            assert [one.id for one in found] == [one["id"] for one in ours]
            assert all(tuple(row.key) == names for row in view.rows)
            assert len({tuple(row.key.values()) for row in view.rows}) == len(view.rows)
            assert bool(view.other_currencies) == (len(ours) < len(inside))

    with_store(tmp_path_factory.mktemp("usage"), check)


async def opened(folder: Path) -> Store:
    store = Store(url=sqlite_url(folder / "b.sqlite"))
    await store.open()
    return store


async def body(usage: Usage, ask: Ask, kind: Any) -> bytes:
    answer = await download(usage, ask, kind)
    found = b"".join([bytes(piece) async for piece in answer.body_iterator])  # type: ignore[arg-type]
    assert answer.headers["content-length"] == str(len(found))
    return found


async def test_a_day_is_the_books_own(tmp_path: Path) -> None:
    """Half past eleven at night in London is the next day in Berlin, in winter and in summer."""
    store = await opened(tmp_path)
    for moment in ("2030-03-30T23:30+00:00", "2030-03-31T21:30+00:00", "2030-03-31T22:30+00:00"):
        await write_entries(store, some_entry(from_at=datetime.fromisoformat(moment)))
    wanted = Ask(Wanted(SINCE, UNTIL), ("day",))
    days = [row.key["day"] for row in (await usage_of(store).report(wanted)).rows]
    assert days == ["2030-03-31", "2030-04-01"]
    counts = [row.entries for row in (await usage_of(store, "UTC").report(wanted)).rows]
    assert counts == [1, 2]
    await store.close()


async def test_what_is_written_meanwhile_is_on_no_later_page(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await write_entries(store, *[some_entry() for _ in range(5)])
    ask, usage = Ask(Wanted(SINCE, UNTIL)), usage_of(store)
    first = await usage.report(ask, limit=3)
    await write_entries(store, some_entry(amount=Decimal(7)))
    assert first.next is not None
    second = await usage.report(ask, cursor=Cursor.read(first.next), limit=3)
    assert (second.total, len(second.entries), second.next) == (first.total, 2, None)
    assert (await usage.report(ask)).total == first.total + 7
    await store.close()


async def test_parquet_keeps_every_digit(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    amounts = [Decimal("0.000001"), Decimal("123456789012345.678901"), Decimal("-0.400000")]
    written = [
        some_entry(amount=one, lease=None, owner="=ann", gpu_seconds=Decimal(300) / 7) for one in amounts
    ]
    await write_entries(store, *written)
    table = pq.read_table(io.BytesIO(await body(usage_of(store), Ask(Wanted(SINCE, UNTIL)), "parquet")))
    assert str(table.schema.field("amount").type) == "decimal128(38, 6)"
    assert table.column("amount").to_pylist() == amounts
    assert table.column("owner").to_pylist() == ["=ann"] * 3
    assert table.column("from").to_pylist() == [FIRST] * 3
    assert table.column("gpu_seconds").to_pylist()[0] == Decimal("42.857143")
    rows = pq.read_table(
        io.BytesIO(await body(usage_of(store), Ask(Wanted(SINCE, UNTIL), ("user", "day")), "parquet"))
    )
    assert rows.column_names == ["user", "day", "amount", "currency", "seconds", "gpu_seconds", "entries"]
    assert rows.column("amount").to_pylist() == [sum(amounts)]
    await store.close()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
async def test_a_file_of_nothing_is_a_table(tmp_path: Path, kind: str) -> None:
    store = await opened(tmp_path)
    found = await body(usage_of(store), Ask(Wanted(SINCE, UNTIL)), kind)
    if kind == "csv":
        assert found.decode().startswith("id,kind,owner,")
        assert found.count(b"\n") == 1
    else:
        assert pq.read_table(io.BytesIO(found)).num_rows == 0
    await store.close()
