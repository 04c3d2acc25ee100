"""An installation from before there were books: what runs is billed whole, what ended is left alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.store.connect import connect, sqlite_path, sqlite_url
from allotment_hub.broker.store.migrate import migrate
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.ledger_world import at, entries_in, priced_world
from sqlalchemy import text

D = Decimal
LEASE = """
INSERT INTO leases (id, kind, queue_class, "user", server, environment, flavor, state, attempt, engine_ref,
 price_per_hour, rates, created_at, granted_at, confirmed_at, active_at, stopped_at, ended_at, end_reason,
 boot_id)
VALUES (:id, 'session', 'interactive', :user, '', 'minimal', :flavor, :state, :id, :ref, :price, :rates, :at,
 :at, :at, :at, :over, :over, :reason, :boot)
"""
DEVICE = "INSERT INTO devices (lease, ordinal, gpu_uuid, node, uuid) VALUES ('runs', 0, :gpu, 'n', :gpu)"
RATES = '[{"from_s": "0", "per_hour": "3.20", "currency": "credits"}]'


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return priced_world(tmp_path, zone="Europe/Berlin")


async def old_installation(world: BrokerWorld) -> str:
    """A session on a whole GPU since March 1st, and one that ended then; the running one's container."""
    inventory = await world.agent.inventory()
    whole = next(gpu.uuid for gpu in inventory.gpus if not gpu.mig)
    ref = world.engine.create("runs", user="ada", server="", devices=[whole])
    world.engine.start(ref)
    world.hub.servers["ada", ""] = "ready"
    url = sqlite_url(world.paths.broker_database)
    world.paths.broker_database.parent.mkdir(parents=True, exist_ok=True)
    engine = connect(url)
    migrate(engine, sqlite_file=sqlite_path(url), target="0004")
    lease = {"flavor": "gpu-full", "rates": RATES, "price": "3.20", "at": "2026-03-01 09:00:00.000000"}
    runs = {"id": "runs", "user": "ada", "state": "active", "ref": ref, "over": None, "reason": None}
    over = {"id": "over", "user": "ben", "state": "ended", "ref": None, "over": "2026-03-01 10:00:00.000000"}
    with engine.begin() as connection:
        connection.execute(text(LEASE), lease | runs | {"boot": inventory.boot_id})
        connection.execute(text(LEASE), lease | over | {"boot": inventory.boot_id, "reason": "stopped"})
        connection.execute(
            text(DEVICE),
            {"gpu": whole},
        )
        for slot in (*map(str, range(12)), "me"):
            values = {"gpu": whole, "slot": slot}
            connection.execute(text("INSERT INTO slots VALUES (:gpu, :slot, 'runs')"), values)
    engine.dispose()
    return ref


async def test_what_ran_across_the_upgrade_is_billed_whole(world: BrokerWorld) -> None:
    ref = await old_installation(world)
    world.clock.now = at("2026-03-02 09:00")
    async with world.broker() as broker:
        assert (await broker.leases.get("runs")).lease.cost == 24 * D("3.20")
        assert (await broker.leases.get("over")).lease.cost is None, "there were no books"
        [first] = await entries_in(broker)
        assert (first.from_at, first.to_at) == (at("2026-03-01 09:00"), at("2026-03-02 00:00"))
        world.engine.remove(ref)
        world.hub.servers.clear()
        await world.rounds(broker, 30)
        found = await entries_in(broker)
    assert {entry.lease for entry in found} == {"runs"}
    seconds = sum(entry.seconds for entry in found)
    assert D(24 * 3600) <= seconds < D(24 * 3600 + 30)
    assert sum(entry.gpu_seconds for entry in found) == seconds
    assert sum(entry.amount for entry in found) == round(D("3.20") * seconds / 3600, 6)
