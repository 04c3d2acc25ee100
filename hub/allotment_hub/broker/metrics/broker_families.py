"""Queue, starts, books and the broker's own health as Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from allotment_spawner.core.errors import BudgetExhausted, DiskFull, LimitReached, TooManySessions
from allotment_spawner.core.lease import LeaseState
from prometheus_client.core import HistogramMetricFamily, Metric

from allotment_hub.broker.metrics.families import Spec, counter, families, gauge
from allotment_hub.broker.metrics.sums import OutageSum, Sums
from allotment_hub.broker.metrics.tally import Histogram, Tally

__all__ = [
    "Collecting",
    "Health",
    "collector_families",
    "health_families",
    "lease_families",
    "money_families",
    "outage_families",
    "start_families",
]

_SHOWN: Final = tuple(state for state in LeaseState if state is not LeaseState.ENDED)
_REFUSALS: Final = (BudgetExhausted.code, LimitReached.code, TooManySessions.code, DiskFull.code)
"""Shown from 0 on, so that the first one can be seen as a growth."""


@dataclass(frozen=True, slots=True)
class Health:
    """What answers, and what can be had. `room`: flavor -> (free, in all)."""

    version: str
    engine: str
    simulated: bool
    agent_up: bool
    engine_up: bool
    strays: int
    room: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Collecting:
    """How the rounds of samples go. `missed`: source -> rounds in which it did not answer."""

    rounds: int
    missed: Mapping[str, int]
    last_at: datetime
    took_s: float
    every_s: float
    listeners: int
    frames: int


def health_families(health: Health) -> list[Metric]:
    labels = (health.version, health.engine, str(health.simulated).lower())
    return [
        gauge("allotment_info", "This installation.", ("version", "engine", "simulated"), [(labels, 1.0)]),
        gauge("allotment_agent_up", "1 while the agent answers.", (), [((), float(health.agent_up))]),
        gauge(
            "allotment_engine_up",
            "1 while the engine answers.",
            ("engine",),
            [((health.engine,), float(health.engine_up))],
        ),
        gauge(
            "allotment_strays",
            "Workloads with our label that no known lease explains.",
            (),
            [((), float(health.strays))],
        ),
        gauge(
            "allotment_flavor_free",
            "Sessions of this flavor that could start now.",
            ("flavor",),
            [((flavor,), float(free)) for flavor, (free, _) in health.room.items()],
        ),
        gauge(
            "allotment_flavor_capacity",
            "Sessions of this flavor that could run if everything usable were free.",
            ("flavor",),
            [((flavor,), float(all_)) for flavor, (_, all_) in health.room.items()],
        ),
    ]


def lease_families(leases: Counter[tuple[str, str]], oldest_wait_s: float | None) -> list[Metric]:
    """`leases`: (flavor, state) -> how many, of every flavor that is offered."""
    now = [
        ((flavor, state.value), float(leases[flavor, state.value]))
        for flavor in _flavors(leases)
        for state in _SHOWN
    ]
    waiting = sum(count for (_, state), count in leases.items() if state == LeaseState.QUEUED.value)
    return [
        gauge("allotment_leases", "Leases that are not over.", ("flavor", "state"), now),
        gauge("allotment_queue_length", "Leases that wait for a device.", (), [((), float(waiting))]),
        gauge(
            "allotment_queue_oldest_wait_seconds",
            "How long the one that waits longest has waited; none while nobody waits.",
            (),
            [] if oldest_wait_s is None else [((), oldest_wait_s)],
        ),
    ]


def start_families(leases: Counter[tuple[str, str]], tally: Tally) -> list[Metric]:
    """Counted since the broker's start."""
    return [
        counter(
            "allotment_starts_granted_total",
            "Starts that got their device, since the broker's start.",
            ("flavor",),
            [((flavor,), float(tally.granted[flavor])) for flavor in _flavors(leases)],
        ),
        counter(
            "allotment_starts_refused_total",
            "Starts that were refused, by the refusal's code, since the broker's start.",
            ("code",),
            [((code,), float(tally.refused[code])) for code in sorted({*_REFUSALS, *tally.refused})],
        ),
        counter(
            "allotment_leases_ended_total",
            "Leases that ended, by reason, since the broker's start.",
            ("flavor", "reason"),
            [(key, float(count)) for key, count in tally.ended.items()],
        ),
        _histogram("allotment_queue_wait_seconds", "From the request to the grant.", tally.waits),
        _histogram(
            "allotment_session_start_seconds", "From the grant to the server that answers.", tally.starts
        ),
    ]


def _flavors(leases: Counter[tuple[str, str]]) -> list[str]:
    return sorted({flavor for flavor, _ in leases})


def money_families(sums: Sums, unposted: Mapping[str, Decimal]) -> list[Metric]:
    """`unposted`: currency -> what running sessions cost that is in no entry yet."""
    labels = ("kind", "currency")
    return [
        gauge(
            "allotment_ledger_amount",
            "Sum of the ledger's entries; refunds are negative.",
            labels,
            [(key, float(amount)) for key, amount in sums.amounts.items()],
        ),
        gauge(
            "allotment_ledger_unposted_amount",
            "What running sessions have cost that is in no entry yet.",
            ("currency",),
            [((currency,), float(amount)) for currency, amount in unposted.items()],
        ),
        gauge(
            "allotment_ledger_gpu_seconds",
            "Whole GPUs times seconds in the ledger's entries.",
            labels,
            [(key, float(seconds)) for key, seconds in sums.gpu_seconds.items()],
        ),
        counter(
            "allotment_ledger_entries_total",
            "Entries of the ledger.",
            labels,
            [(key, float(count)) for key, count in sums.entries.items()],
        ),
    ]


_OUTAGES: Final[tuple[Spec[OutageSum], ...]] = (
    Spec(
        "allotment_outages_total",
        "Outages that were recorded, in which nothing is billed.",
        lambda one: one.count,
        "counter",
    ),
    Spec("allotment_outage_seconds_total", "Their duration in all.", lambda one: one.seconds, "counter"),
    Spec("allotment_outages_open", "Outages that last.", lambda one: one.open),
)

_COLLECTING: Final[tuple[Spec[Collecting], ...]] = (
    Spec(
        "allotment_collector_rounds_total",
        "Rounds of samples since the broker's start.",
        lambda found: found.rounds,
        "counter",
    ),
    Spec(
        "allotment_collector_last_round_timestamp_seconds",
        "When the last round was.",
        lambda found: found.last_at.timestamp() if found.rounds else None,
    ),
    Spec(
        "allotment_collector_round_duration_seconds",
        "How long the last round took.",
        lambda found: found.took_s if found.rounds else None,
    ),
    Spec("allotment_collector_interval_seconds", "How often samples are taken.", lambda found: found.every_s),
    Spec("allotment_stream_listeners", "Open streams of samples.", lambda found: found.listeners),
    Spec(
        "allotment_stream_frames_total",
        "Rounds that were put together, once each however many listen.",
        lambda found: found.frames,
        "counter",
    ),
)


def outage_families(outages: Mapping[str, OutageSum]) -> list[Metric]:
    return families(_OUTAGES, ("what",), [((what,), one) for what, one in outages.items()])


def collector_families(found: Collecting) -> list[Metric]:
    return [
        *families(_COLLECTING, (), [((), found)]),
        counter(
            "allotment_collector_missed_total",
            "Rounds in which a source of samples did not answer.",
            ("source",),
            [((source,), float(count)) for source, count in found.missed.items()],
        ),
    ]


def _histogram(name: str, help_: str, found: Mapping[str, Histogram]) -> Metric:
    made = HistogramMetricFamily(name, help_, labels=("flavor",))
    for flavor, histogram in found.items():
        made.add_metric((flavor,), histogram.buckets(), histogram.total_s)
    return made
