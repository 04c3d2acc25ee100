"""What each service is: its command, environment and the sign that it is ready."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import allotment_hub
from allotment_hub.host.docker_host import CDI_FOLDER
from allotment_hub.host.probes import Probe, http_probe, socket_probe
from allotment_hub.host.settings import HostSettings
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime

__all__ = ["SERVICES", "ServiceSpec", "base_env", "service_specs"]

SERVICES = ("proxy", "agent", "broker", "hub")
"""In the order in which they start; they stop in the other direction."""

CONFIG_FILE = Path(allotment_hub.__file__).with_name("jupyterhub_config.py")
_DROPPED = ("JUPYTERHUB_", "CONFIGPROXY_", "ALLOTMENT_", "JPY_")


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """`recipe` changes when a running one must be replaced: other command, other code."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    ready: Probe
    recipe: str


def service_specs(
    *,
    paths: Paths,
    settings: HostSettings,
    runtime: Runtime,
    secrets: Mapping[str, str],
    env: Mapping[str, str],
) -> list[ServiceSpec]:
    """All services in the order of their start."""
    base = base_env(env)
    broker = f"http://{_bracketed(runtime.broker_host)}:{runtime.broker_port}/services/allotment/health"
    made = {
        "proxy": (
            proxy_argv(settings, runtime),
            {**base, "CONFIGPROXY_AUTH_TOKEN": secrets["proxy"]},
            http_probe(f"{runtime.proxy_api_url}/api/routes", token=secrets["proxy"]),
        ),
        "agent": (agent_argv(paths, runtime), base, socket_probe(paths.agent_socket)),
        "broker": (broker_argv(paths), base, http_probe(broker, key="ready")),
        "hub": (
            (sys.executable, "-m", "jupyterhub", "-f", str(CONFIG_FILE)),
            {**base, "ALLOTMENT_DATA": str(paths.data)},
            http_probe(f"{runtime.hub_api_url}/"),
        ),
    }
    return [
        ServiceSpec(
            name=name,
            argv=made[name][0],
            env=made[name][1],
            cwd=paths.hub if name == "hub" else paths.data,
            log=paths.logs / f"{name}.log",
            ready=made[name][2],
            recipe=_recipe(made[name][0], settings.code, runtime),
        )
        for name in SERVICES
    ]


def broker_argv(paths: Paths) -> tuple[str, ...]:
    return (_script("allotment-broker"), "--data-dir", str(paths.data))


def proxy_argv(settings: HostSettings, runtime: Runtime) -> tuple[str, ...]:
    hub = runtime.hub_api_url.removesuffix("/hub/api")
    argv = [
        settings.node,
        settings.proxy_script,
        "--ip",
        settings.bind,
        "--port",
        str(settings.port),
        "--api-ip",
        "127.0.0.1",
        "--api-port",
        str(settings.proxy_api_port),
        "--default-target",
        hub,
        "--error-target",
        f"{hub}/hub/error",
        "--log-level",
        "warn",
    ]
    if settings.tls_cert and settings.tls_key:
        argv += ["--ssl-cert", settings.tls_cert, "--ssl-key", settings.tls_key]
    return tuple(argv)


def agent_argv(paths: Paths, runtime: Runtime) -> tuple[str, ...]:
    argv = [
        _script("allotment-agent"),
        "--socket",
        str(paths.agent_socket),
        "--state-dir",
        str(paths.agent_state),
        "--gpus",
        runtime.gpus,
    ]
    if runtime.gpus == "nvml" and runtime.engine == "docker" and os.geteuid() == 0:
        argv += ["--cdi-dir", CDI_FOLDER]
    return tuple(argv)


def base_env(env: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without another hub's variables, our own programs first on PATH."""
    kept = {key: value for key, value in env.items() if not key.startswith(_DROPPED)}
    own = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join([own, kept.get("PATH", os.defpath)])
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _recipe(argv: tuple[str, ...], code: str, runtime: Runtime) -> str:
    """Images found or missing do not matter to a running proxy, but hub and broker read them at start."""
    text = json.dumps([argv, code, runtime.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
