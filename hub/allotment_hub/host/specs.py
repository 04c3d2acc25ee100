"""What each service is: its command, environment and the sign that it is ready."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import allotment_hub
from allotment_hub.host.docker_host import CDI_FOLDER
from allotment_hub.host.probes import Probe, http_probe, socket_probe
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.unix_account import RunAs, UnixAccount, ordinary
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime

__all__ = ["SERVICES", "ServiceSpec", "account_env", "base_env", "needs_root", "service_specs"]

SERVICES = ("proxy", "agent", "broker", "hub")
"""In the order in which they start; they stop in the other direction."""

CONFIG_FILE = Path(allotment_hub.__file__).with_name("jupyterhub_config.py")
_DROPPED = ("JUPYTERHUB_", "CONFIGPROXY_", "ALLOTMENT_", "JPY_")
_ROOTS = ("SUDO_", "XDG_", "DBUS_", "MAIL", "HOME", "USER", "LOGNAME")


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """`recipe` changes when a running one must be replaced: other command, other code, other account."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    ready: Probe
    recipe: str
    run_as: RunAs | None = None


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
    account = ordinary(settings.user)
    plain, run_as = account_env(base, account), _run_as(settings, account)
    broker = f"http://{_bracketed(runtime.broker_host)}:{runtime.broker_port}/services/allotment/health"
    made = {
        "proxy": (
            proxy_argv(settings, runtime),
            {**plain, "CONFIGPROXY_AUTH_TOKEN": secrets["proxy"]},
            http_probe(f"{runtime.proxy_api_url}/api/routes", token=secrets["proxy"]),
        ),
        "agent": (agent_argv(paths, runtime, account, settings), base, socket_probe(paths.agent_socket)),
        "broker": (broker_argv(paths), plain, http_probe(broker, key="ready")),
        "hub": (
            (sys.executable, "-m", "jupyterhub", "-f", str(CONFIG_FILE)),
            {**plain, "ALLOTMENT_DATA": str(paths.data)},
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
            recipe=_recipe(made[name][0], settings.code, runtime, run_as[name]),
            run_as=run_as[name],
        )
        for name in SERVICES
    ]


def needs_root(port: int) -> bool:
    """Whether an ordinary account may not listen there."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text(encoding="ascii"))
    except (OSError, ValueError):
        first = 1024
    return port < first


def _run_as(settings: HostSettings, account: UnixAccount | None) -> dict[str, RunAs | None]:
    """Only broker and hub talk to Docker. The proxy stays root where its port needs that."""
    if account is None:
        return dict.fromkeys(SERVICES)
    groups = () if settings.docker_group is None else (settings.docker_group,)
    inner = RunAs(uid=account.uid, gid=account.gid, groups=groups)
    proxy = None if needs_root(settings.port) else RunAs(uid=account.uid, gid=account.gid)
    return {"proxy": proxy, "agent": None, "broker": inner, "hub": inner}


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


def agent_argv(
    paths: Paths,
    runtime: Runtime,
    account: UnixAccount | None,
    settings: HostSettings,
) -> tuple[str, ...]:
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
    if account is not None:
        argv += ["--group", account.group]
    return (*argv, *folder_argv(settings))


def folder_argv(settings: HostSettings) -> tuple[str, ...]:
    """Where the agent may make folders."""
    known = (("scratch", settings.scratch), ("homes", settings.homes))
    return tuple(word for name, path in known if path for word in ("--folders", f"{name}={path}"))


def base_env(env: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without another hub's variables, our own programs first on PATH."""
    kept = {key: value for key, value in env.items() if not key.startswith(_DROPPED)}
    own = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join([own, kept.get("PATH", os.defpath)])
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


def account_env(env: Mapping[str, str], account: UnixAccount | None) -> dict[str, str]:
    """Root's environment made that of another account."""
    if account is None:
        return dict(env)
    kept = {key: value for key, value in env.items() if not key.startswith(_ROOTS)}
    return {**kept, "HOME": account.home, "USER": account.name, "LOGNAME": account.name}


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _recipe(argv: tuple[str, ...], code: str, runtime: Runtime, run_as: RunAs | None) -> str:
    """Images found or missing do not matter to a running proxy, but hub and broker read them at start."""
    text = json.dumps(
        [argv, code, runtime.model_dump(mode="json"), run_as and asdict(run_as)], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
