"""Helpers work on everybody's homes: nothing that one person put into an image may run in them."""

from __future__ import annotations

from typing import Any

from allotment_hub.people.hand_over import UNPACK_SCRIPT
from allotment_spawner.launch.container import Owner
from allotment_spawner.launch.helper import helper_container, helper_image


def image(number: int, environment: str | None, created: int) -> dict[str, Any]:
    labels = None if environment is None else {"org.allotment.environment": environment}
    return {"Id": f"sha256:{number}", "Created": created, "Labels": labels}


def test_a_newer_image_with_a_persons_packages_is_not_taken() -> None:
    images = [
        image(1, "minimal", 10),
        image(2, "minimal", 20),
        image(3, "anns-tools", 30),
        image(4, None, 40),
    ]
    assert helper_image(images) == "sha256:2"
    assert helper_image(images[2:3]) == "sha256:3", "where there is no other"
    assert helper_image([]) is None


def test_only_the_systems_own_tools_are_found() -> None:
    """Wheels bring commands to /usr/local/bin, and start-up code to its Python's packages."""
    create, _ = helper_container(
        installation="0123abcd", name="x", image="sha256:1", argv=["sh"], owner=Owner(), mounts=[]
    )
    assert "/usr/local" not in create["environment"]["PATH"]
    assert create["environment"]["PATH"].split(":")[0] == "/usr/sbin"
    assert "python3 -I -S " in UNPACK_SCRIPT
