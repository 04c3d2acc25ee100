"""Everything the broker reads from the data directory at its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from allotment_hub.catalog import Catalog
from allotment_hub.config_loading import ConfigError, load_configuration
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Settings", "load_settings"]


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """`hub_token` is the hub's at the broker, `service_token` the broker's at the hub; no repr: secrets."""

    paths: Paths
    runtime: Runtime
    site: Site
    catalog: Catalog
    hub_token: str
    service_token: str


def load_settings(data: Path) -> Settings:
    """Read and check it all; `ConfigError` names everything that is wrong, with its file."""
    paths = Paths(data)
    findings: list[str] = []
    runtime = _runtime(paths, findings)
    hub_token = _secret(paths, "hub-to-broker", findings)
    service_token = _secret(paths, "broker-service", findings)
    try:
        site, catalog = load_configuration(site=paths.site, catalog=paths.catalog)
    except ConfigError as error:
        raise ConfigError([*findings, *error.findings]) from None
    if findings or runtime is None:
        raise ConfigError(findings)
    return Settings(paths, runtime, site, catalog, hub_token, service_token)


def _runtime(paths: Paths, findings: list[str]) -> Runtime | None:
    try:
        return Runtime.model_validate_json(paths.runtime.read_bytes())
    except OSError as error:
        findings.append(f"{paths.runtime}:1: cannot be read ({error.strerror}); deploy/up writes it")
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        findings.append(f"{paths.runtime}:1: {place}: {first['msg']}; deploy/up writes it")
    return None


def _secret(paths: Paths, name: str, findings: list[str]) -> str:
    path = paths.secrets / name
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        findings.append(f"{path}:1: cannot be read ({type(error).__name__}); deploy/up writes it")
        return ""
    if len(text) < 16:
        findings.append(f"{path}:1: is empty or too short to be a secret; remove it and run deploy/up")
    return text
