"""Where everything of one installation lies below its data directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Paths"]


@dataclass(frozen=True, slots=True)
class Paths:
    """Names only; nothing here touches the disk."""

    data: Path

    @property
    def connection(self) -> Path:
        """connection.json (0600): hub_url, broker_url, accounts, admin_token."""
        return self.data / "connection.json"

    @property
    def site(self) -> Path:
        return self.data / "config" / "site.yaml"

    @property
    def catalog(self) -> Path:
        return self.data / "config" / "catalog.yaml"

    @property
    def runtime(self) -> Path:
        """runtime.json (0600): what `up` decided: ports, engine, gpus, images, installation id, URLs."""
        return self.data / "run" / "runtime.json"

    @property
    def secrets(self) -> Path:
        """Folder (0700) of one file per secret."""
        return self.data / "secrets"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def homes(self) -> Path:
        """Homes of local-engine sessions, one folder a person."""
        return self.data / "homes"

    @property
    def datasets(self) -> Path:
        """The cache of datasets, where site.yaml names no other folder."""
        return self.data / "datasets"

    def cache(self, configured: str | None, installation: str) -> Path:
        """The cache of datasets; in a configured folder below one of its own, because a fast disk may be
        shared with the scratch folders and with another installation on this machine."""
        return (
            self.datasets if configured is None else Path(configured) / f"allotment-{installation}-datasets"
        )

    def scratch(self, configured: str | None, installation: str) -> Path:
        """Scratch folders of sessions, one each; in a configured folder as the cache."""
        if configured is None:
            return self.data / "scratch"
        return Path(configured) / f"allotment-{installation}-scratch"

    @property
    def archive(self) -> Path:
        """Packed homes of people who left, where site.yaml names no other folder."""
        return self.data / "archive"

    @property
    def offboard(self) -> Path:
        """One file for each person whose leaving is not finished."""
        return self.data / "offboard"

    @property
    def hub(self) -> Path:
        return self.data / "hub"

    @property
    def broker_database(self) -> Path:
        return self.data / "broker" / "broker.sqlite"

    @property
    def metrics_file(self) -> Path:
        """Samples of devices and sessions; nothing else depends on it."""
        return self.data / "broker" / "metrics.sqlite"

    @property
    def agent_state(self) -> Path:
        return self.data / "agent"

    @property
    def agent_socket(self) -> Path:
        """May be longer than a unix socket path can be (108 bytes): `up` refuses such a directory."""
        return self.data / "agent" / "agent.sock"

    @property
    def simulator_state(self) -> Path:
        return self.data / "agent" / "sim.json"
