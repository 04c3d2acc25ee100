"""Who may start what, and which devices belong to which pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.site import Layout, Policies, Pool, Site
from allotment_spawner.core.errors import (
    BrokerUnavailable,
    EnvironmentNotAllowed,
    EnvironmentUnavailable,
    FlavorNotAllowed,
    FlavorUnavailable,
    LocalEngineClosed,
    NoSuchLease,
    Refusal,
    TooManySessions,
    UnknownEnvironment,
    UnknownFlavor,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import FlavorView, LeaseReply, LeaseRequest
from allotment_testing.broker_world import BrokerWorld, small_catalog
from allotment_testing.protocol_spawner import ProtocolSpawner

ROOMY = Policies(sessions_per_person=50)


async def ask(
    broker: Broker, user: str, flavor: str = "cpu", environment: str = "minimal", **more: Any
) -> LeaseReply:
    body = LeaseRequest(user=user, environment=environment, flavor=flavor, server=more.pop("server", ""))
    return await broker.leases.request(
        attempt=more.pop("attempt", f"{user}-{flavor}-{environment}"), body=body
    )


async def flavor_of(broker: Broker, flavor: str, user: str = "ada") -> FlavorView:
    return next(one for one in await broker.fleet.flavors(user) if one.id == flavor)


@pytest.mark.parametrize(
    ("flavor", "environment", "refusal"),
    [
        ("nonsense", "minimal", UnknownFlavor),
        ("cpu", "nonsense", UnknownEnvironment),
        ("cpu", "pytorch", EnvironmentUnavailable),
    ],
)
async def test_what_is_not_there(
    tmp_path: Path, flavor: str, environment: str, refusal: type[Refusal]
) -> None:
    async with BrokerWorld(tmp_path).broker() as broker:
        with pytest.raises(refusal) as said:
            await ask(broker, "ada", flavor, environment)
        assert said.value.sentence
        assert said.value.next_step


async def test_a_refusal_is_kept_repeated_and_explained(tmp_path: Path) -> None:
    async with BrokerWorld(tmp_path).broker() as broker:
        for _ in range(2):
            with pytest.raises(EnvironmentUnavailable, match="not built"):
                await ask(broker, "ada", "cpu", "pytorch")
        found = await broker.leases.find(user="ada", server="", live=False, limit=5)
        assert [(lease.state, lease.end_reason) for lease in found] == [(LeaseState.ENDED, EndReason.REFUSED)]
        explanation = await broker.explainer.explain(found[0].id, for_operator=False)
        assert "environment_unavailable" in [rule.rule for rule in explanation.rules]
        assert explanation.help


async def test_groups_come_from_the_hub(tmp_path: Path) -> None:
    catalog = small_catalog()
    flavors = dict(catalog.flavors)
    flavors["cpu"] = flavors["cpu"].model_copy(update={"groups": ("staff",)})
    environments = dict(catalog.environments)
    environments["minimal"] = environments["minimal"].model_copy(update={"groups": ("staff", "course")})
    closed = catalog.model_copy(update={"flavors": flavors, "environments": environments})
    world = BrokerWorld(tmp_path, catalog=closed, site=Site(policies=ROOMY))
    world.hub.groups = {"ada": frozenset({"staff"}), "bob": frozenset({"course"})}
    async with world.broker() as broker:
        assert (await ask(broker, "ada")).lease.state is LeaseState.GRANTED
        with pytest.raises(FlavorNotAllowed):
            await ask(broker, "bob")
        with pytest.raises(EnvironmentNotAllowed):
            await ask(broker, "eve")
        assert not (await flavor_of(broker, "cpu", "bob")).available
        world.hub.away = True
        with pytest.raises(BrokerUnavailable):
            await ask(broker, "ada", server="second", attempt="x")


async def test_a_pool_of_a_group_serves_only_that_group(tmp_path: Path) -> None:
    pools = (Pool(name="mig", mig=True, groups=("staff",)), Pool(name="whole", mig=False))
    world = BrokerWorld(tmp_path, site=Site(pools=pools, policies=ROOMY))
    world.hub.groups = {"ada": frozenset({"staff"})}
    async with world.broker() as broker:
        assert (await ask(broker, "ada", "gpu-10gb")).lease.state is LeaseState.GRANTED
        with pytest.raises(FlavorUnavailable):
            await ask(broker, "bob", "gpu-10gb")


async def test_live_sessions_per_person(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, site=Site(policies=Policies(sessions_per_person=2)))
    async with world.broker() as broker:
        for number in range(2):
            await ask(broker, "ada", server=f"s{number}", attempt=f"a{number}")
        with pytest.raises(TooManySessions):
            await ask(broker, "ada", server="s2", attempt="a2")
        await ask(broker, "ada", "gpu-10gb", server="s1", attempt="a3")
        found = await broker.leases.find(user="ada", server="s1", live=True, limit=9)
        assert [lease.flavor for lease in found] == ["gpu-10gb"], "replacing one is not one more"


@pytest.mark.parametrize("trust", [False, True])
async def test_the_local_engine_is_for_two_accounts(tmp_path: Path, trust: bool) -> None:
    world = BrokerWorld(tmp_path, engine="local", trust_users=trust)
    async with world.broker() as broker:
        reply = await ask(broker, "demo", "gpu-10gb")
        assert reply.launch is not None
        assert reply.launch.image is None
        assert reply.launch.env["CUDA_VISIBLE_DEVICES"] == reply.launch.devices[0]
        if trust:
            await ask(broker, "ada")
            return
        with pytest.raises(LocalEngineClosed):
            await ask(broker, "ada")
        offered = await broker.fleet.flavors("ada")
        assert all("Ask the operator" in (flavor.reason or "") for flavor in offered)


async def test_the_hardware_has_no_such_device(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec="sim:1xA30:mig")
    async with world.broker() as broker:
        with pytest.raises(FlavorUnavailable):
            await ask(broker, "ada", "gpu-40gb")
        flavor = await flavor_of(broker, "gpu-40gb")
        assert (flavor.available, flavor.total) == (False, 0)
        assert flavor.reason
        assert (await ask(broker, "ada", "gpu-20gb")).lease.devices[0].profile == "4g.24gb"


async def test_flavors_count_what_is_free(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    async with world.broker() as broker:
        await ask(broker, "ada", "gpu-40gb")
        counts = {one.id: (one.free, one.total) for one in await broker.fleet.flavors("bob")}
        assert counts["gpu-40gb"] == (1, 2)
        assert counts["gpu-full"] == (1, 1)
        assert counts["cpu"] == (None, None)
        gpu = (await flavor_of(broker, "gpu-10gb")).resources["gpu"]
        assert isinstance(gpu, dict)
        assert (gpu["kind"], gpu["profile"], gpu["count"]) == ("slice", "1g.10gb", 1)


@pytest.mark.parametrize("foreign", ["leave", "adopt"])
async def test_foreign_slices_are_left_or_adopted(tmp_path: Path, foreign: str) -> None:
    pools = (Pool.model_validate({"name": "mig", "mig": True, "foreign": foreign}),)
    world = BrokerWorld(tmp_path, site=Site(pools=pools, policies=ROOMY))
    gpu = (await world.agent.inventory()).gpus[0]
    theirs = await world.agent.ensure_slice(gpu.uuid, "3g.40gb", 4)
    async with world.broker() as broker:
        first = await ask(broker, "ada", "gpu-40gb")
        assert (first.lease.devices[0].uuid == theirs.uuid) == (foreign == "adopt")
        second = await ask(broker, "bob", "gpu-40gb")
        state = LeaseState.GRANTED if foreign == "adopt" else LeaseState.QUEUED
        assert second.lease.state is state
        pieces = (await broker.fleet.view()).gpus[0].slices
        assert ("foreign" in [piece.state for piece in pieces]) == (foreign == "leave")
        still = (await world.agent.inventory()).gpus[0].slices
        assert theirs.uuid in [piece.uuid for piece in still]


async def test_a_static_layout_is_made_kept_and_made_again_after_a_reboot(tmp_path: Path) -> None:
    layout = {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    pools = (Pool(name="mig", mig=True, layout=Layout(devices=layout)),)
    world = BrokerWorld(tmp_path, site=Site(pools=pools, policies=ROOMY))
    async with world.broker() as broker:
        await world.rounds(broker, 2)
        spawner = ProtocolSpawner(world, "ada", flavor="gpu-10gb")
        await spawner.run(broker)
        for reboot in (False, True):
            if reboot:
                world.engine.restart_without_live_restore()
                world.agent.control.reboot()
            await world.rounds(broker, 6)
            pieces = (await world.agent.inventory()).gpus[0].slices
            names = sorted(piece.profile for piece in pieces)
            assert names == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
        lease = (await broker.leases.get(spawner.lease)).lease
        assert lease.end_reason is EndReason.NODE_RESTARTED
        assert (await ask(broker, "bob", "gpu-10gb")).lease.state is LeaseState.GRANTED
        assert (await flavor_of(broker, "gpu-10gb")).free == 1


async def test_a_layout_that_this_card_cannot_have_is_said(tmp_path: Path) -> None:
    pools = (Pool(name="mig", mig=True, layout=Layout(devices={"1g.5gb": 7})),)
    world = BrokerWorld(tmp_path, site=Site(pools=pools))
    async with world.broker() as broker:
        problem = (await broker.fleet.view()).gpus[0].problem
        assert problem is not None
        assert "1g.5gb" in problem


async def test_mig_mode_must_be_the_pools_and_is_never_switched(tmp_path: Path) -> None:
    pools = (Pool(name="odd", mig=True, gpus=(1,)), Pool(name="mig", mig=True))
    world = BrokerWorld(tmp_path, site=Site(pools=pools))
    async with world.broker() as broker:
        fleet = await broker.fleet.view()
        assert fleet.gpus[0].problem is None
        assert fleet.gpus[1].pool == "odd"
        assert "nvidia-smi -i 1 -mig 1" in (fleet.gpus[1].problem or "")
        with pytest.raises(FlavorUnavailable):
            await ask(broker, "ada", "gpu-full")


async def test_an_unhealthy_card_is_not_offered(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec="sim:2xA100-80GB:mig")
    async with world.broker() as broker:
        world.agent.control.fault("0", 79)
        await world.rounds(broker)
        flavor = await flavor_of(broker, "gpu-10gb")
        assert (flavor.free, flavor.total) == (7, 7)
        gpu = (await broker.fleet.view()).gpus[0]
        assert gpu.problem is not None
        reply = await ask(broker, "ada", "gpu-10gb")
        assert reply.lease.devices[0].gpu_uuid != gpu.uuid


async def test_explain_names_nobody_to_people_and_everybody_to_operators(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    async with world.broker() as broker:
        for number in range(7):
            await ask(broker, f"p{number}", "gpu-10gb")
        lease = (await ask(broker, "ada", "gpu-10gb")).lease
        mine = await broker.explainer.explain(lease.id, for_operator=False)
        assert "all_in_use" in [rule.rule for rule in mine.rules]
        assert {hold.holder for hold in mine.devices} == {"another person"}
        assert {hold.lease for hold in mine.devices} == {None}
        assert len(mine.devices) == 7
        assert any("CPU only" in line for line in mine.help)
        theirs = await broker.explainer.explain(lease.id, for_operator=True)
        assert {hold.holder for hold in theirs.devices} == {f"p{number}" for number in range(7)}
        with pytest.raises(NoSuchLease):
            await broker.explainer.explain("0000", for_operator=True)


async def test_environments_say_why_not(tmp_path: Path) -> None:
    async with BrokerWorld(tmp_path).broker() as broker:
        views = {one.id: one for one in await broker.fleet.environments("ada")}
        assert views["minimal"].available
        assert not views["pytorch"].available
        assert "not built" in (views["pytorch"].reason or "")
