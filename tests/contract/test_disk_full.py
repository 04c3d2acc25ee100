"""A database on a disk that is full to the brim: leases still end, and no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.broker.store.ballast import Ballast
from allotment_hub.broker.store.store import Store
from allotment_spawner.core.errors import BrokerUnavailable
from allotment_spawner.core.lease import LeaseState
from allotment_testing.lease_writer import (
    BALLAST_BYTES,
    add_leases,
    end_lease,
    lease_ids,
    opened_store,
)
from allotment_testing.loop_disk import fill, loop_disk

COUNT = 60


@pytest.fixture(params=["ext4", "xfs", "btrfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with loop_disk(tmp_path, request.param, mib=320 if request.param == "xfs" else 128) as point:
        yield point


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with loop_disk(tmp_path, "ext4", mib=64) as point:
        yield point


async def ended(store: Store) -> set[str]:
    found = await store.read(lambda tx: tx.find(user=None, server=None, live=False, limit=1000))
    return {lease.id for lease in found if lease.state is LeaseState.ENDED}


async def test_leases_end_on_a_full_disk(disk: Path) -> None:
    store = await opened_store(disk)
    await add_leases(store, COUNT)
    fill(disk)
    for number, lease in enumerate(lease_ids(COUNT)):
        await end_lease(store, lease)
        if number % 6 == 0:
            fill(disk)  # a neighbour takes whatever came free
    assert await ended(store) == set(lease_ids(COUNT))
    await store.close()


async def test_without_anything_kept_back_it_says_so_and_goes_on_later(small: Path) -> None:
    store = await opened_store(small, ballast_bytes=0)
    await add_leases(store, COUNT)
    fill(small)
    done: set[str] = set()
    with pytest.raises(BrokerUnavailable):
        for _ in range(40):
            for lease in lease_ids(COUNT):
                await end_lease(store, lease)
                done.add(lease)
            await add_more(store)
    (small / "filler").unlink()
    assert await ended(store) >= done, "what was acknowledged is there"
    for lease in lease_ids(COUNT):
        await end_lease(store, lease)
    assert await ended(store) >= set(lease_ids(COUNT))
    await store.close()


async def add_more(store: Store) -> None:
    """Something that needs room, whatever the journal has to spare."""
    await store.write(
        "grow",
        lambda tx: tx.connection.exec_driver_sql(
            "INSERT INTO outages (what, began_at) VALUES (hex(randomblob(200000)), '2026-01-01')"
        ),
    )


def test_a_killed_broker_comes_back_on_the_full_disk(small: Path) -> None:
    """kill -9 again and again, at moments that nobody chose."""

    async def prepare() -> None:
        store = await opened_store(small)
        await add_leases(store, COUNT)
        await store.close()

    asyncio.run(prepare())
    fill(small)
    said: set[str] = set()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    command = [sys.executable, "-m", "allotment_testing.lease_writer", str(small), str(COUNT)]
    while len(said) < COUNT:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            for number, line in enumerate(writer.stdout):
                said.add(line.strip())
                if number == 6 + len(said) % 5:
                    writer.kill()
                    break
            rest = writer.stdout.read()
        said |= {line for line in rest.split("\n") if len(line) == len("lease-0000")}
        assert line, "it ended without ending a lease"
        fill(small)

    async def check() -> None:
        store = await opened_store(small)
        assert await ended(store) == said == set(lease_ids(COUNT))
        await store.close()

    asyncio.run(check())


def test_what_was_given_up_is_taken_back_once_there_is_room(small: Path) -> None:
    ballast = Ballast(small, size_bytes=BALLAST_BYTES)
    assert ballast.fill() == 4
    fill(small)
    assert ballast.no_room()
    assert [ballast.drop() for _ in range(5)] == [True] * 4 + [False]
    fill(small)
    assert ballast.fill() == 0, "there is no room to take"
    (small / "filler").unlink()
    assert not ballast.no_room()
    assert ballast.fill() == 4
