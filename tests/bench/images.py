"""bench-images: size of each image, and how long its notebook server takes to answer, cold and warm."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from allotment_testing.docker_image_bed import SERVE, ImageBed, image_bed
from allotment_testing.docker_image_set import ALL
from allotment_testing.docker_images import image_tag
from allotment_testing.docker_testbed import running_docker

_DROP = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, slots=True)
class Measured:
    """One image. Seconds from the request for a container to the server's first answer.

    `cold_s` is the first start after the engine's, with the machine's file cache emptied where that is
    allowed (`cache_emptied`); `warm_s` and `cpu_s` (CPU time until the answer) are medians of the next.
    """

    environment: str
    size_bytes: int
    own_bytes: int
    cold_s: float
    warm_s: float
    cpu_s: float
    cache_emptied: bool
    rounds: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/run bench-images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"environments; default: {' '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=5, help="warm starts of each (5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    names = options.names or list(ALL)
    results = [measure(name, options.rounds) for name in names]
    if options.json:
        print(json.dumps([asdict(one) for one in results], indent=2))
    else:
        show(results)
    return 0


def measure(name: str, rounds: int) -> Measured:
    """In an engine of its own that has started nothing before."""
    with running_docker(name) as daemon, image_bed(daemon, name) as bed:
        told = bed.client.inspect_image(image_tag(name))
        emptied = empty_cache()
        cold, _ = start(bed, "cold")
        warm = [start(bed, f"warm{number}") for number in range(rounds)]
        result = Measured(
            environment=name,
            size_bytes=told["Size"],
            own_bytes=own_layers(bed, name),
            cold_s=round(cold, 3),
            warm_s=round(median(seconds for seconds, _ in warm), 3),
            cpu_s=round(median(cpu for _, cpu in warm), 3),
            cache_emptied=emptied,
            rounds=rounds,
        )
    print(f"{name}: {result.cold_s} s cold, {result.warm_s} s warm", file=sys.stderr)
    return result


def own_layers(bed: ImageBed, name: str) -> int:
    """Bytes of Allotment's own last layers: what an update of Allotment alone moves."""
    steps = bed.client.history(image_tag(name))
    packages = next(n for n, one in enumerate(steps) if "requirements.lock" in one["CreatedBy"])
    return sum(one["Size"] for one in steps[:packages])


def empty_cache() -> bool:
    """Whether the machine's file cache was emptied: only root can."""
    try:
        os.sync()
        _DROP.write_text("3\n")
    except OSError:
        return False
    return True


def start(bed: ImageBed, lease: str) -> tuple[float, float]:
    """(seconds to the first answer, CPU seconds of it) of a new container, which is removed again."""
    began = time.monotonic()
    ref = bed.start(lease, SERVE)
    bed.answers(ref, every_s=0.02)
    took = time.monotonic() - began
    cpu = bed.cpu_seconds(ref)
    bed.client.remove_container(ref, force=True)
    return took, cpu


def show(results: list[Measured]) -> None:
    print(f"{'environment':15}{'size':>9}{'own layers':>12}{'cold':>9}{'warm':>9}{'CPU':>9}")
    for one in results:
        print(
            f"{one.environment:15}{one.size_bytes / 1e9:6.2f} GB{one.own_bytes / 1e6:9.1f} MB"
            f"{one.cold_s:7.2f} s{one.warm_s:7.2f} s{one.cpu_s:7.2f} s"
        )
    if not all(one.cache_emptied for one in results):
        print("The file cache could not be emptied (only root can): cold means after the engine's start.")


if __name__ == "__main__":
    sys.exit(main())
