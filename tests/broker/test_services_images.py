"""Versions of environments: offered, kept by who has one, refused with what replaces it, removed safely."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.image_views import ImageView, Register
from allotment_hub.broker.store import images
from allotment_hub.broker.store.schema import saved_environments
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.runtime import EnvironmentImage
from allotment_hub.site import Policies, Pool, Site
from allotment_spawner.core.errors import (
    EnvironmentUnavailable,
    InUse,
    NoSuchImage,
    UnknownEnvironment,
    UnknownVersion,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import EnvironmentView, LeaseReply, LeaseRequest
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.crashes import Crash, CrashPoint
from sqlalchemy import insert

SEED = f"sha256:{'0' * 64}"


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


def version(digit: str) -> str:
    return digit * 12


def world_at(folder: Path, **more: Any) -> BrokerWorld:
    """`minimal` is seeded as version 000000000000."""
    world = BrokerWorld(folder, **more)
    seed = EnvironmentImage(
        title="Minimal", image="allotment/minimal:1-cpu", digest=SEED, label="1-cpu", available=True
    )
    environments = {**world.runtime.environments, "minimal": seed}
    world.runtime = world.runtime.model_copy(update={"environments": environments})
    return world


async def register(broker: Broker, digit: str, environment: str = "minimal", **more: Any) -> ImageView:
    body = {
        "digest": digest(digit),
        "environment": environment,
        "reference": f"allotment/{environment}:{digit}",
        "label": f"{digit}-cuda",
        "title": environment,
    }
    return await broker.images.register(Register.model_validate(body | more))


async def ask(
    broker: Broker, user: str, *, flavor: str = "cpu", environment: str = "minimal",
    version: str | None = None, attempt: str | None = None,
) -> LeaseReply:  # fmt: skip
    body = LeaseRequest(user=user, environment=environment, flavor=flavor, version=version)
    return await broker.leases.request(
        attempt=attempt or f"{user}-{flavor}-{environment}-{version}", body=body
    )


async def view(broker: Broker, environment: str = "minimal") -> EnvironmentView:
    return next(one for one in await broker.fleet.environments("ada") if one.id == environment)


async def states(broker: Broker) -> Mapping[str, str]:
    return {one.version: one.state for one in await broker.images.listed("minimal")}


async def test_a_start_takes_what_is_offered_and_says_so_inside(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        first = await ask(broker, "ada")
        assert first.launch is not None
        assert (first.launch.image_digest, first.lease.version) == (SEED, version("0"))
        source = f"127.0.0.1:5000/minimal@{digest('9')}"
        await register(broker, "a", source=source)
        second = await ask(broker, "ben")
        assert second.launch is not None
        assert (second.launch.image_digest, second.launch.image) == (digest("a"), "allotment/minimal:a")
        assert second.launch.pull == source
        assert second.launch.env["ALLOTMENT_VERSION"] == version("a")
        again = await broker.leases.get(first.lease.id)
        assert again.launch == first.launch, "a running session keeps its image"


async def test_versions_are_kept_over_a_restart_and_named_by_who_wants(tmp_path: Path) -> None:
    world = world_at(tmp_path)
    async with world.broker() as broker:
        await register(broker, "a")
        await broker.images.pin(version("0"), on=True)
    async with world.broker() as broker:
        assert await states(broker) == {version("a"): "kept", version("0"): "offered"}
        shown = await view(broker)
        assert [(one.version, one.state) for one in shown.versions] == [
            (version("a"), "kept"), (version("0"), "offered")
        ]  # fmt: skip
        chosen = await ask(broker, "ada", version=version("a"))
        assert chosen.lease.version == version("a")
        await broker.images.pin(version("0"), on=False)
        assert (await states(broker))[version("a")] == "offered"


async def test_an_image_that_becomes_another_environments_brings_no_pin_along(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        await register(broker, "a", "pytorch")
        await register(broker, "b", "pytorch")
        await broker.images.pin(version("a"), on=True)
        await broker.images.pin(version("0"), on=True)
        moved = await register(broker, "0", "pytorch")
        assert (moved.environment, moved.pinned, moved.state) == ("pytorch", False, "kept")
        assert [one.version for one in await broker.images.listed("pytorch") if one.pinned] == [version("a")]


async def test_an_unknown_version_is_refused_with_the_one_that_is_offered(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        with pytest.raises(UnknownVersion) as said:
            await ask(broker, "ada", version=version("f"))
        assert version("f") in said.value.sentence
        assert version("0") in said.value.next_step


async def test_a_retired_version_says_what_replaces_it(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        for digit in "ab":
            await register(broker, digit)
        running = await ask(broker, "ada", version=version("a"))
        await broker.images.retire(version("a"), on=True, replaced_by=version("0"))
        with pytest.raises(EnvironmentUnavailable) as said:
            await ask(broker, "ben", version=version("a"))
        assert "is retired; 000000000000 (1-cpu) replaces it" in said.value.sentence
        assert (await broker.leases.get(running.lease.id)).launch == running.launch
        (shown,) = [one for one in (await view(broker)).versions if one.version == version("a")]
        assert (shown.state, shown.replaced_by) == ("retired", version("0"))
        await broker.images.retire(version("a"), on=False)
        assert (await ask(broker, "cleo", version=version("a"))).lease.version == version("a")


async def test_with_every_version_retired_the_environment_says_so(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        await broker.images.retire(version("0"), on=True)
        assert "Every version of Minimal is retired" in ((await view(broker)).reason or "")
        with pytest.raises(EnvironmentUnavailable):
            await ask(broker, "ada")
        await register(broker, "a")
        assert (await view(broker)).available


async def test_who_waits_keeps_place_and_version_when_a_newer_one_comes(tmp_path: Path) -> None:
    async with world_at(tmp_path, spec="sim:1xA100-80GB:whole").broker() as broker:
        await ask(broker, "ada", flavor="gpu-full")
        waiting = await ask(broker, "ben", flavor="gpu-full", attempt="first")
        await ask(broker, "cleo", flavor="gpu-full")
        assert (waiting.lease.state, waiting.lease.place) == (LeaseState.QUEUED, 1)
        await register(broker, "a")
        again = await ask(broker, "ben", flavor="gpu-full", attempt="after a restart of the hub")
        assert (again.lease.id, again.lease.place, again.lease.version) == (
            waiting.lease.id, 1, version("0")
        )  # fmt: skip
        newer = await ask(broker, "ben", flavor="gpu-full", version=version("a"))
        assert newer.lease.id != waiting.lease.id, "who asks for another version asks anew"


async def test_the_offered_the_pinned_the_used_and_the_base_are_not_removed(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        for digit in "abcd":
            await register(broker, digit)
        for name, why in ((version("d"), "offered"), (version("a"), "live session")):
            if name == version("a"):
                await ask(broker, "ada", version=name)
            with pytest.raises(InUse, match=why):
                await broker.images.begin_removal(name)
        await broker.store.write("saved", lambda tx: _save(tx, digest("b")))
        with pytest.raises(InUse, match="saved environment"):
            await broker.images.begin_removal(version("b"))
        await broker.images.pin(version("c"), on=True)
        with pytest.raises(InUse):
            await broker.images.begin_removal(version("c"))
        with pytest.raises(NoSuchImage):
            await broker.images.begin_removal(version("f"))


def _save(tx: Transaction, base: str) -> None:
    values = {"name": "mine", "title": "Mine", "owner": "ada", "base": "minimal", "base_digest": base,
              "requirements": "", "state": "approved"}  # fmt: skip
    tx.connection.execute(insert(saved_environments).values(asked_at=datetime.now(UTC), **values))


async def test_nobody_starts_with_what_is_being_removed(tmp_path: Path) -> None:
    world = world_at(tmp_path)
    async with world.broker() as broker:
        await register(broker, "a")
        with pytest.raises(InUse, match="not begun"):
            await broker.images.end_removal(version("0"), gone=True)
        await broker.images.begin_removal(version("0"))
        with pytest.raises(EnvironmentUnavailable, match="being removed"):
            await ask(broker, "ada", version=version("0"))
    async with world.broker() as broker:
        assert (await states(broker))[version("0")] == "removing", "a killed removal is not forgotten"
        with pytest.raises(EnvironmentUnavailable):
            await ask(broker, "ada", version=version("0"))
        await broker.images.end_removal(version("0"), gone=False)
        assert (await ask(broker, "ben", version=version("0"))).launch is not None


async def test_a_removed_one_is_refused_and_one_with_a_registry_comes_again(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        await register(broker, "a", source=f"127.0.0.1:5000/minimal@{digest('9')}")
        await register(broker, "b")
        for name in (version("0"), version("a")):
            await broker.images.begin_removal(name)
            await broker.images.end_removal(name, gone=True)
        assert await states(broker) == {
            version("b"): "offered", version("a"): "kept", version("0"): "removed"
        }  # fmt: skip
        with pytest.raises(EnvironmentUnavailable, match="was removed from this machine"):
            await ask(broker, "ada", version=version("0"))
        fetched = await ask(broker, "ada", version=version("a"))
        assert fetched.launch is not None
        assert fetched.launch.pull is not None
        assert version("0") not in [one.version for one in (await view(broker)).versions]


async def test_a_request_that_met_a_removal_half_way_ends_refused(tmp_path: Path) -> None:
    """The request was checked before, and entered after the removal began."""
    world = world_at(tmp_path, spec="sim:1xA100-80GB:whole")
    async with world.broker() as broker:
        await register(broker, "a")
        await ask(broker, "ada", flavor="gpu-full")
        waiting = await ask(broker, "ben", flavor="gpu-full", version=version("0"))
        # behind the service's back: it would refuse while somebody waits with it
        await broker.store.write("race", _begin_removal_of_the_seed)
        await broker.images.pin(version("a"), on=True)
        await world.rounds(broker)
        ended = await broker.leases.get(waiting.lease.id)
        assert (ended.lease.state, ended.lease.end_reason) == (LeaseState.ENDED, EndReason.REFUSED)
        assert ended.refusal is not None
        assert "removed from this machine" in ended.refusal.detail


def _begin_removal_of_the_seed(tx: Transaction) -> None:
    images.change(tx.connection, SEED, removing_at=datetime.now(UTC))


@pytest.mark.parametrize("steps", range(7))
async def test_a_broker_killed_in_between_is_as_before_or_after(tmp_path: Path, steps: int) -> None:
    world = world_at(tmp_path)
    point = CrashPoint()
    broker = world.build(point)
    await broker.start()
    point.arm(steps)
    with pytest.raises(Crash):
        for _ in range(5):
            await register(broker, "a")
            await broker.images.begin_removal(version("0"))
            await broker.images.end_removal(version("0"), gone=True)
    point.disarm()
    point.dead = False
    await broker.close()
    async with world.broker() as after:
        found = await states(after)
        assert found.get(version("a"), "offered") == "offered"
        assert found[version("0")] in ("offered", "kept", "removing")
        if found[version("0")] == "removing":
            await after.images.end_removal(version("0"), gone=False)
        assert (await ask(after, "ada")).launch is not None


# -- hardware ------------------------------------------------------------------------------------


async def test_a_driver_that_is_too_old_is_named_and_cpu_sizes_go_on(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        await register(broker, "a", requires={"variant": "cuda", "minimum_driver": "999.1"})
        driver = (await broker.fleet.view()).driver_version
        with pytest.raises(EnvironmentUnavailable) as said:
            await ask(broker, "ada", flavor="gpu-10gb")
        assert said.value.sentence == (
            f"Minimal a-cuda needs NVIDIA driver 999.1 or newer; this machine has {driver}."
        )
        shown = await view(broker)
        assert shown.minimum_driver == "999.1"
        assert shown.reasons["gpu-10gb"] == said.value.sentence
        assert "cpu" not in shown.reasons
        assert (await ask(broker, "ada", flavor="cpu")).launch is not None
        older = await ask(broker, "ben", flavor="gpu-10gb", version=version("0"))
        assert older.launch is not None, "another version may run there"


async def test_only_cards_that_can_run_it_are_taken(tmp_path: Path) -> None:
    pools = (Pool(name="old", mig=False, gpus=(0,)), Pool(name="new", mig=False, gpus=(1,)))
    site = Site(pools=pools, policies=Policies(sessions_per_person=50))
    async with world_at(tmp_path, spec="sim:1xA100-80GB:whole,1xH100:whole", site=site).broker() as broker:
        await register(broker, "a", requires={"variant": "cuda", "minimum_compute_capability": "9.0"})
        model = {gpu.uuid: gpu.model for gpu in (await broker.fleet.view()).gpus}
        first = await ask(broker, "ada", flavor="gpu-full")
        assert "H100" in model[first.lease.devices[0].gpu_uuid]
        second = await ask(broker, "ben", flavor="gpu-full")
        assert second.lease.state is LeaseState.QUEUED, "the A100 is free, and cannot run it"
        await register(broker, "b", requires={"variant": "cuda", "minimum_compute_capability": "12.0"})
        with pytest.raises(EnvironmentUnavailable, match=r"capability 12\.0 or newer; the .* here has"):
            await ask(broker, "cleo", flavor="gpu-full")


async def test_cpu_builds_on_a_gpu_are_allowed_and_said(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        await register(broker, "a", requires={"variant": "cpu", "minimum_driver": "999.1"})
        shown = await view(broker)
        assert shown.reasons == {}
        assert set(shown.notes) == {"gpu-10gb", "gpu-20gb", "gpu-40gb", "gpu-full", "gpu-2x"}
        assert (await ask(broker, "ada", flavor="gpu-10gb")).launch is not None


# -- who may register what -----------------------------------------------------------------------


async def test_an_environment_follows_the_rule_of_its_base(tmp_path: Path) -> None:
    async with world_at(tmp_path).broker() as broker:
        with pytest.raises(UnknownEnvironment):
            await register(broker, "a", "mine")
        with pytest.raises(UnknownEnvironment):
            await register(broker, "a", "mine", base="nonsense")
        await register(broker, "a", "mine", base="minimal", title="Ada's own")
        shown = await view(broker, "mine")
        assert (shown.title, shown.available) == ("Ada's own", True)
        started = await ask(broker, "ben", environment="mine")
        assert started.launch is not None
        assert started.launch.env["ALLOTMENT_ENVIRONMENT"] == "mine"


async def test_registering_again_brings_an_image_back_as_the_newest(tmp_path: Path) -> None:
    world = world_at(tmp_path)
    async with world.broker() as broker:
        await register(broker, "a")
        await register(broker, "b")
        await broker.images.retire(version("a"), on=True)
        world.clock.advance(1)
        await register(broker, "a")
        assert await states(broker) == {version("a"): "offered", version("b"): "kept", version("0"): "kept"}


async def test_local_sessions_have_no_versions(tmp_path: Path) -> None:
    async with BrokerWorld(tmp_path, engine="local", trust_users=True).broker() as broker:
        assert (await view(broker)).versions == ()
        started = await ask(broker, "ada")
        assert started.launch is not None
        assert (started.launch.image_digest, started.lease.version) == (None, None)
        with pytest.raises(UnknownVersion):
            await ask(broker, "ben", version=version("0"))
