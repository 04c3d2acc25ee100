"""From `ending` to `ended`: stop what the hub left running, and free slots only when all is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.core.lease import EndReason
from allotment_spawner.engines.base import Engine, Workload

from allotment_hub.broker.services.ending import finish, mark_stopped, set_note
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.posting import Posting
from allotment_hub.broker.store.records import Device, Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Stopping"]

_log = logging.getLogger(__name__)

_HUB_STOPS_S = 2
_BY_HUB = frozenset({EndReason.STOPPED, EndReason.CANCELLED, EndReason.START_FAILED})


class Stopping:
    """`round` looks at every ending lease once, with an engine look and an agent look made in that order."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        observations: Observations,
        jobs: Jobs,
        posting: Posting,
        grace_s: float,
        clock: Callable[[], datetime],
        on_step: Callable[[str], None],
        kick: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._store = store
        self._seen = observations
        self._jobs = jobs
        self._posting = posting
        self._grace_s = grace_s
        self._clock = clock
        self._on_step = on_step
        self._kick = kick
        self._was_running: set[str] = set()

    async def look_at(self, lease: Lease) -> None:
        """One ending lease: stop its workload, record that, free its devices or note what is in the way."""
        if self._jobs.running(f"cut-{lease.id}"):
            return
        if self._seen.engine_problem is not None:
            await self._note(lease, "The engine does not answer, so it is not known whether it still runs.")
            return
        workloads = self._seen.workloads.get(lease.id, ())
        if workloads:
            self._was_running.add(lease.id)
            self._stop_all(lease, workloads)
            return
        await self._gone(lease)

    async def _gone(self, lease: Lease) -> None:
        """Nothing with this lease exists any more. One transaction where the devices are free, too."""
        stopped_at: datetime | None = None
        if lease.granted_at is not None and lease.stopped_at is None:
            # gone at the first look: the spawner removed it before it told us, so that is when it stopped
            seen_running = lease.id in self._was_running or lease.ending_at is None
            stopped_at = self._clock() if seen_running else lease.ending_at
        self._was_running.discard(lease.id)
        obstacle = self._obstacle(lease)

        def work(tx: Transaction) -> None:
            if stopped_at is not None:
                mark_stopped(tx, lease.id, stopped_at)
            if obstacle is None:
                finish(tx, lease.id, self._clock(), self._posting.last)
            elif lease.note != obstacle:
                set_note(tx, lease.id, obstacle)

        if obstacle is None or stopped_at is not None or lease.note != obstacle:
            await self._store.write("finish" if obstacle is None else "stopped", work)

    def _stop_all(self, lease: Lease, workloads: Sequence[Workload]) -> None:
        """The hub removes its own workload first; what it forgot or failed to stop we stop a little later."""
        now = self._clock()
        patience = timedelta(seconds=_HUB_STOPS_S if lease.end_reason in _BY_HUB else 0)
        # an end that is still to come was written before the clock was set back: no patience for that
        if lease.ending_at is not None and timedelta(0) <= now - lease.ending_at < patience:
            return
        for workload in workloads:
            self.stop(workload.engine_ref)

    def stop(self, engine_ref: str) -> None:
        """End one workload in the background; asked again next round when the engine did not answer."""

        async def work() -> None:
            self._on_step("stop.before")
            try:
                await self._engine.stop(engine_ref, grace_s=self._grace_s)
            except EngineUnavailable as error:
                _log.warning("workload not stopped", extra={"ref": engine_ref, "why": error.sentence})
                return
            self._on_step("stop.after")
            # soon, not now: this job's key must be free before the next round may start it again
            asyncio.get_running_loop().call_soon(self._kick)

        self._jobs.start(f"stop-{engine_ref}", work)

    def _obstacle(self, lease: Lease) -> str | None:
        """Why the devices cannot be handed on yet; None when they are known to be free."""
        if not lease.devices:
            return None
        inventory = self._seen.inventory
        if self._seen.agent_problem is not None or inventory is None:
            return "The agent does not answer, so it is not known whether the device is free."
        if lease.boot_id is not None and lease.boot_id != inventory.boot_id:
            return None  # the machine was restarted: nothing of that time runs any more
        for device in lease.devices:
            found = self._on_device(device)
            if found is not None:
                return found
        return None

    def _on_device(self, device: Device) -> str | None:
        assert self._seen.inventory is not None
        if device.uuid is None:
            return None  # never cut to the end, so never handed to anybody
        gpu = next((gpu for gpu in self._seen.inventory.gpus if gpu.uuid == device.gpu_uuid), None)
        if gpu is None:
            return f"GPU {device.gpu_uuid} does not show up, so it is not known whether it is free."
        if gpu.problem is not None:
            return f"The GPU is out of order: {gpu.problem}"
        for process in gpu.processes:
            if process.device_uuid == device.uuid:
                name = f" ({process.name})" if process.name else ""
                return f"Process {process.pid}{name} is still on the device."
        return None

    async def _note(self, lease: Lease, note: str) -> None:
        if lease.note != note:
            await self._store.write("note", lambda tx: set_note(tx, lease.id, note))
