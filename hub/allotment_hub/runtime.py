"""runtime.json: what `up` decided for this installation; hub and broker read it at start."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["EnvironmentImage", "Runtime"]


class EnvironmentImage(BaseModel):
    """One environment that this installation offers, with its image where the engine is Docker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    description: str = ""
    packages: dict[str, str] = {}
    image: str | None = None
    digest: str | None = None
    """The image's content id (`sha256:…`); sessions are created from this, never from a tag."""
    label: str = ""
    """What people tell its versions apart by, such as 0.1.0-cpu."""
    source: str | None = None
    """repository@digest where a registry has it."""
    size_bytes: int | None = None
    made_at: datetime | None = None
    requires: dict[str, str] = {}
    """`variant` (cpu or cuda), `minimum_driver`, `minimum_compute_capability`, where they are known."""
    available: bool
    reason: str | None = None
    """Why it cannot be used here, with the remedy."""


class Runtime(BaseModel):
    """Secrets are not in here; they are files below `Paths.secrets`:

    hub-to-broker (the hub's token at the broker), broker-service (the broker's token at the hub),
    proxy, cookie, admin (the connection.json admin token).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    installation: str
    """8 hex digits, made once."""
    engine: Literal["local", "docker"]
    gpus: str
    """"nvml", "none" or "sim:…"."""
    public_url: str
    """Base URL for browsers, without a trailing slash, e.g. http://127.0.0.1:8000."""
    hub_api_url: str
    """For services on this host, e.g. http://127.0.0.1:8081/hub/api."""
    broker_host: str
    broker_port: int
    broker_url_for_workloads: str
    """Ends in /services/allotment/; on Docker the bridge's gateway address."""
    hub_api_url_for_workloads: str
    proxy_api_url: str
    agent_socket: str
    environments: dict[str, EnvironmentImage]
    images_here: tuple[str, ...] | None = None
    """Content ids of all notebook images on this machine; None is unknown."""
    trust_users: bool = False
    request_devices: Literal["nvidia", "cdi", "env"] = "env"
    """How Docker is asked for a device; "env" passes variables only (simulated devices)."""
