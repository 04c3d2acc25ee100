"""Which broker to talk to, and as whom: from the environment, or from an installation's own files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from allotment.errors import NotConfigured

__all__ = ["Settings", "default_data_dir", "find_settings"]

PREFIX = "/services/allotment/"


@dataclass(frozen=True, slots=True)
class Settings:
    """`url` is the broker's base and ends in `/services/allotment/`; `hub_url` is None when unknown.

    `certificate`: what an installation on this machine serves itself; it is trusted, whatever its name.
    """

    url: str
    token: str
    hub_url: str | None
    source: str
    """Where the settings were found, in words."""
    certificate: Path | None = None

    def __repr__(self) -> str:
        return f"Settings(url={self.url!r}, source={self.source!r})"


def default_data_dir(env: Mapping[str, str]) -> Path:
    """The data directory that `deploy/up` uses: $ALLOTMENT_DATA, else below $XDG_DATA_HOME."""
    if env.get("ALLOTMENT_DATA"):
        return Path(env["ALLOTMENT_DATA"]).expanduser()
    base = env.get("XDG_DATA_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "share")
    return Path(base) / "allotment"


def find_settings(env: Mapping[str, str], *, data_dir: Path | None = None) -> Settings:
    """A data directory that was named wins; then the environment; then the default data directory.

    Raises `NotConfigured` when there is nothing to go by, or a file cannot be read.
    """
    if data_dir is not None:
        return _from_data_dir(data_dir)
    if env.get("ALLOTMENT_URL"):
        return _from_environment(env)
    found = default_data_dir(env)
    if (found / "connection.json").exists():
        return _from_data_dir(found)
    if env.get("JUPYTERHUB_API_TOKEN"):
        raise NotConfigured(
            "This notebook runs under a JupyterHub that does not use Allotment (ALLOTMENT_URL is not set).",
            "Set ALLOTMENT_URL and ALLOTMENT_TOKEN to use an Allotment elsewhere.",
        )
    raise NotConfigured(
        f"There is no Allotment here: ALLOTMENT_URL is not set and {found}/connection.json does not exist.",
        "Start one with ./deploy/up, name its folder with --data-dir, or set ALLOTMENT_URL and "
        "ALLOTMENT_TOKEN.",
    )


def _from_environment(env: Mapping[str, str]) -> Settings:
    url = env["ALLOTMENT_URL"].rstrip("/") + "/"
    if urlsplit(url).scheme not in {"http", "https"}:
        raise NotConfigured(
            f"ALLOTMENT_URL is not a web address: {url}",
            "It looks like http://host:8000/services/allotment/.",
        )
    if not url.endswith(PREFIX):
        url = url.rstrip("/") + PREFIX
    token = env.get("ALLOTMENT_TOKEN") or env.get("JUPYTERHUB_API_TOKEN")
    if not token:
        raise NotConfigured(
            "ALLOTMENT_URL is set, but there is no token.",
            "Make one on the hub's token page and set ALLOTMENT_TOKEN.",
        )
    # Inside a session the broker's address is not the hub's.
    hub_api = "" if env.get("ALLOTMENT_TOKEN") else env.get("JUPYTERHUB_API_URL", "")
    hub_url = hub_api.rstrip("/").removesuffix("/hub/api") or None
    return Settings(url=url, token=token, hub_url=hub_url, source="the environment")


def _from_data_dir(data_dir: Path) -> Settings:
    path = data_dir.expanduser() / "connection.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        url, token, hub_url = document["broker_url"], document["admin_token"], document["hub_url"]
    except FileNotFoundError:
        raise NotConfigured(
            f"{data_dir} holds no Allotment (connection.json is missing).",
            "Start one with ./deploy/up, or name another folder with --data-dir.",
        ) from None
    except PermissionError:
        raise NotConfigured(
            f"{path} belongs to another account.", "Run this as the account that started Allotment."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotConfigured(
            f"{path} cannot be used ({type(error).__name__}: {error}).",
            "Start ./deploy/up again; it writes the file anew.",
        ) from None
    return Settings(
        url=str(url).rstrip("/") + "/",
        token=str(token),
        hub_url=str(hub_url),
        source=str(path),
        certificate=_certificate(data_dir),
    )


def _certificate(data_dir: Path) -> Path | None:
    """The certificate that `up` was started with; None without one, or when that is unknown."""
    try:
        document = json.loads((data_dir.expanduser() / "run" / "host.json").read_text(encoding="utf-8"))
        found = document["tls_cert"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(found) if found and Path(found).is_file() else None
