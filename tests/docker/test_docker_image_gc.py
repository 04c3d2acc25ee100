"""Building, and removing on a real engine: killed between steps, met by a new user, shared with others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from allotment.cli import build_app
from allotment.client import Client
from allotment.settings import find_settings
from allotment_hub.images.collect import collect
from allotment_hub.images.machine import MachineImages
from allotment_hub.images.plan import Known, Verdict, plan
from allotment_hub.images.registering import registration
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.image_versions import small_image
from allotment_testing.installation import Installation
from docker.errors import ImageNotFound
from typer.testing import CliRunner

STEPS = ("begin", "begun", "taken", "told")


class Killed(BaseException):
    """Stands for kill -9: nothing of the product catches it."""


@pytest.fixture(scope="module")
def broker(installation: Installation) -> Iterator[Client]:
    with Client(find_settings({}, data_dir=installation.data)) as client:
        (offered,) = client.send("GET", "images?environment=minimal")
        client.send("PUT", f"images/{offered['digest']}/pin")
        yield client


@pytest.fixture(scope="module")
def machine(engine: Any, installation: Installation) -> MachineImages:
    return MachineImages(client=engine, installation=installation.runtime.installation)


@pytest.fixture
def retired(
    engine: Any, broker: Client, machine: MachineImages, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The content id of a retired image that nobody uses; nothing of it is left afterwards."""
    name = f"allotment/minimal:{abs(hash(request.node.name))}"
    digest = small_image(engine, name, environment="minimal")
    found = machine.named(name)
    assert found is not None
    machine.keep(found, "minimal")
    broker.send("POST", "images", registration(found, environment="minimal", base=None))
    broker.send("PUT", f"images/{digest}/retired", {})
    yield digest
    with contextlib.suppress(ImageNotFound):
        engine.remove_image(digest, force=True)
    gc(broker, machine)


def verdict(broker: Client, machine: MachineImages) -> Verdict:
    keys = ("digest", "environment", "label", "reference", "state", "pinned", "used_by")
    known = [Known(**{key: one[key] for key in keys}) for one in broker.send("GET", "images")]
    return plan(known, {one.image.digest: one for one in machine.all()}, keep=2)


def gc(
    broker: Client, machine: MachineImages, *, on_step: Callable[[str], None] = lambda _: None
) -> tuple[int, list[str]]:
    said: list[str] = []
    gone = collect(verdict(broker, machine), broker=broker, machine=machine, say=said.append, on_step=on_step)
    return gone, said


def state(broker: Client, digest: str) -> str:
    (found,) = [one["state"] for one in broker.send("GET", "images") if one["digest"] == digest]
    return str(found)


def test_a_build_is_offered(broker: Client, installation: Installation) -> None:
    """Of what the tests built already, so that nothing is made anew: the image is the same version."""
    (before,) = broker.send("GET", "images?environment=minimal")
    argv = ["images", "build", "minimal", "--variant", "cpu", "--base", BASE_IMAGE, "--no-audit"]
    done = CliRunner().invoke(build_app(), [*argv, "--data-dir", str(installation.data)])
    assert done.exit_code == 0, done.output
    assert "Building minimal (cpu)" in done.output
    assert f"minimal {before['version']} ({before['label']}) is offered from now on." in done.output
    (after,) = broker.send("GET", "images?environment=minimal")
    assert after["added_at"] > before["added_at"]
    failing = ["images", "build", "nonsense", "--no-audit", "--data-dir", str(installation.data)]
    failed = CliRunner().invoke(build_app(), failing)
    assert failed.exit_code == 1
    assert "Nothing new is offered" in failed.output


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_next_run_finishes(
    broker: Client, machine: MachineImages, retired: str, step: str
) -> None:
    def kill(at: str) -> None:
        if at == step:
            raise Killed

    with pytest.raises(Killed):
        gc(broker, machine, on_step=kill)
    assert state(broker, retired) in ("retired", "removing", "removed")
    gc(broker, machine)
    assert (state(broker, retired), machine.tags_of(retired)) == ("removed", None)
    assert gc(broker, machine) == (0, []), "nothing is left to do"


def test_a_container_that_came_after_the_plan_keeps_its_image(
    engine: Any, broker: Client, machine: MachineImages, retired: str
) -> None:
    planned = verdict(broker, machine)
    container = engine.create_container(retired, command=["anything"])
    said: list[str] = []
    try:
        assert collect(planned, broker=broker, machine=machine, say=said.append) == 0
        assert "stays" in said[0]
        assert state(broker, retired) == "retired"
        assert machine.tags_of(retired) is not None
        stays = {stay.known.digest: stay.why for stay in verdict(broker, machine).stays}
        assert stays[retired].startswith("container ")
    finally:
        engine.remove_container(container["Id"], force=True)
    assert gc(broker, machine)[0] == 1


def test_what_another_installation_keeps_stays_on_the_machine(
    engine: Any, broker: Client, machine: MachineImages, retired: str
) -> None:
    other = MachineImages(client=engine, installation="deadbeef")
    found = other.named(retired)
    assert found is not None
    other.keep(found, "minimal")
    gone, said = gc(broker, machine)
    assert gone == 1
    assert "another installation on this machine keeps it" in said[0]
    tags = machine.tags_of(retired) or ()
    assert f"allotment-deadbeef/minimal:{retired.removeprefix('sha256:')[:12]}" in tags
    assert any(tag.startswith("allotment/minimal:") for tag in tags), "its name is the other's, too"


def test_what_nobody_registered_is_left_alone(engine: Any, broker: Client, machine: MachineImages) -> None:
    strangers = small_image(engine, "strangers/minimal:1", environment="minimal")
    assert gc(broker, machine)[0] == 0
    assert machine.tags_of(strangers) == ("strangers/minimal:1",)
    engine.remove_image(strangers)
