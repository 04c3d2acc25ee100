"""The samples of one session between two times, at a resolution that suits them."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from allotment_spawner.core.errors import BadOptions
from allotment_spawner.wire import DeviceView, LeaseView

from allotment_hub.broker.metrics.fields import DEVICE, WORKLOAD, Kind
from allotment_hub.broker.metrics.figures import (
    Axis,
    of_samples,
    of_windows,
    overall_of,
    sample_axis,
    window_axis,
)
from allotment_hub.broker.metrics.reading import Reader, Sample, Total
from allotment_hub.broker.metrics.recording import device_name
from allotment_hub.broker.services.sample_views import DeviceSeries, Figures, LeaseMetrics
from allotment_hub.site import MetricSettings

__all__ = ["Series"]

_log = logging.getLogger(__name__)
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_STEPS: Final = (60, 300, 900, 3600, 14400, 86400)
_FEW: Final = 500
"""Windows that are answered when no resolution is asked for."""
_MANY: Final = 5000
_ROUNDED_S: Final = 0.1
Level = Literal["raw", "minute", "hour"]


@dataclass(frozen=True, slots=True)
class _Ask:
    lease: LeaseView
    from_s: float
    to_s: float
    step_s: int
    level: Level
    life: tuple[float, float]


class Series:
    """Implements `SeriesApi`; reads on a thread of its own, so that nobody waits for the disk."""

    def __init__(self, *, path: Path, settings: MetricSettings, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-reader")

    async def of(
        self, lease: LeaseView, *, since: datetime | None, until: datetime | None, step_s: int | None
    ) -> LeaseMetrics:
        ask = self._ask(lease, since, until, step_s)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, ask)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _ask(
        self, lease: LeaseView, since: datetime | None, until: datetime | None, step_s: int | None
    ) -> _Ask:
        now = self._clock()
        ended = lease.stopped_at or lease.ended_at or now
        began = lease.active_at or ended
        ended = max(began, ended)  # a clock that was set back
        # of one that runs, the sample just taken is kept with a time that was rounded up
        life = (began.timestamp(), ended.timestamp() + (0.0 if lease.stopped_at else _ROUNDED_S))
        low = life[0] if since is None else since.timestamp()
        high = life[1] if until is None else until.timestamp()
        if high < low:
            raise BadOptions("The end of that time lies before its beginning.", "Exchange from and to.")
        level, step_s = self._resolution(low, high, step_s, now.timestamp())
        return _Ask(lease, low, high, step_s, level, life)

    def _resolution(self, from_s: float, to_s: float, step_s: int | None, now_s: float) -> tuple[Level, int]:
        """What is asked for, or the finest that is still kept and answers few windows."""
        kept, length_s = self._settings, to_s - from_s
        if step_s is None:
            raw = from_s >= now_s - kept.keep_raw_h * _HOUR_S and length_s <= _FEW * kept.every_s
            kept_minutes = from_s >= now_s - kept.keep_minutes_days * _DAY_S
            fits = (step for step in _STEPS if length_s / step <= _FEW and (kept_minutes or step >= _HOUR_S))
            step_s = 1 if raw else next(fits, _STEPS[-1])
        elif step_s >= _MINUTE_S:
            unit = _HOUR_S if step_s >= _HOUR_S else _MINUTE_S
            step_s = unit * round(step_s / unit)
        if length_s / max(step_s, kept.every_s) > _MANY:
            raise BadOptions(
                f"That is more than {_MANY} values of each figure.",
                "Ask for a larger step, or for less time.",
            )
        if step_s < _MINUTE_S:
            return "raw", step_s
        return ("hour" if step_s >= _HOUR_S else "minute"), step_s

    def _read(self, ask: _Ask) -> LeaseMetrics:
        try:
            with Reader.of(self._path) as reader:
                return _Shown(reader, ask, self._settings.every_s).whole()
        except sqlite3.Error:
            _log.warning("samples could not be read", exc_info=True)
            return _Shown(None, ask, self._settings.every_s).whole()


class _Shown:
    """One answer. `reader` None: nothing is known."""

    def __init__(self, reader: Reader | None, ask: _Ask, every_s: float) -> None:
        self._reader = reader
        self._ask = ask
        self._every_s = every_s

    def whole(self) -> LeaseMetrics:
        ask = self._ask
        axis = self._axis()
        return LeaseMetrics(
            lease=ask.lease.id,
            from_=_time(ask.from_s),
            to=_time(ask.to_s),
            level=ask.level,
            step_s=self._every_s if ask.level == "raw" else ask.step_s,
            at=[_time(at) for at in axis.at_s],
            workload=self._figures("workload", ask.lease.id, axis),
            devices=[self._device(*one, axis) for one in enumerate(ask.lease.devices)],
            overall=overall_of(WORKLOAD, self._total("workload", ask.lease.id)),
        )

    def _axis(self) -> Axis:
        ask = self._ask
        if ask.level != "raw":
            return window_axis(ask.from_s, ask.to_s, ask.step_s, ask.life)
        devices = [device_name(ask.lease.id, ordinal) for ordinal in range(len(ask.lease.devices))]
        of_devices = [self._samples("device", name) for name in devices]
        return sample_axis([self._samples("workload", ask.lease.id), *of_devices])

    def _device(self, ordinal: int, device: DeviceView, axis: Axis) -> DeviceSeries:
        name = device_name(self._ask.lease.id, ordinal)
        whole = device.uuid == device.gpu_uuid
        return DeviceSeries(
            uuid=device.uuid,
            gpu_uuid=device.gpu_uuid,
            profile=device.profile,
            figures=self._figures("device", name, axis),
            card=None if whole else self._figures("gpu", device.gpu_uuid, axis),
            overall=overall_of(DEVICE, self._total("device", name)),
        )

    def _figures(self, kind: Kind, name: str, axis: Axis) -> Figures:
        ask, layout = self._ask, WORKLOAD if kind == "workload" else DEVICE
        if ask.level == "raw":
            return of_samples(layout, self._samples(kind, name), axis)
        windows = {}
        if self._reader is not None:
            # only of the session's own time: a card works for others before it and goes on afterwards
            low, high = max(ask.from_s, ask.life[0]), min(ask.to_s, ask.life[1])
            found = self._reader.windows(kind, name, low, high, ask.step_s, inside=kind == "gpu")
            windows = dict(found)
        return of_windows(layout, windows, axis, ask.step_s)

    def _samples(self, kind: Kind, name: str) -> Sequence[Sample]:
        if self._reader is None:
            return []
        low, high = max(self._ask.from_s, self._ask.life[0]), min(self._ask.to_s, self._ask.life[1])
        return self._reader.samples(kind, name, low, high)

    def _total(self, kind: Kind, name: str) -> Total | None:
        return None if self._reader is None else self._reader.total(kind, name)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
