"""bench-metering: a round of samples of 1,000 sessions, and how much of a disk a year of them takes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from allotment_hub.broker.metrics.collector import Collector
from allotment_hub.broker.metrics.keeper import FileKeeper
from allotment_hub.broker.metrics.layout import HOURS, MINUTES, Shelf, key_of, open_file
from allotment_hub.broker.metrics.recording import Recorder
from allotment_hub.broker.metrics.writing import Writer
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.observe import Observations
from allotment_hub.site import MetricSettings
from allotment_spawner.core.samples import NodeSamples
from allotment_spawner.engines.docker_samples import DockerSampler
from allotment_spawner.gpu.messages import SAMPLES
from allotment_testing.cgroup_trees import made_groups
from allotment_testing.metering_load import Session, cards_of, round_of, sessions
from allotment_testing.sample_makers import BEGAN

GOAL_ROUND_S = 1.0
GOAL_YEAR_BYTES = 5e9
LEASES = 1000
DAY_S = 86400


@dataclass(frozen=True)
class Rounds:
    """Seconds of rounds of `leases` sessions with a card each: until everybody can read them, and until they
    are written down, which is on a thread of its own and once a minute rolls the minute up."""

    leases: int
    rounds: int
    groups: str
    median_s: float
    worst_s: float
    written_median_s: float
    written_worst_s: float
    longest_stall_s: float
    """For how long the event loop, which serves everybody, did nothing else."""


@dataclass(frozen=True)
class Year:
    """Bytes of a year, extrapolated from one day of `leases` sessions that was written and rolled up."""

    leases: int
    day_bytes: Mapping[str, int]
    file_share: float
    """Of the file's pages, what the rows themselves take."""
    thousand_leases_bytes: float


class Clock:
    """A day passes as fast as it can be written."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> datetime:
        return self.now


async def measured_rounds(folder: Path, leases: int, rounds: int) -> Rounds:
    working, settings, clock = sessions(leases), MetricSettings(), Clock()
    with made_groups(folder, [one.lease.id for one in working], f"allotment-bench-{os.getpid()}") as groups:
        book, seen = Book(), Observations(agent=None, engine=None, clock=clock)  # type: ignore[arg-type]
        book.apply(one.lease for one in working)
        seen.workloads = {str(one.lease): [one] for one in groups.workloads}
        keeper = FileKeeper(path=folder / "round.sqlite", settings=settings)
        sampler = DockerSampler(base_url="unix:///no/such.sock", cgroups=groups.cgroups)
        collector = Collector(
            every_s=settings.every_s,
            devices=_agent(working, settings.every_s, rounds),
            sampler=sampler,
            fill_in=None,
            keeper=keeper,
            book=book,
            observations=seen,
            cores=lambda _lease: 8.0,
            clock=clock,
        )
        took, written, stall = await _timed(collector, keeper, clock, rounds)
        sampler.close()
        await keeper.close()
    assert len(collector.latest.workloads) == len(collector.latest.devices) == leases
    figures = (median(took), max(took), median(written), max(written))
    return Rounds(leases, rounds, groups.kind, *figures, stall)


def _agent(working: Sequence[Session], every_s: float, rounds: int) -> Callable[[], Awaitable[NodeSamples]]:
    """Answers as they come over the agent's socket: a line of JSON each, written beforehand."""
    lines = [
        SAMPLES.dump_json(NodeSamples("node", BEGAN, True, tuple(cards_of(working, every_s))))
        for _ in range(rounds + 1)
    ]

    async def samples() -> NodeSamples:
        return SAMPLES.validate_json(lines.pop())

    return samples


async def _timed(
    collector: Collector, keeper: FileKeeper, clock: Clock, rounds: int
) -> tuple[list[float], list[float], float]:
    """Seconds of each round, and until it is written; the first is left out, it opens everything."""
    took: list[float] = []
    written: list[float] = []
    stalls: list[float] = []
    watching = asyncio.ensure_future(_watch(stalls))
    for _ in range(rounds + 1):
        clock.now += timedelta(seconds=collector.every_s)
        began = time.perf_counter()
        await collector.once()
        took.append(time.perf_counter() - began)
        await keeper.idle()
        written.append(time.perf_counter() - began)
    watching.cancel()
    return took[1:], written[1:], max(stalls)


async def _watch(stalls: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        stalls.append(time.perf_counter() - began - 0.001)


def measured_year(folder: Path, leases: int) -> Year:
    """A whole day, sample by sample, and the first minutes of the next one, which close it."""
    working, settings, path = sessions(leases), MetricSettings(), folder / "day.sqlite"
    each_s = settings.every_s
    with closing(open_file(path)) as connection:
        writer, recorder = Writer(connection), Recorder()
        for number in range(int((DAY_S + 120) / each_s)):
            at = BEGAN + timedelta(hours=12, seconds=number * each_s)
            taken = round_of(at, working, each_s)
            writer.add(at.timestamp(), each_s, recorder.rows(taken, [one.lease for one in working]))
            if number % 12 == 0:
                _chores(writer, at.timestamp(), settings)
        _chores(writer, at.timestamp(), settings)
        return _extrapolated(connection, leases, settings)


def _chores(writer: Writer, now_s: float, settings: MetricSettings) -> None:
    while writer.roll_minute(now_s) or writer.roll_block(MINUTES, now_s) or writer.roll_block(HOURS, now_s):
        continue
    while writer.prune(Shelf.RAW, int(now_s - settings.keep_raw_h * 3600) // 60):
        continue


def _extrapolated(connection: sqlite3.Connection, leases: int, settings: MetricSettings) -> Year:
    def taken(shelf: Shelf) -> int:
        low, high = key_of(shelf, 0), key_of(shelf, 1 << 28)
        query = "SELECT coalesce(sum(length(packed) + 12), 0) FROM blocks WHERE key BETWEEN ? AND ?"
        return int(connection.execute(query, (low, high)).fetchone()[0])

    day = {shelf.name.lower(): taken(shelf) for shelf in (Shelf.RAW, Shelf.MINUTES, Shelf.HOURS)}
    [total] = connection.execute("SELECT sum(length(cells) + 20) FROM totals").fetchone()
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    [rows] = connection.execute("SELECT sum(length(packed) + 12) FROM blocks").fetchone()
    share = (rows + total) / (pages * 16384)
    year = (
        day["raw"] * settings.keep_raw_h
        + day["minutes"] * min(365, settings.keep_minutes_days)
        + day["hours"] * min(365, settings.keep_hours_days)
        + total
    )
    return Year(leases, day, share, year / share / leases * LEASES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-metering", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a smaller day")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="allot-metering-") as folder:
        rounds = asyncio.run(measured_rounds(Path(folder), LEASES, 26))
        year = measured_year(Path(folder), 6 if options.quick else 30)
    if options.json:
        print(json.dumps({"rounds": asdict(rounds), "year": asdict(year)}))
    else:
        _say(rounds, year)
    return 0 if rounds.median_s < GOAL_ROUND_S and year.thousand_leases_bytes < GOAL_YEAR_BYTES else 1


def _say(rounds: Rounds, year: Year) -> None:
    print(
        f"a round of {rounds.leases} sessions with a card each ({rounds.groups} control groups): "
        f"median {rounds.median_s:.2f} s, worst of {rounds.rounds} {rounds.worst_s:.2f} s "
        f"(goal < {GOAL_ROUND_S:g} s); until it is written down {rounds.written_median_s:.2f} s, "
        f"once a minute {rounds.written_worst_s:.2f} s; "
        f"longest stall of the event loop {1000 * rounds.longest_stall_s:.0f} ms"
    )
    day = ", ".join(f"{name} {size / year.leases / 1000:.1f} kB" for name, size in year.day_bytes.items())
    print(
        f"a day of a session with a card of its own, measured: {day}; {LEASES} such sessions for a year, "
        f"extrapolated from that: {year.thousand_leases_bytes / 1e9:.2f} GB "
        f"(goal < {GOAL_YEAR_BYTES / 1e9:g} GB)"
    )


if __name__ == "__main__":
    sys.exit(main())
