"""One supervised service: adopt or start it, notice its death, know when it is ready, end it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from allotment_hub.host import processes
from allotment_hub.host.backoff import Backoff
from allotment_hub.host.processes import Process
from allotment_hub.host.specs import ServiceSpec

__all__ = ["Service"]


@dataclass(slots=True)
class Service:
    """`now` is given by the caller, in seconds of a clock that only goes forward."""

    spec: ServiceSpec
    pid_file: Path
    log: Callable[[str], None]
    backoff: Backoff = field(default_factory=Backoff)
    process: Process | None = None
    ready: bool = False
    started: float = 0.0
    due: float = 0.0
    fresh: bool = False
    """Whether it was started (not adopted) and nobody has acted on that yet."""
    _child: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    def adopt(self, *, now: float) -> bool:
        """Take over one that an earlier supervisor left; one made by another recipe is ended instead."""
        found = processes.recall(self.pid_file)
        if found is None:
            return False
        if found.recipe != self.spec.recipe:
            self.log(f"{self.name}: ending the outdated process {found.pid}")
            processes.end(found, grace_s=10)
            processes.forget(self.pid_file)
            return False
        self.log(f"{self.name}: adopted process {found.pid}")
        self.process, self.started = found, now
        return True

    def start(self, *, now: float) -> None:
        spec = self.spec
        spec.cwd.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.process, self._child = processes.start(
            spec.argv, env=spec.env, cwd=spec.cwd, log=spec.log, recipe=spec.recipe, run_as=spec.run_as
        )
        processes.remember(self.pid_file, self.process)
        self.started, self.ready, self.fresh = now, False, True
        self.log(f"{self.name}: started as process {self.process.pid}")

    def check(self, *, now: float) -> bool:
        """Notice a death, start again when due, notice readiness; whether anything changed."""
        if self.process is None:
            if now < self.due:
                return False
            try:
                self.start(now=now)
            except OSError as error:
                self.due = self.backoff.died(started=now, now=now)
                self.log(f"{self.name}: cannot be started ({error}); death {self.backoff.deaths}")
            return True
        if not self.process.alive():
            # a zombie counts as dead, so this never waits for a living one
            code = "" if self._child is None else f" with code {self._child.wait()}"
            self.due = self.backoff.died(started=self.started, now=now)
            self.log(f"{self.name}: process {self.process.pid} ended{code}; death {self.backoff.deaths}")
            self.process, self._child, self.ready = None, None, False
            return True
        if not self.ready and self.spec.ready():
            self.ready = True
            self.log(f"{self.name}: ready after {now - self.started:.1f} s")
            return True
        return False

    def stop(self, *, grace_s: float) -> None:
        if self.process is not None:
            self.log(f"{self.name}: stopping process {self.process.pid}")
            processes.end(self.process, grace_s=grace_s, child=self._child)
        processes.forget(self.pid_file)
        self.process, self._child, self.ready = None, None, False
