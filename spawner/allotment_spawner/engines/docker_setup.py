"""What must be right on a Docker engine before sessions run: our bridge, its devices, its settings."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from docker.errors import APIError, NotFound

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.launch.names import LABEL_INSTALLATION

__all__ = ["Bridge", "EngineFacts", "engine_facts", "ensure_bridge", "has_nvidia_driver", "is_reachable"]

_ICC = "com.docker.network.bridge.enable_icc"
_BRIDGE_NAME = "com.docker.network.bridge.name"


@dataclass(frozen=True, slots=True)
class Bridge:
    """Our network: its interface on this host, and the address at which containers see this host."""

    name: str
    network_id: str
    interface: str
    gateway: str
    subnet: str


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the engine says of itself, where it matters to sessions."""

    version: str
    live_restore: bool
    cgroup_driver: str
    cgroup_version: str
    default_runtime: str
    cdi_folders: tuple[str, ...]
    remote: str | None
    """Why containers' addresses cannot be reached from this host, as far as the engine tells."""


def engine_facts(client: Any) -> EngineFacts:
    """Read from `docker info`; raises what docker-py raises."""
    info = client.info()
    return EngineFacts(
        version=str(info.get("ServerVersion", "")),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        cgroup_driver=str(info.get("CgroupDriver", "")),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        default_runtime=str(info.get("DefaultRuntime", "runc")),
        cdi_folders=tuple(info.get("CDISpecDirs") or ()),
        remote=_remote(info),
    )


def ensure_bridge(client: Any, *, name: str, installation: str) -> Bridge:
    """The network `name`, made when there is none: a bridge without traffic between its containers.

    `EngineUnavailable` when a network of that name is another's, or lets containers talk.
    """
    try:
        network = client.inspect_network(name)
    except NotFound:
        client.create_network(
            name,
            driver="bridge",
            options={_ICC: "false"},
            labels={LABEL_INSTALLATION: installation},
            check_duplicate=True,
        )
        network = client.inspect_network(name)
    labels = network.get("Labels") or {}
    if labels.get(LABEL_INSTALLATION) != installation:
        raise EngineUnavailable(
            f"Docker's network {name} was not made by this installation.",
            f"Name another one in site.yaml (docker.network), or remove it: docker network rm {name}",
        )
    options = network.get("Options") or {}
    configs = (network.get("IPAM") or {}).get("Config") or []
    config = next((one for one in configs if one.get("Gateway")), None)
    if options.get(_ICC) != "false" or config is None:
        raise EngineUnavailable(
            f"Docker's network {name} lets containers talk to each other or has no gateway.",
            f"Remove it, it is made again: docker network rm {name}",
        )
    return Bridge(
        name=name,
        network_id=str(network["Id"]),
        interface=str(options.get(_BRIDGE_NAME) or f"br-{network['Id'][:12]}"),
        gateway=str(config["Gateway"]).partition("/")[0],
        subnet=str(config["Subnet"]),
    )


def is_reachable(bridge: Bridge) -> bool:
    """Whether the bridge's gateway is an address of this host, as with an engine that runs here.

    Behind a virtual machine (Docker Desktop) or a user namespace (rootless) it is not.
    """
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        try:
            probe.bind((bridge.gateway, 0))
        except OSError:
            return False
    return True


def has_nvidia_driver(client: Any, *, image: str, installation: str) -> bool:
    """Whether the engine has a driver for nvidia device requests. No list of the engine's tells, so a
    container is made with a device that cannot exist: only without a driver does the engine say so.

    Its name is always the same, so that one which a killed `up` left is taken away by the next; it bears
    no label of ours, so that nobody takes it for a session.
    """
    name = f"allotment-probe-{installation}"
    with contextlib.suppress(NotFound):
        client.remove_container(name, force=True)
    host_config = client.create_host_config(
        network_mode="none",
        device_requests=[{"driver": "nvidia", "device_ids": ["probe"], "capabilities": [["gpu"]]}],
    )
    made = client.create_container(
        image,
        command=["true"],
        entrypoint=[],
        host_config=host_config,
        name=name,
    )
    try:
        client.start(made["Id"])
    except APIError as error:
        return "could not select device driver" not in str(error.explanation)
    finally:
        client.remove_container(made["Id"], force=True)
    return True


def _remote(info: Mapping[str, Any]) -> str | None:
    if info.get("OperatingSystem") == "Docker Desktop" or info.get("Name") == "docker-desktop":
        return "Docker Desktop runs containers in a virtual machine"
    if any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        return "rootless Docker keeps containers' addresses to itself"
    return None
