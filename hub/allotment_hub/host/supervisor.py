"""Keeps proxy, agent, broker and hub running; sessions are not its children and outlive it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from allotment_hub.host.files import write_private
from allotment_hub.host.lock import Lock
from allotment_hub.host.probes import request
from allotment_hub.host.rotation import rotate
from allotment_hub.host.service import Service
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.specs import ServiceSpec, service_specs
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime

__all__ = ["Supervisor", "main", "state_path"]

TICK_S = 0.2
NEXT_AFTER_S = 30.0
"""A service that is not ready by then no longer holds back those that start after it."""
STOP_GRACE_S = 10.0
ROTATE_EVERY_S = 60.0


def state_path(data: Path) -> Path:
    """supervisor.json: pids, readiness and deaths of each service."""
    return data / "run" / "supervisor.json"


class Supervisor:
    """`clock` gives seconds that only go forward; `refresh_routes` makes the hub fill a new proxy."""

    def __init__(
        self,
        *,
        data: Path,
        specs: Sequence[ServiceSpec],
        clock: Callable[[], float],
        refresh_routes: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        self._data = data
        self._clock = clock
        self._refresh_routes = refresh_routes
        self._services = [
            Service(spec=spec, pid_file=data / "run" / f"{spec.name}.pid", log=log) for spec in specs
        ]
        self._logs = [spec.log for spec in specs]
        self._log = log
        self._trouble = ""
        self._unwritten = False
        self._routes_due = False
        self._next_rotation = 0.0

    def adopt(self) -> None:
        """Take over what an earlier supervisor left."""
        for service in self._services:
            service.adopt(now=self._clock())
        self._write_state()

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set. A full disk, for instance, must not end the services: said once, tried on."""
        while not stop.is_set():
            try:
                self.tick()
                self._trouble = ""
            except OSError as error:
                if self._trouble != str(error):
                    self._trouble = str(error)
                    self._log(f"trouble, the services go on: {error}")
            stop.wait(TICK_S)

    def tick(self) -> None:
        """One round over all services."""
        for service in self._services:
            now = self._clock()
            if service.process is None and not self._may_start(service, now):
                break
            self._unwritten = service.check(now=now) or self._unwritten
        if self._unwritten:
            self._write_state()
            self._unwritten = False
        self._routes()
        self._rotate()

    def stop(self) -> None:
        """End all, the last started first; those that were never started are left alone."""
        for service in reversed(self._services):
            service.stop(grace_s=STOP_GRACE_S)
        state_path(self._data).unlink(missing_ok=True)

    def _may_start(self, service: Service, now: float) -> bool:
        for earlier in self._services:
            if earlier is service:
                return True
            if not earlier.ready and not earlier.backoff.deaths and now - earlier.started < NEXT_AFTER_S:
                return False
        return True

    def _routes(self) -> None:
        """A new proxy knows no routes: the hub would tell it only at its next look, up to 300 s later."""
        by_name = {service.name: service for service in self._services}
        proxy, hub = by_name.get("proxy"), by_name.get("hub")
        if proxy is None or hub is None:
            return
        if proxy.fresh and proxy.ready:
            proxy.fresh, self._routes_due = False, True
        if self._routes_due and proxy.ready and hub.ready:
            self._routes_due = not self._refresh_routes()

    def _rotate(self) -> None:
        if self._clock() >= self._next_rotation:
            self._next_rotation = self._clock() + ROTATE_EVERY_S
            for path in self._logs:
                rotate(path)

    def _write_state(self) -> None:
        services = {
            service.name: {
                "pid": service.process.pid if service.process else None,
                "ready": service.ready,
                "deaths": service.backoff.deaths,
            }
            for service in self._services
        }
        text = json.dumps({"pid": os.getpid(), "services": services}, indent=2)
        write_private(state_path(self._data), text + "\n")


def build(*, paths: Paths, log: Callable[[str], None]) -> Supervisor:
    """From what `up` wrote below the data directory."""
    settings = HostSettings.load(paths.data)
    if settings is None:
        raise SystemExit("host.json is missing or outdated; start with ./deploy/up")
    runtime = Runtime.model_validate_json(paths.runtime.read_text(encoding="utf-8"))
    secrets = {
        name: (paths.secrets / name).read_text(encoding="utf-8").strip() for name in ("proxy", "admin")
    }

    def refresh_routes() -> bool:
        reply = request(f"{runtime.hub_api_url}/proxy", method="POST", token=secrets["admin"], timeout_s=10)
        log(f"routes sent to the proxy: {reply.status or reply.problem}")
        return reply.ok

    return Supervisor(
        data=paths.data,
        specs=service_specs(
            paths=paths, settings=settings, runtime=runtime, secrets=secrets, env=dict(os.environ)
        ),
        clock=time.monotonic,
        refresh_routes=refresh_routes,
        log=log,
    )


def _log(text: str) -> None:
    with contextlib.suppress(OSError):  # its file's disk may be full
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="allotment-supervisor")
    parser.add_argument("--data-dir", type=Path, required=True)
    paths = Paths(data=parser.parse_args(argv).data_dir)
    lock = Lock(paths.data / "run" / "supervisor.lock")
    if not lock.take():
        _log("another supervisor runs here")
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    supervisor = build(paths=paths, log=_log)
    supervisor.adopt()
    try:
        supervisor.run(stop)
    finally:
        supervisor.stop()
        lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
