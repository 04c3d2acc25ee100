"""Everything `up` decides before the first process starts: runtime.json and host.json."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from allotment_spawner.disk.roots import split_template

from allotment_hub.catalog import Catalog
from allotment_hub.host.checkout import CHECKOUT, code_stamp, version
from allotment_hub.host.disk_checks import floor_findings
from allotment_hub.host.docker_host import DockerHost
from allotment_hub.host.engine import EngineChoice, choose_engine
from allotment_hub.host.errors import HostError
from allotment_hub.host.files import write_private
from allotment_hub.host.hardware import GpuChoice, choose_gpus
from allotment_hub.host.layout import installation_id, running_services
from allotment_hub.host.node import ensure_proxy, find_node
from allotment_hub.host.options import UpOptions
from allotment_hub.host.ports import choose_ports, require_port
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.specs import needs_root
from allotment_hub.host.unix_account import STAYS_ROOT, check_account, ordinary, socket_group
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Plan", "make_plan"]

PREFIX = "/services/allotment/"


@dataclass(frozen=True, slots=True)
class Plan:
    """What will run, not yet written down; `notes` are the sentences to print."""

    settings: HostSettings
    runtime: Runtime
    notes: tuple[str, ...]

    def save(self, paths: Paths) -> None:
        self.settings.save(paths.data)
        write_private(paths.runtime, self.runtime.model_dump_json(indent=2) + "\n")


def make_plan(
    options: UpOptions,
    *,
    paths: Paths,
    site: Site,
    catalog: Catalog,
    user: str | None,
    say: Callable[[str], None],
) -> Plan:
    """Detect engine and hardware, choose ports and addresses. `HostError` when it cannot work."""
    gpus = choose_gpus(options.gpus)
    installation = installation_id(paths)
    docker = DockerHost(
        settings=site.docker, installation=installation, version=version(), real_gpus=gpus.gpus == "nvml"
    )
    engine = choose_engine(options, catalog, docker, checkout=CHECKOUT)
    node = find_node()
    script = ensure_proxy(CHECKOUT / "deploy" / "proxy", node, say)
    settings = _settings(options, paths=paths, engine=engine, node=node.node, script=script)
    settings = _with_user(settings, site=site, user=user, docker=engine.engine == "docker")
    if engine.engine == "docker":
        settings = _with_folders(settings, site=site, paths=paths, installation=installation)
    runtime = _runtime(
        options,
        paths=paths,
        site=site,
        settings=settings,
        engine=engine,
        gpus=gpus,
        installation=installation,
    )
    notes = [engine.sentence, gpus.sentence, *_rights(settings), *_room(site, paths, settings)]
    if engine.engine == "docker":
        notes += _homes(site)
        ports = (settings.hub_port, settings.broker_port, settings.port)
        notes.append(docker.close_ports(ports=ports))
    return Plan(settings=settings, runtime=runtime, notes=tuple(notes))


def _settings(
    options: UpOptions, *, paths: Paths, engine: EngineChoice, node: str, script: Path
) -> HostSettings:
    host = engine.inner_host
    hub, broker, proxy_api = _inner_ports(options, paths=paths, host=host)
    return HostSettings(
        bind=options.bind,
        port=options.port,
        inner_host=host,
        hub_port=hub,
        broker_port=broker,
        proxy_api_port=proxy_api,
        tls_cert=str(options.tls_cert) if options.tls_cert else None,
        tls_key=str(options.tls_key) if options.tls_key else None,
        node=node,
        proxy_script=str(script),
        code=code_stamp(),
    )


def _with_user(settings: HostSettings, *, site: Site, user: str | None, docker: bool) -> HostSettings:
    """Tried before anything starts: what this account must be able to read and reach."""
    account = ordinary(user)
    if account is None:
        return replace(settings, user=user)
    tls = [] if needs_root(settings.port) else [settings.tls_cert, settings.tls_key]
    reads = [settings.node, settings.proxy_script, *(name for name in tls if name)]
    check_account(account, reads=[Path(name) for name in reads])
    group = socket_group(site.docker.socket, account) if docker else None
    return replace(settings, user=user, docker_group=group)


def _with_folders(settings: HostSettings, *, site: Site, paths: Paths, installation: str) -> HostSettings:
    """What the agent is told: it works nowhere else, whoever asks."""
    home = site.docker.home
    homes = None if home == "volume" else str(split_template(home, home)[0])
    return replace(settings, scratch=str(paths.scratch(site.scratch.path, installation)), homes=homes)


def _room(site: Site, paths: Paths, settings: HostSettings) -> list[str]:
    """Said at once: it starts, but would refuse every session."""
    low = [one for one in floor_findings(site, paths, settings) if one.level == "error"]
    return [f"{one.what} {one.remedy}" for one in low]


def _rights(settings: HostSettings) -> list[str]:
    """Who runs what, where root starts it."""
    if os.geteuid() != 0:
        return []
    account = ordinary(settings.user)
    if account is None:
        return [" ".join(STAYS_ROOT)]
    if needs_root(settings.port):
        what = f"port {settings.port} needs root, so the proxy stays root as the agent does"
        return [f"Broker and hub run as {account.name}; {what}."]
    return [f"Proxy, broker and hub run as {account.name}; only the agent stays root."]


def _homes(site: Site) -> list[str]:
    """Where nobody here may give a folder to whom it is for; root's agent may."""
    home, homes = site.docker.home, site.homes
    ours = homes.owner == "fixed" and homes.uid == os.geteuid()
    if home == "volume" or os.geteuid() == 0 or ours:
        return []
    whose = f"user {homes.uid}" if homes.owner == "fixed" else "their people"
    return [f"This account cannot give folders in {home} to {whose}: make new homes as root."]


def _inner_ports(options: UpOptions, *, paths: Paths, host: str) -> tuple[int, int, int]:
    """The ports of the last time when they can be used again: running sessions know them."""
    old = HostSettings.load(paths.data)
    ours = set(running_services(paths))
    if not (old is not None and "proxy" in ours and (old.bind, old.port) == (options.bind, options.port)):
        require_port(options.bind, options.port, option="--port")
    if old is None or old.inner_host != host:
        hub, broker, proxy_api = choose_ports(host, 3, avoid=frozenset({options.port}))
        return hub, broker, proxy_api
    for service, address, port in (
        ("hub", host, old.hub_port),
        ("broker", host, old.broker_port),
        ("proxy", "127.0.0.1", old.proxy_api_port),
    ):
        if service not in ours:
            _require_inner(address, port, paths)
    return old.hub_port, old.broker_port, old.proxy_api_port


def _require_inner(host: str, port: int, paths: Paths) -> None:
    try:
        require_port(host, port, option="--port")
    except HostError:
        raise HostError(
            f"Port {port} on {host}, which sessions may know, is in use by another program; stop it, or "
            f"remove {paths.runtime.parent / 'host.json'} to choose anew (sessions lose their connection)."
        ) from None


def _runtime(
    options: UpOptions,
    *,
    paths: Paths,
    site: Site,
    settings: HostSettings,
    engine: EngineChoice,
    gpus: GpuChoice,
    installation: str,
) -> Runtime:
    hub_api = f"http://{settings.inner_host}:{settings.hub_port}/hub/api"
    return Runtime(
        installation=installation,
        engine="docker" if engine.engine == "docker" else "local",
        gpus=gpus.gpus,
        public_url=(site.public_url or _public_url(settings)).rstrip("/"),
        hub_api_url=hub_api,
        broker_host=settings.inner_host,
        broker_port=settings.broker_port,
        broker_url_for_workloads=f"http://{settings.inner_host}:{settings.broker_port}{PREFIX}",
        hub_api_url_for_workloads=hub_api,
        proxy_api_url=f"http://127.0.0.1:{settings.proxy_api_port}",
        agent_socket=str(paths.agent_socket),
        environments=dict(engine.environments),
        images_here=engine.images_here,
        trust_users=options.trust_users or site.local.trust_users,
        request_devices=engine.request_devices,
    )


def _public_url(settings: HostSettings) -> str:
    """As people would type it: the machine's name where it listens on every address."""
    if settings.bind not in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return settings.local_url
    return f"{'https' if settings.tls_cert else 'http'}://{socket.getfqdn()}:{settings.port}"
