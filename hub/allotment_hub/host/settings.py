"""host.json: what the supervisor needs beyond runtime.json: addresses, the proxy's program, a stamp."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from allotment_hub.host.files import write_private

__all__ = ["HostSettings", "host_settings_path"]


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`inner_host` is where hub and broker listen: loopback, or on Docker the bridge's gateway."""

    bind: str
    port: int
    inner_host: str
    hub_port: int
    broker_port: int
    proxy_api_port: int
    tls_cert: str | None
    tls_key: str | None
    node: str
    proxy_script: str
    code: str
    """Stamp of the code and its pinned packages; another one means an update."""
    user: str | None = None
    """Whose processes proxy, broker and hub are; None: those of whoever starts them."""
    docker_group: int | None = None
    """The group that lets this user reach Docker."""
    scratch: str | None = None
    homes: str | None = None
    """Where the agent may make folders of sessions and of people; None: it makes none."""

    @property
    def local_url(self) -> str:
        """The public port as reached from this host, without a trailing slash."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.bind, self.bind)  # noqa: S104
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    def save(self, data: Path) -> None:
        write_private(host_settings_path(data), json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, data: Path) -> HostSettings | None:
        """None when there is none, or it was written by a version with other fields."""
        try:
            return cls(**json.loads(host_settings_path(data).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None


def host_settings_path(data: Path) -> Path:
    return data / "run" / "host.json"
