"""Waits until a session could start, telling what is ready; says which service keeps it from that."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allotment_hub.host.errors import HostError
from allotment_hub.host.lock import holder
from allotment_hub.host.probes import request, tls_context
from allotment_hub.host.rotation import tail
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.specs import SERVICES
from allotment_hub.paths import Paths

__all__ = ["read_state", "session_problem", "wait_for_services", "wait_for_sessions"]

LIMIT_S = 180.0
DEATHS = 3
_WORDS = {"proxy": "the proxy", "agent": "the GPU agent", "broker": "the broker", "hub": "JupyterHub"}


def read_state(paths: Paths) -> dict[str, Any]:
    """supervisor.json's services; empty when there is none."""
    try:
        document = json.loads((paths.runtime.parent / "supervisor.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    services = document.get("services")
    return services if isinstance(services, dict) else {}


def wait_for_services(paths: Paths, say: Callable[[str], None], *, limit_s: float = LIMIT_S) -> None:
    """Until all are ready; `HostError` when one keeps dying or takes too long."""
    told: set[str] = set()
    limit = time.monotonic() + limit_s
    while True:
        services = read_state(paths)
        for name in SERVICES:
            state = services.get(name, {})
            if state.get("ready") and name not in told:
                told.add(name)
                say(f"{_WORDS[name][:1].upper()}{_WORDS[name][1:]} is ready")
            elif state.get("deaths", 0) >= DEATHS:
                raise HostError(f"{_WORDS[name]} does not stay up{_last_words(paths.logs / f'{name}.log')}")
        if len(told) == len(SERVICES):
            return
        if holder(paths.runtime.parent / "supervisor.lock") is None:
            raise HostError(f"The supervisor ended{_last_words(paths.logs / 'supervisor.log')}")
        if time.monotonic() > limit:
            late = next(name for name in SERVICES if name not in told)
            last = _last_words(paths.logs / f"{late}.log")
            raise HostError(f"{_WORDS[late]} was not ready within {limit_s:.0f} s{last}")
        time.sleep(0.1)


def wait_for_sessions(settings: HostSettings, *, token: str, limit_s: float = 60.0) -> None:
    """Until the public address would start a session; `HostError` says what is missing."""
    limit = time.monotonic() + limit_s
    while (problem := session_problem(settings, token=token)) is not None:
        if time.monotonic() > limit:
            raise HostError(problem)
        time.sleep(0.2)


def session_problem(settings: HostSettings, *, token: str) -> str | None:
    """Why no session could start now, asked as browsers would; None when one could."""
    base, tls = settings.local_url, tls_context(settings.tls_cert)
    hub = request(f"{base}/hub/api/", tls=tls)
    if not hub.ok:
        return f"JupyterHub does not answer at {base} ({hub.status or hub.problem})."
    fleet = request(f"{base}/services/allotment/api/v1/fleet", token=token, tls=tls)
    found = fleet.json()
    if not fleet.ok or not isinstance(found, dict):
        return f"The broker does not answer at {base} ({fleet.status or fleet.problem})."
    for part in ("engine", "agent"):
        state = found.get(part) or {}
        if not state.get("ok"):
            return f"The {part} is not ready: {state.get('problem') or 'no reason given'}"
    flavors = request(f"{base}/services/allotment/api/v1/flavors", token=token, tls=tls)
    listed = flavors.json()
    if not flavors.ok or not isinstance(listed, list):
        return f"The broker does not list its flavors ({flavors.status or flavors.problem})."
    if not any(isinstance(flavor, dict) and _could_serve(flavor) for flavor in listed):
        return "No flavor of the catalogue can be used on this machine; see catalog.yaml and --gpus."
    return None


def _could_serve(flavor: dict[str, Any]) -> bool:
    """Whether this machine could give it to somebody: groups may keep it from the account that asks."""
    gpu = (flavor.get("resources") or {}).get("gpu") or {}
    return bool(flavor.get("available") or flavor.get("total") or gpu.get("kind") == "none")


def _last_words(log: Path) -> str:
    last = tail(log, lines=1)
    return f": {last[0].strip()} (more in {log})." if last else f"; see {log}."
