"""Two installations on one engine ignore each other, to the end of one of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from allotment_spawner.engines.docker import DockerEngine
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.installation import Installation, wait_until
from allotment_testing.recovery_checks import Session
from allotment_testing.workloads import Containers, docker_installation, prepared_installation
from docker.errors import NotFound


@pytest.fixture(scope="module")
def other(daemon: DockerDaemon, installation: Installation) -> Iterator[Installation]:
    with docker_installation(daemon) as made:
        yield made


@pytest.fixture(scope="module")
def sessions(engine: Any, installation: Installation, other: Installation) -> tuple[Session, Session]:
    """The same person's name, the same kind of slice, in both."""
    found = []
    for at in (installation, other):
        session = Session(installation=at, workloads=Containers(client=engine, installation=at))
        session.start("gpu-10gb")
        found.append(session)
    return found[0], found[1]


@pytest.fixture(scope="module")
def stranger(engine: Any) -> Iterator[str]:
    """A container, a volume and a network that nobody of us made."""
    engine.create_network("stranger")
    mounts = [{"Type": "volume", "Source": "stranger", "Target": "/data"}]
    host_config = engine.create_host_config(network_mode="stranger", mounts=mounts)
    argv = ["sleep", "3600"]
    made = engine.create_container(BASE_IMAGE, command=argv, name="stranger", host_config=host_config)
    engine.start(made["Id"])
    yield made["Id"]
    engine.remove_container(made["Id"], force=True)


def names(engine: Any, installation: Installation) -> tuple[set[str], set[str], set[str]]:
    """Containers, volumes and networks that bear this installation's id."""
    label = f"allotment.installation={installation.runtime.installation}"
    listed = engine.containers(all=True, filters={"label": [label]})
    volumes = engine.volumes(filters={"label": [label]})["Volumes"] or []
    networks = engine.networks(filters={"label": [label]})
    return (
        {one["Names"][0] for one in listed},
        {one["Name"] for one in volumes},
        {one["Name"] for one in networks},
    )


def has_rules(installation: str) -> bool:
    listed = subprocess.run(["iptables", "-S"], check=True, capture_output=True, text=True).stdout
    return f"ALLOTMENT-{installation}-IN" in listed


def test_the_first_ones_network_is_refused_to_the_second(
    daemon: DockerDaemon, installation: Installation
) -> None:
    theirs = f"allotment-{installation.runtime.installation}"
    late = prepared_installation(daemon, network=theirs)
    try:
        refused = late.up(check=False)
        assert refused.returncode == 2
        assert "not made by this installation" in refused.stdout + refused.stderr
    finally:
        late.close()


async def test_each_sees_its_own_only(
    daemon: DockerDaemon,
    installation: Installation,
    other: Installation,
    sessions: tuple[Session, Session],
    stranger: str,
) -> None:
    for at, session in zip((installation, other), sessions, strict=True):
        lease = session.newest()
        assert lease is not None
        watched = DockerEngine(installation=at.runtime.installation, base_url=daemon.base_url)
        assert [one.lease for one in await watched.observe()] == [lease["id"]]
        watched.close()
        assert at.broker("fleet").json()["strays"] == []
        assert len(at.broker("leases").json()) == 1


def test_a_container_with_a_forged_label_is_reported_and_left_alone(
    engine: Any, installation: Installation, sessions: tuple[Session, Session]
) -> None:
    """By somebody who may use the engine: our label, a name of ours, and a lease that never was."""
    ours = installation.runtime.installation
    name = f"allotment-{ours}-no-such-lease"
    labels = {"allotment.installation": ours, "allotment.user": "demo", "allotment.server": ""}
    made = engine.create_container(BASE_IMAGE, command=["sleep", "3600"], name=name, labels=labels)
    engine.start(made["Id"])

    def strays() -> list[str]:
        return [one["engine_ref"] for one in installation.broker("fleet").json()["strays"]]

    wait_until(lambda: strays() == [name], what="it is reported")
    assert engine.inspect_container(made["Id"])["State"]["Running"]
    lease = sessions[0].newest()
    assert lease is not None
    assert lease["state"] == "active"
    engine.remove_container(made["Id"], force=True)
    wait_until(lambda: strays() == [], what="the report ends")


def test_the_end_of_one_leaves_the_other_untouched(
    engine: Any,
    installation: Installation,
    other: Installation,
    sessions: tuple[Session, Session],
    stranger: str,
) -> None:
    gone, kept = installation.runtime.installation, other.runtime.installation
    lease = sessions[1].newest()
    assert lease is not None
    containers = Containers(client=engine, installation=other)
    containers.inside(lease["id"], "sh", "-c", "echo kept > ~/note.txt")
    before, container = names(engine, other), containers.of(lease["id"])
    assert [len(kind) for kind in names(engine, installation)] == [1, 1, 1]
    assert [len(kind) for kind in before] == [1, 1, 1]

    label = f"allotment.installation={gone}"
    installation.down("--purge")

    assert engine.containers(all=True, filters={"label": [label]}) == []
    assert not [one for one in engine.volumes()["Volumes"] if gone in one["Name"]]
    with pytest.raises(NotFound):
        engine.inspect_network(f"allotment-{gone}")
    assert not has_rules(gone)
    assert names(engine, other) == before
    after = containers.of(lease["id"])
    assert (after["Id"], after["State"]["StartedAt"]) == (container["Id"], container["State"]["StartedAt"])
    assert containers.inside(lease["id"], "sh", "-c", "cat ~/note.txt") == "kept\n"
    assert has_rules(kept)
    assert sessions[1].reachable
    still = sessions[1].newest()
    assert still is not None
    assert still | {"cost": None} == lease | {"cost": None}
    assert engine.inspect_container(stranger)["State"]["Running"]
    assert engine.inspect_volume("stranger")
    assert engine.inspect_network("stranger")
