"""The data directory's folders, configuration files, secrets and lasting choices."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from allotment_hub.host.files import ensure_secret, private_folder, write_private
from allotment_hub.host.processes import recall
from allotment_hub.host.specs import SERVICES
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime

__all__ = ["SECRETS", "installation_id", "lay_out", "read_runtime", "read_secret_text", "running_services"]

SECRETS = ("hub-to-broker", "broker-service", "proxy", "cookie", "admin")


def lay_out(paths: Paths, *, defaults: Path) -> dict[str, str]:
    """Make what is missing; nothing that is there is changed. Returns the secrets by name."""
    folders = (
        paths.data,
        paths.runtime.parent,
        paths.secrets,
        paths.logs,
        paths.homes,
        paths.hub,
        paths.agent_state,
        paths.broker_database.parent,
        paths.site.parent,
    )
    for folder in folders:
        private_folder(folder)
    for path in (paths.site, paths.catalog):
        if not path.exists():
            shutil.copyfile(defaults / path.name, path)
    return {name: ensure_secret(paths.secrets, name) for name in SECRETS}


def installation_id(paths: Paths) -> str:
    """8 hex digits, made once; everything that we make on this machine bears them."""
    path = paths.data / "installation"
    if path.exists():
        return path.read_text(encoding="ascii").strip()
    made = secrets.token_hex(4)
    write_private(path, made + "\n")
    return made


def running_services(paths: Paths) -> list[str]:
    """Services of an earlier supervisor that still run."""
    return [name for name in SERVICES if recall(paths.runtime.parent / f"{name}.pid") is not None]


def read_runtime(paths: Paths) -> Runtime | None:
    """What the last `up` decided; None when there was none, or another version wrote it."""
    try:
        return Runtime.model_validate_json(paths.runtime.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def read_secret_text(paths: Paths, name: str) -> str:
    """One secret's line."""
    return (paths.secrets / name).read_text(encoding="utf-8").strip()
