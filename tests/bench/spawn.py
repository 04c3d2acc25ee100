"""bench-spawn: request to ready, GpuDockerSpawner against stock DockerSpawner with the same image."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

from allotment_testing.docker_images import image_tag
from allotment_testing.docker_testbed import running_docker
from allotment_testing.spawn_bench.drive import HubUnderTest, at_once, one_after_the_other
from allotment_testing.spawn_bench.hubs import our_hub, stock_hub
from allotment_testing.spawn_bench.statistics import Compared, compare

GOALS = {"in sequence": 1.0, "at once": 0.9}
Measure = Callable[[HubUnderTest, Sequence[str]], list[float]]


def main() -> int:
    """Exit 0 when both goals are met, 1 otherwise (with --quick always 0: too few rounds to judge)."""
    parser = argparse.ArgumentParser(prog="tests/run bench-spawn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of each (5)")
    parser.add_argument("--sequence", type=int, default=3, help="starts one after the other in a round (3)")
    parser.add_argument("--at-once", type=int, default=10, help="starts at the same moment in a round (10)")
    parser.add_argument("--flavor", default="gpu-10gb", help="what Allotment's sessions ask for (gpu-10gb)")
    parser.add_argument(
        "--quick", action="store_true", help="one round of 2 and 3 starts: does it run at all"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.sequence, options.at_once = 1, 2, 3
    results = _measure(options)
    if options.json:
        print(json.dumps({name: asdict(result) for name, result in results.items()}, indent=2))
    else:
        _print(results)
    missed = [name for name, result in results.items() if result.ratio > GOALS[name]]
    return 1 if missed and not options.quick else 0


def _measure(options: argparse.Namespace) -> dict[str, Compared]:
    seconds: dict[str, dict[str, list[float]]] = {name: {"ours": [], "stock": []} for name in GOALS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="allotment-bench-")))
        daemon = stack.enter_context(running_docker("minimal"))
        ours = stack.enter_context(
            our_hub(base_url=daemon.base_url, flavor=options.flavor, gpus="sim:2xA100-80GB:mig")
        )
        image = image_tag("minimal")
        stock = stack.enter_context(stock_hub(folder / "stock", base_url=daemon.base_url, image=image))
        people = [f"bench{number}" for number in range(max(options.sequence, options.at_once))]
        for hub in (ours, stock):
            hub.add_people(people)
            one_after_the_other(hub, people[:1])  # warm: image layers and imports are in memory for both
        for turn in range(options.rounds):
            pairs = [("ours", ours), ("stock", stock)]
            for key, hub in pairs if turn % 2 == 0 else reversed(pairs):
                _one_round(hub, people, options, {name: seconds[name][key] for name in GOALS})
    return {name: compare(found["ours"], found["stock"]) for name, found in seconds.items()}


def _one_round(
    hub: HubUnderTest, people: Sequence[str], options: argparse.Namespace, into: dict[str, list[float]]
) -> None:
    """In sequence: the median start. At once: until the last one is ready."""
    sequence = one_after_the_other(hub, people[: options.sequence])
    crowd = at_once(hub, people[: options.at_once])
    into["in sequence"].append(median(sequence))
    into["at once"].append(max(crowd))
    print(f"{hub.name}: {median(sequence):.2f} s each, {max(crowd):.2f} s for {len(crowd)}", file=sys.stderr)


def _print(results: dict[str, Compared]) -> None:
    for name, result in results.items():
        print(
            f"{name:12} Allotment {result.ours_s:6.2f} s   stock {result.stock_s:6.2f} s   "
            f"ratio {result.ratio:.3f} [{result.low:.3f}, {result.high:.3f}]   "
            f"goal ≤ {GOALS[name]}   {result.rounds} rounds"
        )


if __name__ == "__main__":
    sys.exit(main())
