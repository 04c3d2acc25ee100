"""Our container options and DockerSpawner's own options, as create_container's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allotment_spawner.launch.container import ContainerOptions

__all__ = ["create_arguments"]

_OURS_IN_HOST = ("device_requests", "auto_remove", "restart_policy", "privileged")
"""What the fence stands on; no site option changes it."""
_OURS_IN_CREATE = ("image", "name")


def create_arguments(
    options: ContainerOptions,
    *,
    ports: Sequence[int],
    host_ip: str,
    exposed: int,
    volumes: Sequence[str],
    host_config: Mapping[str, Any],
    extra_create: Mapping[str, Any],
    extra_host: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(create_container's, create_host_config's): `options` completed by the stock spawner's volumes
    and ports and the site's extra arguments.

    A site may add mounts, capabilities, labels, variables; device, image, name and labels of ours stay.
    """
    host: dict[str, Any] = _merged(options.host_config, {k: v for k, v in host_config.items() if v})
    mounts = [*options.host_config.get("mounts", ()), *host_config.get("mounts", ())]
    host = _merged(host, extra_host)
    host["mounts"] = [*mounts, *extra_host.get("mounts", ())]
    if ports:
        host["port_bindings"] = dict.fromkeys(ports, (host_ip,))
    for key in _OURS_IN_HOST:
        if key in options.host_config:
            host[key] = options.host_config[key]
        else:
            host.pop(key, None)
    create = _merged(options.create, extra_create)
    for key in _OURS_IN_CREATE:
        create[key] = options.create[key]
    for key in ("labels", "environment"):
        site = extra_create.get(key) or {}
        create[key] = {**site, **options.create[key]}
    create["ports"] = {f"{exposed}/tcp": None}
    create["volumes"] = list(volumes)
    return create, host


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, dicts key by key; neither is changed."""
    out = dict(base)
    for key, value in over.items():
        before = out.get(key)
        out[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return out
