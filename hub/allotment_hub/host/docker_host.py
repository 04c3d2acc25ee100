"""This machine's Docker: whether it answers, our network's gateway, which images are there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import docker
from allotment_spawner.launch.names import LABEL_INSTALLATION
from docker.errors import DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException

from allotment_hub.host.environments import FoundImage
from allotment_hub.host.firewall import Firewall
from allotment_hub.host.ports import can_listen
from allotment_hub.site import DockerSettings

__all__ = ["CDI_FOLDER", "DockerHost", "DockerProblem"]

LABEL_PACKAGES = "allotment.packages"
CDI_FOLDER = "/var/run/cdi"


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
        client = self._client()
        try:
            return {name: self._image(client, name) for name in names}
        except (DockerException, RequestException) as error:
            raise _silent(error) from None
        finally:
            client.close()

    def request_devices(self, *, cdi_written: bool) -> Literal["nvidia", "cdi", "env"]:
        """What the engine has: CDI where it reads the entries that the agent writes, else NVIDIA's driver.

        Simulated devices exist in neither, so they are only named in the environment.
        """
        if self._settings.request_devices != "auto":
            return self._settings.request_devices
        if not self._real_gpus:
            return "env"
        client = self._client()
        try:
            info = client.info()
        except (DockerException, RequestException) as error:
            raise _silent(error) from None
        finally:
            client.close()
        return "cdi" if cdi_written and CDI_FOLDER in (info.get("CDISpecDirs") or []) else "nvidia"

    def gateway(self) -> str:
        """Address of our bridge on this host; the network is made when there is none.

        Containers must be reachable from here: behind a virtual machine (Docker Desktop) they are not.
        """
        gateway = self._gateway_of(self._find_network())
        if can_listen(gateway, 0) is not None:
            raise DockerProblem(
                "This host cannot reach Docker's containers (Docker Desktop, rootless or remote Docker); "
                "use Docker Engine on Linux itself."
            )
        return gateway

    def firewall(self, *, ports: tuple[int, ...]) -> Firewall:
        """The rules for our network; `ports` are the hub's, the broker's and the proxy's."""
        network = self._find_network()
        named = (network.get("Options") or {}).get("com.docker.network.bridge.name")
        return Firewall(
            installation=self._installation,
            bridge=named or f"br-{network['Id'][:12]}",
            gateway=self._gateway_of(network),
            ports=ports,
        )

    def _find_network(self) -> dict[str, Any]:
        client = self._client()
        try:
            return self._network(client)
        except (DockerException, RequestException) as error:
            raise _silent(error) from None
        finally:
            client.close()

    def _gateway_of(self, network: dict[str, Any]) -> str:
        configs = (network.get("IPAM") or {}).get("Config") or []
        found = [str(config["Gateway"]) for config in configs if config.get("Gateway")]
        if not found:
            raise DockerProblem(
                f"Docker's network {self._settings.network} has no gateway address; remove it with "
                f"`docker network rm {self._settings.network}` and start again."
            )
        return found[0].split("/")[0]

    def _client(self) -> Any:
        try:
            return docker.APIClient(base_url=self._settings.socket, timeout=self._timeout_s, version="auto")
        except (DockerException, RequestException) as error:
            raise _silent(error) from None

    def _image(self, client: Any, name: str) -> FoundImage | None:
        for variant in self._variants():
            tag = f"{self._settings.image_prefix}/{name}:{self._version}-{variant}"
            try:
                found = client.inspect_image(tag)
            except ImageNotFound:
                continue
            labels = (found.get("Config") or {}).get("Labels") or {}
            return FoundImage(
                name=tag, digest=str(found["Id"]), packages=_packages(labels.get(LABEL_PACKAGES))
            )
        return None

    def _variants(self) -> tuple[str, ...]:
        if self._settings.variant != "auto":
            return (self._settings.variant,)
        return ("cuda", "cpu") if self._real_gpus else ("cpu", "cuda")

    def _network(self, client: Any) -> dict[str, Any]:
        name = self._settings.network
        try:
            return dict(client.inspect_network(name))
        except NotFound:
            client.create_network(
                name,
                driver="bridge",
                labels={LABEL_INSTALLATION: self._installation},
                options={"com.docker.network.bridge.enable_icc": "false"},
                check_duplicate=True,
            )
            return dict(client.inspect_network(name))


def _packages(label: str | None) -> dict[str, str]:
    try:
        found = json.loads(label or "{}")
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _silent(error: BaseException) -> DockerProblem:
    text = str(error)
    if "Permission denied" in text:
        return DockerProblem(
            "You may not use Docker's socket; join the group docker (and sign in again), or run as root."
        )
    return DockerProblem("Docker does not answer; install or start it (`systemctl start docker`).")
