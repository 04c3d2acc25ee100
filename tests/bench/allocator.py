"""Compare the allocator with simple policies in a loss model, and time its decisions.

Exit code 0 when it is significantly worse than the best baseline nowhere, better in most comparisons,
and 99 of 100 decisions on 1,000 GPUs take less than a millisecond; else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from allotment_testing.allocation.arrivals import LOADS, MIXES, Cell
from allotment_testing.allocation.loss import OURS, Outcome, run_cell
from allotment_testing.allocation.paired import Compared, compare
from allotment_testing.allocation.timing import FLEET, Times, decision_times

LIMIT_US = 1000.0
METRICS = ("accepted", "used")
ENOUGH = 10
"""Seeds from which on "better" must be significant; with fewer, better on average is all one can ask."""


class Size(NamedTuple):
    """How much is played for one size of fleet."""

    gpus: int
    seeds: int
    arrivals: int


class Row(NamedTuple):
    """One comparison of the report."""

    cell: Cell
    metric: str
    result: Compared


FULL = (Size(8, 40, 4000), Size(100, 20, 6000))
QUICK = (Size(8, 8, 1500), Size(100, 3, 1500))


def plan(sizes: tuple[Size, ...], first_seed: int) -> Iterator[tuple[Cell, int, int]]:
    """Every (cell, seed, arrivals) to be played."""
    for size in sizes:
        for mix in MIXES:
            for load in LOADS:
                for seed in range(first_seed, first_seed + size.seeds):
                    yield Cell(size.gpus, mix, load), seed, size.arrivals


def play(job: tuple[Cell, int, int]) -> tuple[Cell, dict[str, Outcome]]:
    cell, seed, count = job
    return cell, run_cell(cell, seed, count=count)


def play_all(sizes: tuple[Size, ...], first_seed: int, jobs: int) -> dict[Cell, list[dict[str, Outcome]]]:
    """Outcomes by cell, in the order of seeds."""
    played: dict[Cell, list[dict[str, Outcome]]] = {}
    todo = list(plan(sizes, first_seed))
    with ProcessPoolExecutor(jobs) as pool:
        for number, (cell, outcomes) in enumerate(pool.map(play, todo, chunksize=4), 1):
            played.setdefault(cell, []).append(outcomes)
            if number % 50 == 0 and sys.stderr.isatty():
                print(f"  {number} of {len(todo)} runs", end="\r", file=sys.stderr)
    return played


def compare_all(played: dict[Cell, list[dict[str, Outcome]]]) -> list[Row]:
    """Ours against the best baseline, for every cell and metric."""
    comparisons = len(played) * len(METRICS)
    rows = []
    for cell, seeds in played.items():
        for metric in METRICS:
            values = {name: [getattr(seed[name], metric) for seed in seeds] for name in seeds[0]}
            ours = values.pop(OURS)
            rows.append(Row(cell, metric, compare(ours, values, comparisons=comparisons)))
    return rows


def failures(rows: list[Row], times: list[Times], *, surely: bool) -> list[str]:
    """What the claim does not keep, in sentences. `surely`: only a significant difference is better."""
    found = [
        f"Significantly worse than {row.result.best}: {row.metric} at {_name(row.cell)}."
        for row in rows
        if row.result.verdict == "worse"
    ]
    if surely:
        better = sum(row.result.verdict == "better" for row in rows)
    else:
        better = sum(row.result.difference > 0 for row in rows)
    if better <= len(rows) / 2:
        found.append(f"Better than the best baseline in only {better} of {len(rows)} comparisons.")
    found.extend(
        f"99 of 100 decisions took up to {entry.cpu_p99:.0f} µs on the {entry.fleet} fleet."
        for entry in times
        if entry.cpu_p99 >= LIMIT_US
    )
    return found


def _name(cell: Cell) -> str:
    return f"{cell.gpus} GPUs, {cell.mix}, load {cell.load}"


def print_report(rows: list[Row], times: list[Times], sizes: tuple[Size, ...]) -> None:
    print("Percent accepted, and percent of memory slices in use; A100-80GB, MIG on.")
    for size in sizes:
        print(f"{size.gpus} GPUs: {size.seeds} paired seeds of {size.arrivals} arrivals.")
    print(f"Intervals: 95 % for all {len(rows)} comparisons together (Bonferroni, Student's t).\n")
    print(
        f"{'GPUs':>4} {'mix':9}{'load':>5} {'metric':9}{'ours':>7}{'best':>7}  {'best baseline':17}difference"
    )
    for cell, metric, result in rows:
        print(
            f"{cell.gpus:4} {cell.mix:9}{cell.load:5} {metric:9}{result.ours:7.2f}{result.theirs:7.2f}  "
            f"{result.best:17}{result.difference:+6.2f} [{result.low:+.2f}, {result.high:+.2f}] "
            f"{result.verdict}"
        )
    for metric in METRICS:
        mine = [row.result for row in rows if row.metric == metric]
        verdicts = [result.verdict for result in mine]
        print(
            f"\n{metric}: better on average in {sum(r.difference > 0 for r in mine)} of {len(mine)}; "
            f"significantly better {verdicts.count('better')}, worse {verdicts.count('worse')}; "
            f"without correction better {sum(r.low_alone > 0 for r in mine)}, "
            f"worse {sum(r.high_alone < 0 for r in mine)}.",
            end="",
        )
    print(f"\n\nMicroseconds a decision at {FLEET} GPUs (CPU time; wall-clock time in brackets):")
    for entry in times:
        print(
            f"{entry.fleet:9} p50 {entry.cpu_p50:.0f} ({entry.wall_p50:.0f}), "
            f"p99 {entry.cpu_p99:.0f} ({entry.wall_p99:.0f}), max {entry.cpu_max:.0f}; "
            f"{entry.decisions} decisions, {entry.no_room} without room, "
            f"{entry.states} different GPU states; "
            f"{entry.cold:.0f} with every GPU's state made anew"
        )


def print_json(rows: list[Row], times: list[Times], sizes: tuple[Size, ...], problems: list[str]) -> None:
    report = {
        "sizes": [size._asdict() for size in sizes],
        "comparisons": [
            {
                **row.cell._asdict(),
                "metric": row.metric,
                **row.result._asdict(),
                "verdict": row.result.verdict,
            }
            for row in rows
        ],
        "decisions_us": [entry._asdict() for entry in times],
        "problems": problems,
    }
    print(json.dumps(report, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-allocator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less than a minute on one core")
    parser.add_argument("--seeds", type=int, help="seeds a cell, in place of 40 (8 GPUs) and 20 (100 GPUs)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    options = parser.parse_args()
    if options.jobs < 1 or (options.seeds is not None and options.seeds < 2):
        parser.error("--jobs must be at least 1, and --seeds at least 2")
    return options


def main() -> int:
    options = parse()
    sizes: tuple[Size, ...] = QUICK if options.quick else FULL
    if options.seeds is not None:
        sizes = tuple(size._replace(seeds=options.seeds) for size in sizes)
    begun = time.monotonic()
    # Before the other processes start, since they would share this one's cores and caches.
    decisions = 2000 if options.quick else 20_000
    times = [
        decision_times(decisions=decisions, seed=options.first_seed, shattered=shattered)
        for shattered in (False, True)
    ]
    rows = compare_all(play_all(sizes, options.first_seed, options.jobs))
    surely = all(size.seeds >= ENOUGH for size in sizes)
    problems = failures(rows, times, surely=surely)
    if options.json:
        print_json(rows, times, sizes, problems)
    else:
        print_report(rows, times, sizes)
        print(f"{time.monotonic() - begun:.0f} s")
        print("\n".join(problems) or "Claim kept.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
