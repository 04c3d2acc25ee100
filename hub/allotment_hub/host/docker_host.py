"""This machine's Docker: whether it answers, our network's gateway, images, devices and firewall."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.docker_setup import (
    Bridge,
    engine_facts,
    ensure_bridge,
    has_nvidia_driver,
    is_reachable,
)
from allotment_spawner.engines.firewall import (
    Firewall,
    FirewallError,
    FirewallRules,
    firewall_rules,
    run_iptables,
)
from allotment_spawner.gpu.cdi import names_by_uuid
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from allotment_hub.host.docker_client import docker_client
from allotment_hub.images.describe import FoundImage, described
from allotment_hub.images.machine import MachineImages
from allotment_hub.site import DockerSettings

__all__ = ["CDI_FOLDER", "DockerHost", "DockerProblem"]

CDI_FOLDER = "/var/run/cdi"
T = TypeVar("T")


class DockerProblem(Exception):
    """Why Docker cannot be used here, with the remedy."""


class DockerHost:
    """Each call opens a client of its own and raises `DockerProblem` when the engine does not answer."""

    def __init__(
        self,
        *,
        settings: DockerSettings,
        installation: str,
        version: str,
        real_gpus: bool,
        timeout_s: float = 10.0,
    ) -> None:
        self._settings = settings
        self._installation = installation
        self._version = version
        self._real_gpus = real_gpus
        self._timeout_s = timeout_s

    def images(self, names: Sequence[str]) -> dict[str, FoundImage | None]:
        """The image of each environment, None where there is none. The `cuda` one first with real GPUs."""
        return self._ask(lambda client: {name: self._image(client, name) for name in names})

    def keep(self, images: Mapping[str, FoundImage]) -> tuple[str, ...]:
        """Name what this installation knows as its own; content ids of all notebook images here."""

        def work(client: Any) -> tuple[str, ...]:
            machine = MachineImages(client=client, installation=self._installation)
            for environment, image in images.items():
                machine.keep(image, environment)
            return tuple(one.image.digest for one in machine.all())

        return self._ask(work)

    def bridge(self) -> Bridge:
        """Our network; made when there is none. Its containers can be reached from this host."""
        facts, bridge = self._ask(lambda client: (engine_facts(client), self._bridge(client)))
        if facts.remote is not None or not is_reachable(bridge):
            why = facts.remote or "the engine runs on another machine or in a virtual one"
            raise DockerProblem(
                f"This host cannot reach Docker's containers: {why}. Use Docker Engine on Linux."
            )
        return bridge

    def request_devices(self, image: str) -> Literal["nvidia", "cdi", "env"]:
        """What the engine has: CDI where it reads the entries that the agent (as root) writes beside
        NVIDIA's, else NVIDIA's driver, tried with `image`. Simulated devices exist in neither, so they are
        only named in the environment; real ones would not be there at all: `DockerProblem`.
        """
        wanted = self._settings.request_devices
        if not self._real_gpus:
            return "env" if wanted == "auto" else wanted
        if wanted == "env":
            raise DockerProblem(
                "site.yaml says docker.request_devices: env, which gives containers no real GPU; "
                "set it to auto, or take no GPUs: ./deploy/up --gpus none."
            )
        if wanted != "auto":
            return wanted
        if self._reads_cdi():
            return "cdi"
        if self._ask(lambda client: has_nvidia_driver(client, image=image, installation=self._installation)):
            return "nvidia"
        raise DockerProblem(
            "Docker can give containers no GPU: it has no nvidia driver and reads no CDI file of NVIDIA's; "
            "install the NVIDIA Container Toolkit, run `nvidia-ctk runtime configure --runtime=docker` and "
            "restart Docker, or take no GPUs: ./deploy/up --gpus none."
        )

    def _reads_cdi(self) -> bool:
        folders = self._ask(engine_facts).cdi_folders
        return os.geteuid() == 0 and CDI_FOLDER in folders and names_by_uuid([Path(one) for one in folders])

    def firewall(self, *, ports: tuple[int, ...]) -> tuple[Firewall, FirewallRules]:
        """The rules for our network; `ports` are the hub's, the broker's and the proxy's."""
        bridge = self._ask(self._bridge)
        firewall = Firewall(run=run_iptables)
        rules = firewall_rules(
            installation=self._installation,
            interface=bridge.interface,
            gateway=bridge.gateway,
            ports=ports,
            docker_user=os.geteuid() != 0 or firewall.has_docker_user(),
        )
        return firewall, rules

    def close_ports(self, *, ports: tuple[int, ...]) -> str:
        """Keep containers from this host's other ports; only root can. Says what came of it."""
        if os.geteuid() != 0:
            return "Containers are not kept from this host's ports: `allot doctor` lists the rules for root."
        firewall, rules = self.firewall(ports=ports)
        try:
            firewall.apply(rules)
        except FirewallError as error:
            return f"Containers are not kept from this host's ports: {error} `allot doctor` lists the rules."
        return "Firewall rules keep containers from this host's other ports."

    def _ask(self, work: Callable[[Any], T]) -> T:
        try:
            with docker_client(self._settings.socket, timeout_s=self._timeout_s) as client:
                return work(client)
        except EngineUnavailable as error:
            raise DockerProblem(f"{error.sentence} {error.next_step}") from None
        except (DockerException, RequestException) as error:
            raise _silent(error, self._settings.socket) from None

    def _bridge(self, client: Any) -> Bridge:
        name = self._settings.network_of(self._installation)
        return ensure_bridge(client, name=name, installation=self._installation)

    def _image(self, client: Any, name: str) -> FoundImage | None:
        for variant in self._variants():
            tag = f"{self._settings.image_prefix}/{name}:{self._version}-{variant}"
            try:
                found = client.inspect_image(tag)
            except ImageNotFound:
                continue
            return described(found, name=tag)
        return None

    def _variants(self) -> tuple[str, ...]:
        if self._settings.variant != "auto":
            return (self._settings.variant,)
        return ("cuda", "cpu") if self._real_gpus else ("cpu", "cuda")


def _silent(error: BaseException, socket: str) -> DockerProblem:
    text = str(error)
    if "Permission denied" in text:
        return DockerProblem(
            "You may not use Docker's socket; join the group docker (and sign in again), or run as root."
        )
    if "Connection refused" in text or "No such file" in text or "Connection aborted" in text:
        return DockerProblem(
            f"Docker does not answer at {socket}; install or start it (`systemctl start docker`),"
            " or name its socket as docker.socket in config/site.yaml of the data directory."
        )
    reason = (text.splitlines() or [type(error).__name__])[0][:200]
    return DockerProblem(f"Docker does not do what it is asked for: {reason}")
