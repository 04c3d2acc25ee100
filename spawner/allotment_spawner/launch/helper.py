"""What a helper is: a container that works on homes as their owner, and can do nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from allotment_spawner.launch.container import HomeMount, Owner

__all__ = [
    "HELPER_HOME",
    "LABEL_HELPER",
    "Finished",
    "HelperMount",
    "helper_container",
    "helper_image",
    "helper_name",
    "home_at",
]

LABEL_HELPER = "allotment.helper"
"""Not the label of sessions: a helper holds no lease and no device."""
HELPER_HOME = "/mnt/home"
_MIB = 2**20
_LABEL_ENVIRONMENT = "org.allotment.environment"
_PLAINEST = "minimal"
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""A package of a person's environment may bring a `find` or `tar` of its own to /usr/local/bin."""


@dataclass(frozen=True, slots=True)
class HelperMount:
    """A volume or a folder of this host at `target`."""

    kind: Literal["volume", "bind"]
    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Finished:
    """How a helper ended. `code` None: it was still at work at the deadline, and was ended."""

    code: int | None
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The last lines that it complained with, as part of a sentence."""
        lines = [line[:200] for line in self.err.strip().splitlines()[-3:]]
        return " | ".join(lines) or ("it took too long" if self.code is None else f"status {self.code}")


def home_at(home: HomeMount, target: str = HELPER_HOME, *, read_only: bool = True) -> HelperMount:
    return HelperMount(kind=home.kind, source=home.source, target=target, read_only=read_only)


def helper_image(images: Sequence[Mapping[str, Any]]) -> str | None:
    """Of the images on a machine (as the engine lists them), the one for helpers; None where there is none.

    The newest plain one: what another environment holds, a person may have asked for, and helpers work on
    everybody's homes.
    """

    def rank(one: Mapping[str, Any]) -> tuple[bool, float]:
        labels = one.get("Labels") or {}
        return labels.get(_LABEL_ENVIRONMENT) == _PLAINEST, float(one.get("Created") or 0)

    return str(max(images, key=rank)["Id"]) if images else None


def helper_name(installation: str, work: str, user: str) -> str:
    """Always the same for the same work, so that what a kill left behind is found by the next try."""
    digest = hashlib.sha256(user.encode()).hexdigest()[:16]
    return f"allotment-helper-{installation}-{work}-{digest}"


def helper_container(
    *,
    installation: str,
    name: str,
    image: str,
    argv: Sequence[str],
    owner: Owner,
    mounts: Sequence[HelperMount],
    keep_output: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(create_container's, create_host_config's) arguments for docker-py.

    No network, no capabilities, a root that cannot be written, the owner's own numbers; a small share of
    the CPU, so that a home of a million files is nobody else's trouble. `keep_output` False: what it
    prints is only streamed, as an archive is.
    """
    host = _host(owner, mounts, keep_output=keep_output)
    create = {
        "image": image,
        "name": name,
        "entrypoint": [],
        "command": list(argv),
        "user": f"{owner.uid}:{owner.gid}",
        "labels": {LABEL_HELPER: installation},
        "environment": {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent", "PATH": _SYSTEM_PATH},
        "healthcheck": {"test": ["NONE"]},
        "working_dir": "/",
    }
    return create, host


def _host(owner: Owner, mounts: Sequence[HelperMount], *, keep_output: bool) -> dict[str, Any]:
    log = {"type": "json-file", "config": {"max-size": "1m"}} if keep_output else {"type": "none"}
    host: dict[str, Any] = {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "privileged": False,
        "read_only": True,
        "init": True,
        "restart_policy": {"Name": "no"},
        "cpu_shares": 64,
        "mem_limit": 512 * _MIB,
        "memswap_limit": 512 * _MIB,
        "pids_limit": 64,
        "log_config": log,
        "mounts": [_mount(one) for one in mounts],
    }
    if owner.groups:
        host["group_add"] = [str(gid) for gid in owner.groups]
    return host


def _mount(one: HelperMount) -> dict[str, Any]:
    made: dict[str, Any] = {
        "Type": one.kind,
        "Source": one.source,
        "Target": one.target,
        "ReadOnly": one.read_only,
    }
    if one.kind == "volume":
        made["VolumeOptions"] = {"NoCopy": True}
    else:
        made["BindOptions"] = {"Propagation": "rprivate"}
    return made
