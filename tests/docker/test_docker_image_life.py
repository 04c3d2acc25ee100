"""Images on a real engine with a registry: pulled, kept, fetched at a start, removed only when unused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from allotment.cli import build_app
from allotment_hub.host.probes import Answer
from allotment_hub.paths import Paths
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import image_tag
from allotment_testing.image_versions import add_version
from allotment_testing.installation import Installation, wait_until
from allotment_testing.registry import Registry, running_registry
from allotment_testing.workloads import Containers, prepared_installation
from docker.errors import ImageNotFound
from typer.testing import CliRunner, Result

LAYER = 12_000_000
SLOW = 800_000.0
DEADLINE_S = 10


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    """Where a grant that nobody renews ends soon."""
    made = prepared_installation(daemon)
    with made.paths.site.open("a") as site:
        site.write(f"policies: {{grant_deadline_s: {DEADLINE_S}}}\n")
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def registry(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """In the engine's network, since `installation` is there."""
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def people(installation: Installation) -> None:
    for name in ("ann", "ben"):
        assert installation.hub("POST", f"/users/{name}").status == 201


@pytest.fixture(scope="module")
def second(engine: Any, registry: Registry, installation: Installation) -> tuple[str, str]:
    """(its name in the registry, its content id): a newer minimal, pulled and offered, that ann does not
    run: her session began before."""
    start(installation, "ann")
    name = f"{registry.name}/minimal:2"
    digest = add_version(engine, image_tag("minimal"), name, version="2", extra_bytes=LAYER)
    for line in engine.push(name, stream=True, decode=True):
        assert "error" not in line, line
    engine.remove_image(name)
    assert not is_here(engine, digest)
    done = allot(installation, "images", "pull", name)
    assert done.exit_code == 0, done.output
    assert f"minimal {version(digest)} (2-cpu) is offered from now on." in done.output
    return name, digest


def allot(installation: Installation, *argv: str) -> Result:
    return CliRunner().invoke(build_app(), [*argv, "--data-dir", str(installation.data)])


def version(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def is_here(engine: Any, digest: str) -> bool:
    try:
        engine.inspect_image(digest)
    except ImageNotFound:
        return False
    return True


def images(installation: Installation) -> dict[str, dict[str, Any]]:
    return {one["version"]: one for one in installation.broker("images?environment=minimal").json()}


def live(installation: Installation, user: str) -> dict[str, Any] | None:
    found = installation.broker(f"leases?user={user}&live=true").json()
    return found[0] if found and found[0]["state"] == "active" else None


def ask(installation: Installation, user: str, **options: str) -> Answer:
    body = {"user_options": {"environment": "minimal", "flavor": "cpu", **options}}
    return installation.hub("POST", f"/users/{user}/server", body)


def start(installation: Installation, user: str, **options: str) -> None:
    reply = ask(installation, user, **options)
    assert reply.status in (201, 202), reply.body.decode()


def started(installation: Installation, user: str) -> dict[str, Any]:
    wait_until(lambda: live(installation, user), what=f"{user}'s session runs", limit_s=120)
    lease = live(installation, user)
    assert lease is not None
    return lease


def stop(installation: Installation, containers: Containers, user: str) -> None:
    assert installation.hub("DELETE", f"/users/{user}/server").status in (202, 204)
    wait_until(lambda: not containers.refs(user, ""), what=f"{user}'s container is removed", limit_s=60)
    wait_until(lambda: not installation.broker(f"leases?user={user}&live=true").json(), what="the lease ends")


def test_a_running_session_keeps_its_image_and_a_new_one_gets_the_newer(
    engine: Any, installation: Installation, containers: Containers, second: tuple[str, str]
) -> None:
    first = engine.inspect_image(image_tag("minimal"))["Id"]
    lease = started(installation, "ann")
    assert lease["version"] == version(first)
    assert containers.of(lease["id"])["Image"] == first
    start(installation, "ben")
    newer = started(installation, "ben")
    assert containers.of(newer["id"])["Image"] == second[1]
    assert f"ALLOTMENT_VERSION={version(second[1])}" in containers.of(newer["id"])["Config"]["Env"]
    stop(installation, containers, "ben")
    start(installation, "ben", version=version(first))
    assert started(installation, "ben")["version"] == version(first), "offered, not forced"
    stop(installation, containers, "ben")
    assert images(installation)[version(first)]["state"] == "kept"


def test_neither_pruning_nor_a_restart_loses_what_is_known(
    engine: Any, installation: Installation, second: tuple[str, str]
) -> None:
    first = engine.inspect_image(image_tag("minimal"))["Id"]
    engine.remove_image(image_tag("minimal"), noprune=True)
    engine.prune_images(filters={"dangling": True})
    assert is_here(engine, first)
    engine.tag(first, *image_tag("minimal").rsplit(":", 1))
    installation.restart("broker")
    assert [one["state"] for one in images(installation).values()] == ["offered", "kept"]


def test_a_missing_image_comes_at_the_start_with_bytes_for_whoever_waits(
    engine: Any, installation: Installation, registry: Registry, containers: Containers,
    second: tuple[str, str],
) -> None:  # fmt: skip
    """Slower than the grant's deadline, which is renewed; one download for two."""
    stop(installation, containers, "ann")
    name, digest = second
    forget(engine, digest)
    registry.bytes_per_s, registry.sent_bytes = SLOW, 0
    people = ("ann", "ben")
    told: dict[str, list[dict[str, Any]]] = {user: [] for user in people}
    # the hub answers a start only when it is over, or after ten seconds
    work = [threading.Thread(target=start, args=(installation, user), kwargs={"version": version(digest)})
            for user in people]  # fmt: skip
    work += [threading.Thread(target=watch, args=(installation, user, told[user])) for user in people]
    for thread in work:
        thread.start()
    leases = [started(installation, user) for user in people]
    for lease in leases:
        granted, active = (datetime.fromisoformat(lease[key]) for key in ("granted_at", "active_at"))
        assert (active - granted).total_seconds() > DEADLINE_S
    for thread in work:
        thread.join(timeout=30)
    registry.bytes_per_s = None
    assert all(containers.of(lease["id"])["Image"] == digest for lease in leases)
    assert registry.sent_bytes < 1.5 * LAYER, "one download"
    for user in people:
        pulling = [
            step["allotment"]["work"] for step in told[user] if step["allotment"]["stage"] == "pulling"
        ]
        got = [work["got_bytes"] for work in pulling if work["got_bytes"]]
        assert got == sorted(got)
        assert len(set(got)) >= 3, pulling
        assert any(work["total_bytes"] and work["total_bytes"] >= LAYER for work in pulling), pulling
        assert any("Fetching the image: " in work["sentence"] for work in pulling)
    kept = f"allotment-{installation.runtime.installation}/minimal:{version(digest)}"
    assert engine.inspect_image(kept)["Id"] == digest
    for user in people:
        stop(installation, containers, user)
    assert name.startswith("127.0.0.1:")


def last(installation: Installation, user: str) -> dict[str, Any]:
    """Their newest lease, live or not."""
    (found,) = installation.broker(f"leases?user={user}&limit=1").json()
    return dict(found)


def pending(installation: Installation, user: str) -> bool:
    servers = installation.hub("GET", f"/users/{user}").json()["servers"]
    return bool((servers.get("") or {}).get("pending"))


def forget(engine: Any, digest: str) -> None:
    """As somebody's `docker image rm -f` would."""
    engine.remove_image(digest, force=True)
    assert not is_here(engine, digest)


def watch(installation: Installation, user: str, told: list[dict[str, Any]]) -> None:
    """The hub's own progress stream, as the waiting page reads it."""
    wait_until(lambda: pending(installation, user), what=f"{user}'s start is under way")
    url = f"{installation.connection.hub_url}/hub/api/users/{user}/server/progress"
    headers = {"Authorization": f"token {installation.connection.admin_token}"}
    with httpx.stream("GET", url, headers=headers, timeout=120, trust_env=False) as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                step = json.loads(line.removeprefix("data:"))
                if "allotment" in step:
                    told.append(step)
                if step.get("ready") or step.get("failed"):
                    return


def test_a_registry_that_is_away_refuses_the_start_and_leaves_nothing(
    engine: Any, installation: Installation, registry: Registry, containers: Containers,
    second: tuple[str, str],
) -> None:  # fmt: skip
    forget(engine, second[1])
    registry.stop()
    refused = ask(installation, "ann")
    assert refused.status == 422
    assert f"is not on this machine, and {registry.name} did not give it" in refused.json()["message"]
    wait_until(lambda: last(installation, "ann")["end_reason"] == "start_failed", what="its lease ends")
    assert containers.refs("ann", "") == []
    registry.start()
    start(installation, "ann")
    assert started(installation, "ann")["version"] == version(second[1])


def test_gc_takes_what_nobody_uses_and_nothing_else(
    engine: Any, installation: Installation, containers: Containers, second: tuple[str, str]
) -> None:
    """ann runs the second version; the first is retired, and only in ben's hands until he stops."""
    first = engine.inspect_image(image_tag("minimal"))["Id"]
    start(installation, "ben", version=version(first))
    started(installation, "ben")
    done = allot(installation, "images", "retire", version(first), "--replaced-by", version(second[1]))
    assert "1 live session keeps it" in done.output
    used = allot(installation, "images", "gc", "--yes")
    assert used.exit_code == 0, used.output
    assert f"stays   minimal {version(first)} (" in used.output
    assert is_here(engine, first)
    stop(installation, containers, "ben")
    refused = ask(installation, "ben", version=version(first))
    assert refused.status == 422
    assert f"is retired; {version(second[1])} (2-cpu) replaces it" in refused.json()["message"]
    assert containers.refs("ben", "") == []
    assert last(installation, "ben")["end_reason"] == "refused"
    dry = allot(installation, "images", "gc", "--dry-run")
    assert f"goes    minimal {version(first)}" in dry.output
    assert is_here(engine, first)
    unsure = CliRunner().invoke(
        build_app(), ["images", "gc", "--data-dir", str(installation.data)], input="n\n"
    )
    assert (unsure.exit_code, is_here(engine, first)) == (2, True)
    gone = allot(installation, "images", "gc", "--yes")
    assert gone.exit_code == 0, gone.output
    assert "1 image removed." in gone.output
    assert not is_here(engine, first)
    assert images(installation)[version(first)]["state"] == "removed"
    assert started(installation, "ann")["version"] == version(second[1])
    stop(installation, containers, "ann")


def test_warm_leaves_nothing(engine: Any, installation: Installation, second: tuple[str, str]) -> None:
    left = engine.create_container(
        second[1], command=["true"], name=f"allotment-warm-{installation.runtime.installation}"
    )
    done = allot(installation, "images", "warm", "minimal")
    assert done.exit_code == 0, done.output
    assert done.output.strip() == f"minimal {version(second[1])} is warm", "and everything was imported"
    assert left["Id"] not in [one["Id"] for one in engine.containers(all=True)]
    assert engine.containers(all=True) == []


def test_lists_and_wrong_names(installation: Installation, second: tuple[str, str]) -> None:
    listed = allot(installation, "images", "list")
    assert version(second[1]) in listed.output
    assert "offered" in listed.output
    assert "MB" in listed.output or "GB" in listed.output
    found = json.loads(allot(installation, "images", "list", "--all", "--json").stdout)["images"]
    ours = [one["state"] for one in found if one["environment"] == "minimal"]
    assert ours == ["offered", "removed"]
    for argv in (
        ("pin", "nonsense"),
        ("pin", "f" * 12),
        ("retire", version(second[1]), "--replaced-by", "x"),
    ):
        assert allot(installation, "images", *argv).exit_code == 1
    assert allot(installation, "images", "pull", "127.0.0.1:1/minimal:1").exit_code == 1
    assert allot(installation, "images", "warm", "nonsense").exit_code == 2
    assert Paths(installation.data).runtime.exists()
