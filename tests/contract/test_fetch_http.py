"""A fetch over HTTP as its own process: whole, resumed, refused before a connection, killed anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.data.runner import run_fetch
from allotment_hub.data.spec import FetchSpec, Manifest, Progress
from allotment_spawner.core.errors import AddressNotAllowed, DatasetUnavailable, DiskFull, Refusal
from allotment_testing.broker_world import until
from allotment_testing.file_server import FileServer, file_server

BODY = os.urandom(3_000_000)
SUM = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server(**{"iris.bin": BODY}) as served:
        yield served


def spec(folder: Path, source: str, *, server: FileServer | None = None, **more: Any) -> FetchSpec:
    allowed = () if server is None else (server.host,)
    told: dict[str, Any] = {
        "limit_bytes": 10**9,
        "floor_bytes": 0,
        "retry_pause_s": 0.01,
        "allow_hosts": allowed,
    }
    return FetchSpec(source=source, folder=str(folder / "work"), parent_pid=os.getpid(), **(told | more))


async def fetched(told: FetchSpec, heard: list[Progress] | None = None) -> Manifest:
    return await run_fetch(told, (heard if heard is not None else []).append)


async def test_a_file_comes_whole_with_its_sum_and_name(server: FileServer, tmp_path: Path) -> None:
    heard: list[Progress] = []
    manifest = await fetched(spec(tmp_path, server.url("/iris.bin"), server=server), heard)
    assert manifest == Manifest(checksum=SUM, size_bytes=len(BODY), files=1)
    assert (tmp_path / "work/data/iris.bin").read_bytes() == BODY
    assert heard
    assert all(one.total_bytes == len(BODY) for one in heard)
    # told again it is only looked at
    assert await fetched(spec(tmp_path, server.url("/iris.bin"), server=server)) == manifest
    assert len(server.asked) == 1


async def test_a_broken_line_is_taken_up_where_it_broke(server: FileServer, tmp_path: Path) -> None:
    server.break_after += [1_000_000, 700_000]
    manifest = await fetched(spec(tmp_path, server.url("/iris.bin"), server=server, checksum=SUM))
    assert manifest.checksum == SUM
    offsets = [int((asked or "bytes=0-")[6:-1]) for _, asked in server.asked]
    assert offsets[0] == 0
    # how much of a broken answer still arrives is the line's affair; what arrived is never asked for again
    assert offsets == sorted(offsets)
    assert offsets[-1] > 0


@pytest.mark.parametrize("fault", ["no ranges", "no etags"])
async def test_a_server_without_ranges_or_versions_begins_anew(
    server: FileServer, tmp_path: Path, fault: str
) -> None:
    server.ranges, server.etags = fault != "no ranges", fault != "no etags"
    server.break_after += [1_000_000]
    assert (await fetched(spec(tmp_path, server.url("/iris.bin"), server=server))).checksum == SUM


async def test_another_file_under_the_same_address_is_not_mixed_in(
    server: FileServer, tmp_path: Path
) -> None:
    """Killed half-way; until it goes on, the publisher has put a newer file there."""
    server.hold = threading.Event()
    told = spec(tmp_path, server.url("/iris.bin"), server=server)
    part = tmp_path / "work" / "part"
    task = asyncio.ensure_future(fetched(told))
    await until(lambda: part.exists() and part.stat().st_size >= 1_000_000, deadline_s=60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    server.hold.set()
    server.files["/iris.bin"] = newer = os.urandom(2_000_000)
    manifest = await fetched(told)
    assert manifest.checksum == hashlib.sha256(newer).hexdigest()
    assert (tmp_path / "work/data/iris.bin").read_bytes() == newer


async def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(
    server: FileServer, tmp_path: Path
) -> None:
    server.statuses += [503, 429]
    assert (await fetched(spec(tmp_path, server.url("/iris.bin"), server=server))).checksum == SUM
    with pytest.raises(DatasetUnavailable, match="HTTP 404"):
        await fetched(spec(tmp_path / "b", server.url("/none"), server=server))
    assert len(server.asked) == 4


async def test_a_wrong_sum_is_fetched_once_more_and_then_refused(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable, match="SHA-256 differs"):
        await fetched(spec(tmp_path, server.url("/iris.bin"), server=server, checksum="0" * 64))
    assert len(server.asked) == 2
    assert not (tmp_path / "work/part").exists()
    assert not (tmp_path / "work/manifest.json").exists()


async def test_more_than_the_limit_is_refused_before_it_fills_the_disk(
    server: FileServer, tmp_path: Path
) -> None:
    with pytest.raises(DiskFull, match="larger than the space"):
        await fetched(spec(tmp_path, server.url("/iris.bin"), server=server, limit_bytes=2_000_000))
    assert not (tmp_path / "work/part").exists()
    with pytest.raises(DiskFull, match="too little free space"):
        await fetched(spec(tmp_path, server.url("/iris.bin"), server=server, floor_bytes=2**60))


PRIVATE = (
    "127.0.0.1",
    "localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0.0.0.0",
)


async def test_no_connection_to_the_machine_itself(server: FileServer, tmp_path: Path) -> None:
    """By number, by name, and by every way of writing it; the server behind it hears nothing."""
    for number, host in enumerate(PRIVATE):
        with pytest.raises(AddressNotAllowed):
            await fetched(spec(tmp_path / str(number), f"http://{host}:{server.port}/iris.bin"))
    assert server.asked == []


async def test_an_allowed_host_opens_its_own_port_only(server: FileServer, tmp_path: Path) -> None:
    with file_server(secret=b"x") as other:
        with pytest.raises(AddressNotAllowed):
            await fetched(spec(tmp_path, other.url("/secret"), server=server))
        server.redirects["/leads"] = other.url("/secret")
        with pytest.raises(AddressNotAllowed):
            await fetched(spec(tmp_path / "b", server.url("/leads"), server=server))
        server.redirects["/named"] = f"http://localhost:{other.port}/secret"
        with pytest.raises(AddressNotAllowed):
            await fetched(spec(tmp_path / "c", server.url("/named"), server=server))
        assert other.asked == []


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://169.254.10.10/latest", "s3://b/k"]
)
async def test_a_redirect_leads_nowhere_that_may_not_be_asked(
    server: FileServer, tmp_path: Path, target: str
) -> None:
    server.redirects["/leads"] = target
    with pytest.raises(Refusal) as refused:
        await fetched(spec(tmp_path, server.url("/leads"), server=server))
    assert refused.value.code in ("address_not_allowed", "dataset_unavailable")
    assert len(server.asked) == 1


async def test_redirects_within_what_is_allowed_are_followed_but_not_for_ever(
    server: FileServer, tmp_path: Path
) -> None:
    server.redirects["/here"] = "/iris.bin"
    server.redirects["/loop"] = "/loop"
    assert (await fetched(spec(tmp_path, server.url("/here"), server=server))).checksum == SUM
    with pytest.raises(DatasetUnavailable, match="without end"):
        await fetched(spec(tmp_path / "b", server.url("/loop"), server=server))


async def test_killed_in_the_middle_it_goes_on_from_there(server: FileServer, tmp_path: Path) -> None:
    server.hold = threading.Event()
    told = spec(tmp_path, server.url("/iris.bin"), server=server, checksum=SUM)
    part = tmp_path / "work" / "part"
    task = asyncio.ensure_future(fetched(told))
    await until(lambda: part.exists() and part.stat().st_size >= 1_000_000, deadline_s=60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not (tmp_path / "work/manifest.json").exists()
    server.hold.set()
    assert (await fetched(told)).checksum == SUM
    assert int((server.asked[-1][1] or "bytes=0-")[6:-1]) >= 1_000_000


async def test_it_does_not_begin_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    told = spec(tmp_path, "http://192.0.2.1/x").model_copy(update={"parent_pid": 1})
    with pytest.raises(DatasetUnavailable, match="broke off"):
        await fetched(told)
    assert not (tmp_path / "work").exists()


_BROKER = """
import asyncio, os, sys
from allotment_hub.data.runner import run_fetch
from allotment_hub.data.spec import FetchSpec

told = FetchSpec.model_validate_json(sys.argv[1]).model_copy(update={"parent_pid": os.getpid()})
asyncio.run(run_fetch(told, lambda now: print(now.got_bytes, flush=True)))
"""


async def test_kill_9_of_the_broker_ends_its_fetch_and_the_next_one_goes_on(
    server: FileServer, tmp_path: Path
) -> None:
    server.hold = threading.Event()
    told = spec(tmp_path, server.url("/iris.bin"), server=server, checksum=SUM)
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _BROKER, told.model_dump_json(), stdout=asyncio.subprocess.DEVNULL
    )
    part = tmp_path / "work" / "part"
    await until(lambda: part.exists() and part.stat().st_size >= 1_000_000, deadline_s=60)
    (child,) = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    broker.kill()
    await broker.wait()
    await until(lambda: not Path(f"/proc/{child}").exists(), deadline_s=10)
    server.hold.set()
    assert (await fetched(told)).checksum == SUM
    assert int((server.asked[-1][1] or "bytes=0-")[6:-1]) >= 1_000_000
