"""Starts, waits, cancels and refusals through JupyterHub's own API, over a broker that fails on demand."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from allotment_spawner.core.errors import FlavorUnavailable, GrantExpired, TooManySessions
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseRequest
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.hub_calls import CPU, TEN, ask, gone, processes_of, ready, stop
from allotment_testing.hub_process import HubProcess, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HUB_CONFIG = "c.GpuSpawnerMixin.wait_limit = 20"


def fill(broker: FakeBroker, *names: str) -> None:
    """Leases of people who are not in the hub."""
    for name in names:
        broker.enter(f"attempt-{name}", LeaseRequest.model_validate({"user": name, **TEN}))


def end_all(broker: FakeBroker) -> None:
    for lease in broker.live():
        broker.end(lease, EndReason.STOPPED)


async def test_starts_on_the_leased_device_and_leaves_nothing(hub: HubProcess, broker: FakeBroker) -> None:
    answer = await ask(hub, "ann", TEN)
    assert answer.status_code in (201, 202), answer.text
    model = await ready(hub, "ann")
    lease = broker.of("ann")
    assert lease.state is LeaseState.ACTIVE
    assert lease.confirmed
    assert model["user_options"] == TEN
    pid = model["state"]["pid"]
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    env = dict(one.split(b"=", 1) for one in environ.split(b"\0") if b"=" in one)
    assert env[b"CUDA_VISIBLE_DEVICES"].decode() == lease.device
    assert env[b"ALLOTMENT_DEVICES"].decode() == lease.device
    assert env[b"ALLOTMENT_URL"].endswith(b"/services/allotment/")
    assert os.getsid(pid) == pid
    assert (await stop(hub, "ann")).status_code in (202, 204)
    await gone(hub, "ann")
    assert lease.reason is EndReason.STOPPED
    assert processes_of(lease.id) == []


@pytest.mark.parametrize(
    "options",
    [
        {"flavor": ["gpu-10gb"]},
        {"flavor": 7},
        {"flavor": {"id": "cpu"}},
        {"image": "evil:latest"},
        {"environment": "minimal", "flavor": "cpu", "cmd": ["sh"]},
        {"flavor": "x" * 100_000},
        {"flavor": "gpu-10gb\u0000"},
        {"flavor": "../cpu"},
        {"flavor": "ｃｐｕ"},
        {"environment": "<script>alert(1)</script>"},
    ],
)
async def test_forged_options_are_refused_and_not_kept(
    hub: HubProcess, broker: FakeBroker, options: dict[str, Any]
) -> None:
    before = len(broker.leases)
    answer = await ask(hub, "forger", options)
    assert answer.status_code == 422, answer.text
    message = answer.json()["message"]
    assert len(message) < 400
    assert "<script>" not in message or "'" in message
    assert len(broker.leases) == before
    model = await hub.server("forger")
    assert not model or not model["user_options"]


async def test_a_refused_choice_is_not_repeated_by_an_empty_request(
    hub: HubProcess, broker: FakeBroker
) -> None:
    broker.refusals["POST leases"] = [FlavorUnavailable("This machine has no such GPU.", "Choose another.")]
    answer = await ask(hub, "vera", TEN)
    assert (answer.status_code, "no such GPU" in answer.json()["message"]) == (422, True)
    assert (await ask(hub, "vera")).status_code in (201, 202)
    await ready(hub, "vera")
    request = broker.of("vera").request
    assert (request.environment, request.flavor) == ("minimal", "cpu"), "the cheapest without a GPU"
    await stop(hub, "vera")
    await gone(hub, "vera")


async def test_a_refusal_for_another_reason_keeps_a_server_made_beforehand(
    hub: HubProcess, broker: FakeBroker
) -> None:
    await hub.add_user("pre")
    async with hub.client() as api:
        made = await api.put("/users/pre/servers/big", json={"user_options": TEN})
        assert made.status_code == 201
    broker.refusals["POST leases"] = [TooManySessions("You have three sessions already.", "Stop one.")]
    answer = await ask(hub, "pre", server="big")
    assert answer.status_code == 422
    model = await hub.server("pre", "big")
    assert model is not None
    assert model["user_options"] == TEN


async def test_waits_through_a_broker_restart_and_gets_the_first_that_frees(
    hub: HubProcess, broker: FakeBroker
) -> None:
    end_all(broker)
    fill(broker, "f1", "f2", "f3")
    assert (await ask(hub, "wanda", TEN)).status_code == 202
    lease = await until(lambda: broker.of("wanda"), what="the lease is queued")
    assert broker.view(lease).place == 2
    await broker.down()
    await broker.up()
    broker.end(broker.of("f3"), EndReason.CANCELLED)
    assert broker.view(lease).place == 1
    broker.end(broker.of("f1"), EndReason.STOPPED)
    await ready(hub, "wanda")
    assert broker.of("wanda") is lease
    assert lease.state is LeaseState.ACTIVE
    await stop(hub, "wanda")
    await gone(hub, "wanda")


async def test_progress_tells_the_place(hub: HubProcess, broker: FakeBroker) -> None:
    end_all(broker)
    fill(broker, "g1", "g2", "g3")
    await ask(hub, "paul", TEN)
    async with hub.client() as api, api.stream("GET", "/users/paul/server/progress") as stream:
        async for line in stream.aiter_lines():
            if '"place": 2' in line:
                broker.end(broker.of("g3"), EndReason.CANCELLED)
            if '"place": 1' in line:
                break
    assert (await stop(hub, "paul")).status_code == 204
    await until(lambda: broker.of("paul").reason, what="the lease is cancelled")


async def test_a_cancelled_wait_leaves_nothing(hub: HubProcess, broker: FakeBroker) -> None:
    end_all(broker)
    fill(broker, "h1", "h2")
    await ask(hub, "carl", TEN, server="second")
    await until(lambda: broker.of("carl", "second"), what="the lease is queued")
    assert (await stop(hub, "carl", "second")).status_code == 204
    lease = broker.of("carl", "second")
    await until(lambda: lease.reason, what="the lease ends")
    assert lease.reason is EndReason.CANCELLED
    model = await hub.server("carl", "second")
    assert model is not None
    assert (model["ready"], model["pending"]) == (False, None)


async def test_the_wait_has_its_own_limit(hub: HubProcess, broker: FakeBroker) -> None:
    end_all(broker)
    fill(broker, "i1", "i2")
    await ask(hub, "lisa", TEN)
    lease = await until(lambda: broker.of("lisa"), what="the lease is queued")
    await until(lambda: lease.reason, what="the wait ends", limit_s=40)
    assert lease.reason is EndReason.WAIT_LIMIT
    async with hub.client() as api:
        answer = await api.get("/users/lisa/server/progress")
    assert "longest wait that this site allows" in answer.text
    await gone(hub, "lisa")


async def test_a_refused_confirm_runs_nothing(hub: HubProcess, broker: FakeBroker) -> None:
    end_all(broker)
    broker.refusals["PUT confirm"] = [GrantExpired("The grant expired.", "Start again.")]
    answer = await ask(hub, "late", TEN)
    assert answer.status_code in (202, 409)
    lease = broker.of("late")
    await until(lambda: lease.reason, what="the lease ends")
    assert lease.reason is EndReason.START_FAILED
    assert processes_of(lease.id) == []
    log = hub.folder / "logs" / "late.log"
    assert log.read_bytes() == b"", "the gate never opened"


async def test_a_wrong_device_stops_the_server(hub: HubProcess, broker: FakeBroker) -> None:
    end_all(broker)
    broker.lie_about_devices = True
    try:
        await ask(hub, "mona", TEN)
        lease = broker.of("mona")
        await until(lambda: lease.reason, what="the lease ends")
    finally:
        broker.lie_about_devices = False
    assert lease.reason is EndReason.DEVICE_MISMATCH
    await until(lambda: not processes_of(lease.id), what="nothing runs")


async def test_a_server_that_ends_by_itself_gives_its_lease_back(hub: HubProcess, broker: FakeBroker) -> None:
    end_all(broker)
    await ask(hub, "dora", CPU)
    model = await ready(hub, "dora")
    os.kill(model["state"]["pid"], signal.SIGKILL)
    lease = broker.of("dora")
    await until(lambda: lease.reason, what="the lease ends")
    assert lease.reason is EndReason.WORKLOAD_EXITED
    await gone(hub, "dora")
