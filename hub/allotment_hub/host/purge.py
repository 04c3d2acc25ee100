"""Removes what an installation made in Docker: containers, homes, network, rules; never others'."""

from __future__ import annotations

import os
import shutil
from typing import Any

from allotment_spawner.engines.firewall import Firewall, FirewallError, run_iptables
from allotment_spawner.engines.helpers import remove_helpers
from allotment_spawner.launch.names import LABEL_INSTALLATION, home_volume_name
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from allotment_hub.host.docker_client import docker_client
from allotment_hub.host.errors import HostError
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["purge_docker", "purge_folders"]


def purge_docker(site: Site, runtime: Runtime) -> None:
    """`HostError` when Docker does not answer: what was asked to be removed would stay."""
    try:
        with docker_client(site.docker.socket, timeout_s=60) as client:
            _remove(client, runtime.installation)
    except (DockerException, RequestException) as error:
        raise HostError(f"Docker's containers and volumes were not all removed: {error}") from None
    if os.geteuid() == 0:
        try:
            Firewall(run=run_iptables).remove(runtime.installation)
        except FirewallError as error:
            raise HostError(f"The firewall rules could not be removed: {error}") from None


def purge_folders(site: Site, runtime: Runtime, paths: Paths) -> None:
    """Cache and scratch, which may lie outside the data directory; what else lies beside them stays."""
    cache = paths.cache(site.datasets.cache, runtime.installation)
    for own in (cache, paths.scratch(site.scratch.path, runtime.installation)):
        if not own.is_dir() or own.is_symlink():
            continue
        try:
            shutil.rmtree(own)
        except OSError as error:
            raise HostError(f"{own} could not be removed ({error.strerror}); remove it by hand.") from None


def _remove(client: Any, installation: str) -> None:
    label = f"{LABEL_INSTALLATION}={installation}"
    remove_helpers(client, installation)
    for container in client.containers(all=True, filters={"label": [label]}):
        client.remove_container(container["Id"], v=True, force=True)
    homes = home_volume_name(installation, "")
    for volume in client.volumes(filters={"name": homes}).get("Volumes") or []:
        if str(volume["Name"]).startswith(homes):  # the engine's filter also matches within a name
            client.remove_volume(volume["Name"])
    for network in client.networks(filters={"label": [label]}):
        try:
            client.remove_network(network["Id"])
        except NotFound:
            continue
        except APIError as error:
            if error.status_code not in (403, 409):  # another installation still uses it
                raise
