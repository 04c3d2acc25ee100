"""How Docker is asked for a device, decided by what the engine really has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import yaml
from allotment_hub.host import docker_host
from allotment_hub.host.docker_host import DockerHost, DockerProblem
from allotment_hub.site import DockerSettings
from allotment_spawner.engines.docker_setup import engine_facts

Request = Literal["auto", "nvidia", "cdi", "env"]
KIND = "nvidia.com/gpu"
CARD = {"name": "GPU-11111111-2222-3333-4444-555555555555"}


class HostWith(DockerHost):
    """An engine that reads these CDI folders; whether it has NVIDIA's driver is told, too."""

    def __init__(self, *, real: bool, wanted: Request, folders: tuple[str, ...], driver: bool) -> None:
        super().__init__(
            settings=DockerSettings(request_devices=wanted),
            installation="0badcafe",
            version="0.1.0",
            real_gpus=real,
        )
        self.folders = folders
        self.driver = driver
        self.tried: list[str] = []

    def _ask(self, work: Callable[[Any], Any]) -> Any:
        if work is engine_facts:
            return SimpleNamespace(cdi_folders=self.folders)
        return work(self)


@pytest.fixture
def cdi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agent would write; this account is root, and the driver is what the host says."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    monkeypatch.setattr(docker_host, "CDI_FOLDER", str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def tried(host: HostWith, *, image: str, installation: str) -> bool:
        host.tried.append(f"{image} {installation}")
        return host.driver

    monkeypatch.setattr(docker_host, "has_nvidia_driver", tried)
    return folder


def asked(cdi: Path, *, real: bool = True, wanted: Request = "auto", driver: bool = False) -> str:
    host = HostWith(real=real, wanted=wanted, folders=(str(cdi), "/etc/cdi-that-is-not"), driver=driver)
    return host.request_devices("sha256:1")


def write(cdi: Path, *devices: dict[str, str]) -> None:
    (cdi / "nvidia.yaml").write_text(yaml.safe_dump({"kind": KIND, "devices": list(devices)}))


def test_simulated_devices_are_only_named(cdi: Path) -> None:
    write(cdi, CARD)
    assert asked(cdi, real=False, driver=True) == "env"
    assert asked(cdi, real=False, wanted="nvidia") == "nvidia"


@pytest.mark.parametrize("devices", [(CARD,), ({"name": "all"}, {"name": "0"}, CARD), ({"name": "all"},)])
def test_cdi_where_nvidia_s_own_file_names_by_uuid(cdi: Path, devices: tuple[dict[str, str], ...]) -> None:
    write(cdi, *devices)
    assert asked(cdi, driver=True) == "cdi"


def test_a_cdi_folder_alone_gives_no_device(cdi: Path) -> None:
    assert asked(cdi, driver=True) == "nvidia"
    write(cdi, {"name": "0"}, {"name": "all"})
    assert asked(cdi, driver=True) == "nvidia", "a lease's UUID would be unknown there"


def test_cdi_needs_root_to_write_the_slices_entries(cdi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(cdi, CARD)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert asked(cdi, driver=True) == "nvidia"


def test_the_driver_is_tried_with_an_image_that_is_there(cdi: Path) -> None:
    host = HostWith(real=True, wanted="auto", folders=(), driver=True)
    assert host.request_devices("sha256:1") == "nvidia"
    assert host.tried == ["sha256:1 0badcafe"]


def test_real_gpus_that_no_container_can_get_are_refused(cdi: Path) -> None:
    with pytest.raises(DockerProblem, match=r"no nvidia driver .*NVIDIA Container Toolkit.*--gpus none"):
        asked(cdi)
    with pytest.raises(DockerProblem, match="gives containers no real GPU"):
        asked(cdi, wanted="env")
    assert asked(cdi, wanted="cdi") == "cdi"
