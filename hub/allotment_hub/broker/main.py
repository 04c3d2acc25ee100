"""`allotment-broker --data-dir D`: wires the broker together and serves it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from allotment_spawner.engines.base import Engine, Sampler
from allotment_spawner.engines.home_gauge import HomeGauge, LocalHomeGauge
from allotment_spawner.engines.local_samples import LocalSampler
from allotment_spawner.gpu.agent_client import UnixAgent

from allotment_hub.broker import logs
from allotment_hub.broker.app import create_app
from allotment_hub.broker.auth import Auth
from allotment_hub.broker.browser_sessions import BrowserSessions, SignInSeal
from allotment_hub.broker.disk_parts import Room
from allotment_hub.broker.factory import build_broker
from allotment_hub.broker.hub_client import HubClient
from allotment_hub.broker.routes.context import PREFIX, Context
from allotment_hub.broker.services.facade import Broker
from allotment_hub.broker.serving import Server, bind
from allotment_hub.broker.settings import Settings, load_settings
from allotment_hub.broker.store.migrate import NewerDatabase
from allotment_hub.broker.streams import Streams
from allotment_hub.broker.token_answers import TokenAnswers
from allotment_hub.config_loading import ConfigError
from allotment_hub.dashboard.render import Pages

__all__ = ["build_context", "engines_for", "gauge_for", "main", "sampler_for", "serve", "steady"]

BALLAST_BYTES = 16 * 2**20
Clock = Callable[[], datetime]
MEASURE_LIMIT_S = 120.0
_SAMPLED_WITHIN = 0.6
"""Of the time between two rounds of samples."""
_log = logging.getLogger(__name__)


def main() -> None:
    """Exit 2 on a bad configuration or a busy port, 1 when a loop broke, 0 after a signal."""
    parser = argparse.ArgumentParser(prog="allotment-broker", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="the installation's data directory")
    options = parser.parse_args()
    logs.set_up()
    try:
        settings = load_settings(options.data_dir)
    except ConfigError as error:
        sys.stderr.write(f"allotment-broker: the configuration is wrong:\n{error}\n")
        sys.exit(2)
    host, port = settings.runtime.broker_host, settings.runtime.broker_port
    try:
        listening = bind(host, port)
    except OSError as error:
        sys.stderr.write(f"allotment-broker: cannot listen at {host}:{port}: {error.strerror}\n")
        sys.exit(2)
    sys.exit(asyncio.run(serve(settings, listening=listening, clock=_now)))


def _now() -> datetime:
    return datetime.now(UTC)


def steady() -> datetime:
    """For what this process alone remembers: a clock that is set back must not keep a revoked token alive.
    No time of day; only differences mean something."""
    return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=time.monotonic())


async def serve(settings: Settings, *, listening: socket.socket, clock: Clock) -> int:
    """Serve until a signal. Health answers at once; everything else after the first reconcile."""
    hub = HubClient(api_url=settings.runtime.hub_api_url, token=settings.service_token)
    agent = UnixAgent(socket_path=Path(settings.runtime.agent_socket))
    broker = build_broker(
        site=settings.site,
        catalog=settings.catalog,
        runtime=settings.runtime,
        paths=settings.paths,
        agent=agent,
        engines=engines_for(settings),
        hub=hub,
        clock=clock,
        gauge=gauge_for(settings),
        room=room_for(settings, agent),
        sampler=sampler_for(settings),
    )
    context = build_context(settings, broker=broker, hub=hub, clock=steady)
    server = Server(create_app(context), streams=context.streams)
    web = asyncio.ensure_future(server.serve(sockets=[listening]))
    work = asyncio.ensure_future(_work(broker, context))
    try:
        await asyncio.wait({web, work}, return_when=asyncio.FIRST_COMPLETED)
        broken = work.exception() if work.done() else None
        if isinstance(broken, NewerDatabase):
            _log.critical(str(broken))
        elif broken is not None:
            _log.critical("the broker stops because its work broke", exc_info=broken)
        server.stop()
        await web
        return 1 if work.done() else 0
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await broker.close()
        await hub.close()


async def _work(broker: Broker, context: Context) -> None:
    await broker.start()
    context.ready = True
    _log.info("ready")
    await broker.run()


def engines_for(settings: Settings) -> Mapping[str, Engine]:
    """The engines of this installation by name; the Docker client is imported only where it is used."""
    runtime = settings.runtime
    if runtime.engine == "docker":
        from allotment_spawner.engines.docker import DockerEngine  # noqa: PLC0415 - 0.3 s of imports

        docker = DockerEngine(installation=runtime.installation, base_url=settings.site.docker.socket)
        return {docker.name: docker}
    from allotment_spawner.engines.local import LocalEngine  # noqa: PLC0415

    local = LocalEngine(installation=runtime.installation)
    return {local.name: local}


def gauge_for(settings: Settings) -> HomeGauge:
    """What measures homes on this installation's engine."""
    site, runtime = settings.site, settings.runtime
    if runtime.engine == "docker":
        from allotment_spawner.engines.docker_homes import DockerHomeGauge  # noqa: PLC0415 - 0.3 s of imports

        return DockerHomeGauge(
            installation=runtime.installation,
            base_url=site.docker.socket,
            template=site.docker.home,
            rule=site.homes.rule,
            limit_s=MEASURE_LIMIT_S,
        )
    return LocalHomeGauge(homes=settings.paths.homes, limit_s=MEASURE_LIMIT_S)


def sampler_for(settings: Settings) -> Sampler:
    """What tells how hard sessions work on this installation's engine."""
    if settings.runtime.engine == "docker":
        from allotment_spawner.engines.docker_samples import DockerSampler  # noqa: PLC0415 - as above

        deadline_s = _SAMPLED_WITHIN * settings.site.metrics.every_s
        return DockerSampler(base_url=settings.site.docker.socket, deadline_s=deadline_s)
    return LocalSampler()


def room_for(settings: Settings, agent: UnixAgent) -> Room:
    """What minds this machine's disks and folders."""
    if settings.runtime.engine != "docker":
        return Room(folders=agent, ballast_bytes=BALLAST_BYTES)
    from allotment_spawner.engines.docker import DockerEngine  # noqa: PLC0415 - 0.3 s of imports
    from allotment_spawner.engines.docker_scratch import DockerEmptier  # noqa: PLC0415

    installation, socket_url = settings.runtime.installation, settings.site.docker.socket
    engine = DockerEngine(installation=installation, base_url=socket_url)
    emptier = None
    if not _by_root(Path(settings.runtime.agent_socket)):
        emptier = DockerEmptier(installation=installation, base_url=socket_url)
    return Room(folders=agent, emptier=emptier, storage=engine.data_root, ballast_bytes=BALLAST_BYTES)


def _by_root(socket_path: Path) -> bool:
    """Whether root's agent serves there; False also while none does: then a helper does what it can."""
    try:
        return socket_path.stat().st_uid == 0
    except OSError:
        return False


def build_context(settings: Settings, *, broker: Broker, hub: HubClient, clock: Clock) -> Context:
    """What the routes need, not ready yet."""
    auth = Auth(
        hub_token=settings.hub_token,
        answers=TokenAnswers(ask=hub.identify, clock=clock),
        sessions=BrowserSessions(clock=clock),
        operators_group=settings.site.sign_in.operators_group,
    )
    return Context(
        leases=broker.leases,
        fleet=broker.fleet,
        explainer=broker.explainer,
        images=broker.images,
        mounts=broker.mounts,
        datasets=broker.datasets,
        notices=broker.notices,
        last_calls=broker.last_calls,
        homes=broker.homes,
        disk=broker.disk,
        saved=broker.saved,
        series=broker.series,
        corrections=broker.corrections,
        usage=broker.usage,
        budgets=broker.budgets,
        changes=broker.changes,
        monitoring=broker.monitoring,
        hub=hub,
        auth=auth,
        seal=SignInSeal(clock=clock),
        streams=Streams(),
        pages=_pages(settings),
        simulated=_simulated(settings),
        title=settings.site.title,
        currency=settings.site.currency,
        engine=settings.runtime.engine,
        public_url=settings.runtime.public_url,
        version=version("allotment-hub"),
    )


def _pages(settings: Settings) -> Pages:
    return Pages(
        title=settings.site.title,
        currency=settings.site.currency,
        engine=settings.runtime.engine,
        simulated=_simulated(settings),
        prefix=PREFIX,
        version=version("allotment-hub"),
    )


def _simulated(settings: Settings) -> bool:
    return settings.runtime.gpus.startswith("sim:")


if __name__ == "__main__":
    main()
