"""Which engine and which GPUs `up` takes, and what it says of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from allotment_hub.catalog import Catalog
from allotment_hub.config_loading import load_catalog
from allotment_hub.host import hardware, sessions
from allotment_hub.host.docker_host import DockerHost, DockerProblem
from allotment_hub.host.engine import EngineChoice, choose_engine
from allotment_hub.host.errors import HostError
from allotment_hub.host.hardware import DEFAULT_SIMULATION, choose_gpus
from allotment_hub.host.node import find_node
from allotment_hub.host.options import parse_up
from allotment_hub.images.describe import FoundImage
from allotment_hub.runtime import Runtime
from allotment_hub.site import DockerSettings, Site
from allotment_spawner.engines.docker_setup import Bridge

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = FoundImage(name="allotment/minimal:0.1.0-cpu", digest="sha256:1", packages={"jupyterlab": "4"})


class DockerThatHas(DockerHost):
    """Answers with these images; with none at all it does not answer."""

    def __init__(self, images: dict[str, FoundImage | None] | None) -> None:
        super().__init__(settings=DockerSettings(), installation="0badcafe", version="0.1.0", real_gpus=False)
        self._images = images

    def images(self, names: Sequence[str]) -> dict[str, FoundImage | None]:
        if self._images is None:
            raise DockerProblem("Docker does not answer.")
        return {name: self._images.get(name) for name in names}

    def keep(self, images: Mapping[str, FoundImage]) -> tuple[str, ...]:
        return tuple(image.digest for image in images.values())

    def bridge(self) -> Bridge:
        return Bridge("allotment", "1" * 64, "br-1", "172.18.0.1", "172.18.0.0/16")


def chosen(docker: DockerHost, *argv: str) -> EngineChoice:
    return choose_engine(parse_up(argv, {}), catalog(), docker, checkout=ROOT)


def catalog() -> Catalog:
    return load_catalog(ROOT / "deploy" / "config" / "catalog.yaml")


def test_auto_takes_docker_where_images_are() -> None:
    choice = chosen(DockerThatHas({"minimal": MINIMAL}))
    assert (choice.engine, choice.inner_host) == ("docker", "172.18.0.1")
    assert choice.environments["minimal"].digest == "sha256:1"
    assert not choice.environments["pytorch"].available
    assert "allot images build pytorch" in (choice.environments["pytorch"].reason or "")
    assert choice.images_here == ("sha256:1",)


@pytest.mark.parametrize("docker", [DockerThatHas(None), DockerThatHas({})])
def test_auto_says_why_it_falls_back_to_local(docker: DockerHost) -> None:
    choice = chosen(docker)
    assert (choice.engine, choice.inner_host) == ("local", "127.0.0.1")
    assert choice.sentence.startswith("Docker ")
    assert choice.environments["minimal"].available
    assert "python" in choice.environments["minimal"].packages
    assert "--engine docker" in (choice.environments["pytorch"].reason or "")


@pytest.mark.parametrize("docker", [DockerThatHas(None), DockerThatHas({})])
def test_docker_that_was_asked_for_is_required(docker: DockerHost) -> None:
    with pytest.raises(HostError):
        chosen(docker, "--engine", "docker")


def test_other_addresses_need_docker() -> None:
    with pytest.raises(HostError, match="no walls between people"):
        chosen(DockerThatHas(None), "--bind", "0.0.0.0", "--insecure-bind")


def test_no_socket_is_one_sentence(tmp_path: Path) -> None:
    settings = DockerSettings(socket=f"unix://{tmp_path}/none.sock")
    host = DockerHost(settings=settings, installation="0badcafe", version="0.1.0", real_gpus=False)
    with pytest.raises(DockerProblem, match=r"does not answer at unix://.*/none.sock; .*docker.socket"):
        host.images(["minimal"])


def test_without_a_driver_gpus_are_simulated_and_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "driver_gpus", lambda: (2, ""))
    assert choose_gpus("auto").gpus == "nvml"
    monkeypatch.setattr(hardware, "driver_gpus", lambda: (0, "No NVIDIA driver answers."))
    choice = choose_gpus("auto")
    assert choice.gpus == DEFAULT_SIMULATION
    assert "SIMULATED" in choice.sentence


def test_the_packaged_node_serves_where_the_system_has_none() -> None:
    node = find_node(path="/nonexistent")
    version = subprocess.run([node.node, "--version"], check=True, capture_output=True, text=True).stdout
    assert int(version.removeprefix("v").split(".")[0]) >= 20
    assert subprocess.run([*node.npm, "--version"], check=True, capture_output=True).returncode == 0


def test_running_sessions_forbid_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = made(engine="local"), made(engine="docker")
    for count, words in ((2, "2 sessions of the engine local"), (None, "which does not answer")):
        monkeypatch.setattr(sessions, "count_workloads", lambda *_, count=count: count)
        with pytest.raises(HostError, match=words):
            sessions.refuse_other_machine(Site(), old=old, new=new)
        sessions.refuse_other_machine(Site(), old=old, new=old)
    monkeypatch.setattr(sessions, "count_workloads", lambda *_: 0)
    sessions.refuse_other_machine(Site(), old=old, new=new)


def made(*, engine: str) -> Runtime:
    return Runtime.model_validate(
        {
            "installation": "0badcafe",
            "engine": engine,
            "gpus": "none",
            "public_url": "http://127.0.0.1:8000",
            "hub_api_url": "http://127.0.0.1:8081/hub/api",
            "broker_host": "127.0.0.1",
            "broker_port": 8083,
            "broker_url_for_workloads": "http://127.0.0.1:8083/services/allotment/",
            "hub_api_url_for_workloads": "http://127.0.0.1:8081/hub/api",
            "proxy_api_url": "http://127.0.0.1:8001",
            "agent_socket": "agent.sock",
            "environments": {},
        }
    )
