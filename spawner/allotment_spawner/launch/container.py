"""What to make for a lease on Docker: the container's options, as plain data for docker-py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from allotment_spawner.launch.names import (
    LABEL_DEVICES,
    LABEL_INSTALLATION,
    LABEL_LEASE,
    LABEL_SERVER,
    LABEL_USER,
    container_name,
    home_volume_name,
    safe_name,
)
from allotment_spawner.wire import Launch

__all__ = [
    "CDI_KIND",
    "HOME",
    "RUNTIME_DIR",
    "SCRATCH",
    "ContainerOptions",
    "HomeMount",
    "Owner",
    "RequestDevices",
    "container_options",
    "home_mount",
    "requested_devices",
]

RequestDevices = Literal["nvidia", "cdi", "env"]
"""How a device is asked for: Docker's nvidia driver, CDI, or only as variables (simulated hardware)."""

CDI_KIND = "nvidia.com/gpu"
HOME = "/home/jovyan"
RUNTIME_DIR = "/run/allotment"
SCRATCH = "/scratch"
_CPU_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class HomeMount:
    """Where a person's home comes from: a named volume, or a folder of this host that exists."""

    kind: Literal["volume", "bind"]
    source: str
    target: str = HOME


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom the container runs as: the numbers on the home's files. `groups` are further gids."""

    uid: int = 1000
    gid: int = 100
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """Keyword arguments: `host_config` for docker-py's create_host_config, `create` for
    create_container (image, name, command, environment, labels, user, …, without host_config)."""

    name: str
    labels: dict[str, str]
    host_config: dict[str, Any]
    create: dict[str, Any]


def home_mount(setting: str, *, installation: str, user: str) -> HomeMount:
    """The home for `user` from site.yaml's `docker.home`: "volume", or a path with {username}."""
    if setting == "volume":
        return HomeMount(kind="volume", source=home_volume_name(installation, user))
    return HomeMount(kind="bind", source=setting.replace("{username}", safe_name(user)))


def container_options(
    launch: Launch,
    *,
    user: str,
    server: str,
    home: HomeMount,
    network: str,
    request_devices: RequestDevices,
    command: Sequence[str] | None = None,
    extra_env: Mapping[str, str] | None = None,
    owner: Owner = Owner(),
) -> ContainerOptions:
    """The one description of a session's or job's container.

    `command` None keeps the image's own. `extra_env` (the hub's variables) cannot override what
    decides devices and identity. The image is the content id, never a tag. Raises ValueError when
    the lease has no image (local engine).
    """
    if launch.image_digest is None:
        raise ValueError("a container needs an image digest")
    name = container_name(launch.installation, launch.env["ALLOTMENT_LEASE"])
    labels = _labels(launch, user, server)
    create: dict[str, Any] = {
        "image": launch.image_digest,
        "name": name,
        "labels": labels,
        "environment": _environment(launch, request_devices, extra_env or {}),
        "user": f"{owner.uid}:{owner.gid}",
    }
    if command is not None:
        create["command"] = list(command)
    host_config = _limits(launch) | _walls(network, owner) | {"mounts": _mounts(home, launch, owner)}
    if owner.groups:
        host_config["group_add"] = [str(gid) for gid in owner.groups]
    if requests := _device_requests(launch.devices, request_devices):
        host_config["device_requests"] = requests
    return ContainerOptions(name=name, labels=labels, host_config=host_config, create=create)


def _labels(launch: Launch, user: str, server: str) -> dict[str, str]:
    return {
        LABEL_INSTALLATION: launch.installation,
        LABEL_LEASE: launch.env["ALLOTMENT_LEASE"],
        LABEL_USER: user,
        LABEL_SERVER: server,
        LABEL_DEVICES: ",".join(launch.devices),
    }


def requested_devices(container: Mapping[str, Any]) -> tuple[str, ...]:
    """The device UUIDs that a container (docker inspect's JSON) was really made with.

    Read from the engine's own record of the request; only where devices are no more than
    variables, from the variable.
    """
    requests = (container.get("HostConfig") or {}).get("DeviceRequests") or []
    if requests:
        ids = [str(one) for request in requests for one in request.get("DeviceIDs") or []]
        return tuple(one.removeprefix(f"{CDI_KIND}=") for one in ids)
    for entry in (container.get("Config") or {}).get("Env") or []:
        key, _, value = str(entry).partition("=")
        if key == "ALLOTMENT_DEVICES":
            return tuple(part for part in value.split(",") if part)
    return ()


def _environment(launch: Launch, request: RequestDevices, extra: Mapping[str, str]) -> dict[str, str]:
    """CUDA base images set NVIDIA_VISIBLE_DEVICES=all, so it is always set: to the devices only
    under the nvidia driver, else to void so that no runtime adds any."""
    through_driver = request == "nvidia" and launch.devices
    devices = ",".join(launch.devices)
    fixed = {
        "ALLOTMENT_INSTALLATION": launch.installation,
        "ALLOTMENT_DEVICES": devices,
        "NVIDIA_VISIBLE_DEVICES": devices if through_driver else "void",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "JUPYTER_RUNTIME_DIR": f"{RUNTIME_DIR}/jupyter",
    }
    if launch.scratch is not None:
        fixed["ALLOTMENT_SCRATCH"] = SCRATCH
    return {**extra, **launch.env, **fixed}


def _limits(launch: Launch) -> dict[str, Any]:
    """A quota instead of nano_cpus: the engine refuses nano_cpus above the machine's own count,
    and a flavor written for a bigger machine should still start on a small one."""
    return {
        "cpu_period": _CPU_PERIOD_US,
        "cpu_quota": max(1000, round(launch.cpu * _CPU_PERIOD_US)),
        "mem_limit": launch.memory_bytes,
        # memory and swap together: equal to the memory limit means no swap
        "memswap_limit": launch.memory_bytes,
        "pids_limit": launch.pids,
        "shm_size": launch.shm_bytes,
        "log_config": {"type": "json-file", "config": {"max-size": "10m", "max-file": "2"}},
    }


def _walls(network: str, owner: Owner) -> dict[str, Any]:
    """A restarted container would keep devices that were leased to somebody else: never restart."""
    return {
        "network_mode": network,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "privileged": False,
        "init": True,
        "restart_policy": {"Name": "no"},
        "auto_remove": False,
        "tmpfs": {RUNTIME_DIR: f"rw,nosuid,nodev,noexec,size=64m,mode=0700,uid={owner.uid},gid={owner.gid}"},
    }


def _mounts(home: HomeMount, launch: Launch, owner: Owner) -> list[dict[str, Any]]:
    """The home, the person's folders and data, and the scratch folder (also as /tmp, so that nothing
    temporary fills the engine's own disk)."""
    first: dict[str, Any] = {"Type": home.kind, "Source": home.source, "Target": home.target}
    if home.kind == "volume":
        # the engine would fill a new one with the image's own home, whose files are the image's account's
        first["VolumeOptions"] = {
            "Labels": {LABEL_INSTALLATION: launch.installation},
            "NoCopy": (owner.uid, owner.gid) != (Owner().uid, Owner().gid),
        }
    binds = [(one.source, one.target, one.read_only) for one in launch.mounts]
    if launch.scratch is not None:
        binds += [(launch.scratch.source, target, False) for target in (SCRATCH, "/tmp")]  # noqa: S108
    return [first] + [
        {
            "Type": "bind",
            "Source": source,
            "Target": target,
            "ReadOnly": read_only,
            # what is mounted below later, on the host, must not appear in a session
            "BindOptions": {"Propagation": "rprivate"},
        }
        for source, target, read_only in binds
    ]


def _device_requests(devices: Sequence[str], request: RequestDevices) -> list[dict[str, Any]]:
    if not devices or request == "env":
        return []
    if request == "cdi":
        return [{"driver": "cdi", "device_ids": [f"{CDI_KIND}={one}" for one in devices]}]
    return [{"driver": "nvidia", "device_ids": list(devices), "capabilities": [["gpu"]]}]
