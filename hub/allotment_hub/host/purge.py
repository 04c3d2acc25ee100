"""Removes what an installation made in Docker: containers, volumes and its network, never others'."""

from __future__ import annotations

from typing import Any

import docker
from allotment_spawner.launch.names import LABEL_INSTALLATION
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from allotment_hub.host.errors import HostError
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["purge_docker"]


def purge_docker(site: Site, runtime: Runtime) -> None:
    """`HostError` when Docker does not answer: what was asked to be removed would stay."""
    label = f"{LABEL_INSTALLATION}={runtime.installation}"
    try:
        client = docker.APIClient(base_url=site.docker.socket, timeout=60)
    except (DockerException, RequestException):
        raise HostError("Docker does not answer, so its containers and volumes cannot be removed.") from None
    try:
        _remove(client, label)
    except (DockerException, RequestException) as error:
        raise HostError(f"Docker did not remove everything ({error}).") from None
    finally:
        client.close()


def _remove(client: Any, label: str) -> None:
    for container in client.containers(all=True, filters={"label": [label]}):
        client.remove_container(container["Id"], v=True, force=True)
    for volume in client.volumes(filters={"label": [label]}).get("Volumes") or []:
        client.remove_volume(volume["Name"])
    for network in client.networks(filters={"label": [label]}):
        try:
            client.remove_network(network["Id"])
        except NotFound:
            continue
        except APIError as error:
            if error.status_code not in (403, 409):  # another installation still uses it
                raise
