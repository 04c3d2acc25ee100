"""bench-data: a start whose data must be fetched against one whose data is in the cache; many small files."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median

from allotment_hub.broker.factory import Broker
from allotment_hub.data.cache import Cache
from allotment_hub.data.runner import run_fetch
from allotment_hub.site import DatasetSettings, DiskSettings, Policies, Site
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.fetch_spec import fetch_spec
from allotment_testing.file_server import file_server
from allotment_testing.protocol_spawner import ProtocolSpawner

_MIB = 2**20


def main() -> int:
    """Exit 0; with --json one document {name: {"seconds": [...], ...}}."""
    parser = argparse.ArgumentParser(prog="tests/run bench-data", description=__doc__)
    parser.add_argument("--mib", type=int, default=512, help="size of the dataset (512)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of one fetch and two hits (5)")
    parser.add_argument("--files", type=int, default=100_000, help="small files of the archive (100000)")
    parser.add_argument("--quick", action="store_true", help="8 MiB, one round, 1000 files: does it run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.quick:
        options.mib, options.rounds, options.files = 8, 1, 1000
    with tempfile.TemporaryDirectory(prefix="allotment-bench-") as folder:
        results = asyncio.run(_starts(Path(folder) / "starts", options.mib, options.rounds))
        results |= asyncio.run(_small_files(Path(folder) / "files", options.files))
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _print(results, options)
    return 0


async def _starts(folder: Path, mib: int, rounds: int) -> dict[str, list[float]]:
    """Seconds from the request until every byte was read at the place that is mounted."""
    seconds: dict[str, list[float]] = {"first read": [], "hit, from the disk": [], "hit, from memory": []}
    piece = os.urandom(8 * _MIB)
    with file_server(**{"data.bin": piece * (mib // 8)}) as server:
        site = Site(
            policies=Policies(sessions_per_person=1000),
            datasets=DatasetSettings(allow_hosts=(server.host,), limit_gib=1000),
            disk=DiskSettings(floor_gib=0),
        )
        world = BrokerWorld(folder, site=site)
        async with world.broker() as broker:
            await broker.datasets.register("data", by="bench", **_told(server.url("/data.bin")))
            for number in range(rounds):
                seconds["first read"].append(await _one(world, broker, f"a{number}", drop=False))
                seconds["hit, from the disk"].append(await _one(world, broker, f"b{number}", drop=True))
                seconds["hit, from memory"].append(await _one(world, broker, f"c{number}", drop=False))
                await world.rounds(broker, 3)
                await broker.datasets.evict("data")
    return seconds


def _told(source: str) -> dict[str, object]:
    nothing = dict.fromkeys(("checksum", "size_bytes", "groups"))
    texts = dict.fromkeys(("title", "description", "licence"), "")
    return {"source": source, "unpack": False, "pinned": False, **nothing, **texts}


async def _one(world: BrokerWorld, broker: Broker, user: str, *, drop: bool) -> float:
    if drop:
        for path in (world.paths.datasets / "ready").rglob("*.bin"):
            with path.open("rb") as held:
                os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    spawner = ProtocolSpawner(world, user, flavor="cpu")
    spawner.body = spawner.body.model_copy(update={"datasets": ("data",)})
    began = time.perf_counter()
    reply = await spawner.request(broker)
    if reply.launch is None:
        async with asyncio.timeout(600):
            async for event in broker.leases.watch(lease_id=spawner.lease, attempt=spawner.attempt):
                reply = event.reply
                if event.type != "queued":
                    break
    assert reply.launch is not None, reply.refusal
    await asyncio.to_thread(_read, Path(reply.launch.mounts[0].source))
    took = time.perf_counter() - began
    await spawner.stop(broker)
    return took


def _read(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as held:
            while held.read(_MIB):
                continue


async def _small_files(folder: Path, count: int) -> dict[str, list[float]]:
    """Seconds to bring an archive of many small files, and to remove them again."""
    (folder / "from").mkdir(parents=True)
    with tarfile.open(folder / "from/many.tar", "w") as archive:
        for number in range(count):
            told = tarfile.TarInfo(f"{number // 1000:04}/{number % 1000:03}.txt")
            told.size = 100
            archive.addfile(told, io.BytesIO(b"x" * 100))
    cache = Cache(folder / "cache")
    cache.open()
    told_ = fetch_spec(
        folder,
        str(folder / "from/many.tar"),
        unpack=True,
        limit_bytes=100 * 2**30,
        allow_paths=(str(folder / "from"),),
    ).model_copy(update={"folder": str(cache.work_folder("many"))})
    began = time.perf_counter()
    await run_fetch(told_, lambda _now: None)
    fetched = time.perf_counter()
    cache.adopt("many")
    cache.drop("many")
    out_of_sight = time.perf_counter()
    await asyncio.to_thread(cache.empty_trash)
    return {
        f"unpack {count:,} files": [fetched - began],
        "out of sight": [out_of_sight - fetched],
        "removed": [time.perf_counter() - out_of_sight],
    }


def _print(results: dict[str, list[float]], options: argparse.Namespace) -> None:
    print(f"one file of {options.mib} MiB over HTTP on loopback; {options.rounds} rounds, medians")
    for name, seconds in results.items():
        middle = median(seconds)
        rate = f", {options.mib / middle:,.0f} MiB/s" if "read" in name or "hit" in name else ""
        spread = f" ({min(seconds):.3f}-{max(seconds):.3f})" if len(seconds) > 1 else ""
        print(f"  {name:24} {middle:8.3f} s{spread}{rate}")
    first, hit = median(results["first read"]), median(results["hit, from the disk"])
    print(f"a hit from the disk takes {hit / first:.2f} of a first read")


if __name__ == "__main__":
    sys.exit(main())
