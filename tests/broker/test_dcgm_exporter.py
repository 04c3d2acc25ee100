"""The DCGM exporter behind its URL: bounded in time and size, never another address, gaps filled."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.broker.metrics.exporter import DcgmExporter
from allotment_hub.broker.metrics.rounds import DCGM
from allotment_hub.site import MetricSettings, Site
from allotment_spawner.core.errors import ExporterUnavailable
from allotment_spawner.core.inventory import Gpu, NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.file_server import FileServer, file_server
from allotment_testing.protocol_spawner import ProtocolSpawner

SLICE = Slice("MIG-1", "1g.10gb", 0, 1, 7)
GPU = Gpu("GPU-a", 0, "A100", 80 << 30, mig=True, axis=8, slices=(SLICE,))
INVENTORY = NodeInventory("n", "b", False, "580", (GPU,))
SAMPLE = DeviceSample(gpu_uuid="GPU-a", device_uuid="MIG-1", memory_used_bytes=1 << 30)
ROW = b'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.75\n'


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def exporter_of(url: str, *, timeout_s: float = 5.0) -> DcgmExporter:
    return DcgmExporter(url=url, inventory=lambda: INVENTORY, timeout_s=timeout_s)


async def test_gaps_of_a_slice_are_filled(server: FileServer) -> None:
    server.files["/metrics"] = ROW
    exporter = exporter_of(server.url("/metrics"))
    [found] = (await exporter.fill_in([SAMPLE])).values()
    assert (found.sm_percent, found.memory_used_bytes) == (75, 1 << 30)
    await exporter.close()


async def test_nothing_new_is_nothing_changed(server: FileServer) -> None:
    server.files["/metrics"] = b"# nothing\n"
    exporter = exporter_of(server.url("/metrics"))
    assert await exporter.fill_in([SAMPLE]) == {}
    await exporter.close()


async def test_a_redirect_is_not_followed(server: FileServer) -> None:
    server.files["/elsewhere"] = ROW
    server.redirects["/metrics"] = server.url("/elsewhere")
    exporter = exporter_of(server.url("/metrics"))
    with pytest.raises(ExporterUnavailable, match="answered 302"):
        await exporter.fill_in([SAMPLE])
    assert [path for path, _ in server.asked] == ["/metrics"]
    await exporter.close()


async def test_a_proxy_of_the_environment_is_not_asked(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/metrics"] = ROW
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    exporter = exporter_of(server.url("/metrics"))
    assert len(await exporter.fill_in([SAMPLE])) == 1
    await exporter.close()


async def test_a_page_that_is_too_long_is_refused(server: FileServer) -> None:
    server.files["/metrics"] = ROW * 80_000
    exporter = exporter_of(server.url("/metrics"), timeout_s=20)
    with pytest.raises(ExporterUnavailable, match="more than 4 MiB"):
        await exporter.fill_in([SAMPLE])
    await exporter.close()


async def test_an_exporter_that_is_not_there(server: FileServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    exporter = exporter_of(f"http://127.0.0.1:{port}/metrics")
    with pytest.raises(ExporterUnavailable, match="cannot be asked"):
        await exporter.fill_in([SAMPLE])
    await exporter.close()


@pytest.fixture
def dripping() -> Iterator[int]:
    """A port whose server sends a byte of a page at a time, and never ends."""
    done = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            while not done.wait(0.05):
                connection.sendall(b"#")

    thread = threading.Thread(target=drip)
    thread.start()
    yield listening.getsockname()[1]
    done.set()
    thread.join(10)
    listening.close()


async def test_a_page_that_drips_ends_at_the_limit(dripping: int) -> None:
    exporter = exporter_of(f"http://127.0.0.1:{dripping}/metrics", timeout_s=0.5)
    with pytest.raises(ExporterUnavailable, match=r"within 0\.5 s"):
        await exporter.fill_in([SAMPLE])
    await exporter.close()


@pytest.fixture
def compressing() -> Iterator[int]:
    """A port whose server compresses what was not to be compressed."""
    body = gzip.compress(ROW * 100_000)
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)

    thread = threading.Thread(target=answer)
    thread.start()
    yield listening.getsockname()[1]
    thread.join(10)
    listening.close()


async def test_a_compressed_page_is_not_unpacked(compressing: int) -> None:
    exporter = exporter_of(f"http://127.0.0.1:{compressing}/metrics")
    with pytest.raises(ExporterUnavailable, match="compressed"):
        await exporter.fill_in([SAMPLE])
    await exporter.close()


async def test_a_round_of_the_broker_knows_a_slice_by_the_exporter(
    tmp_path: Path, server: FileServer
) -> None:
    site = Site(metrics=MetricSettings(dcgm_url=server.url("/metrics")))
    world = BrokerWorld(tmp_path, site=site)
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ann")
        await spawner.request(broker)
        await spawner.wait(broker)
        await broker.reconciler.once()
        collector = broker.metrics.collector
        taken = await collector.once()
        assert taken.devices[spawner.device].sm_percent is None
        assert "404" in taken.missing[DCGM]
        gpu = world.agent.control.state().gpus[0]
        labels = f'UUID="{gpu.uuid}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="{gpu.instances[0].gi_id}"'
        server.files["/metrics"] = f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.75\n".encode()
        taken = await collector.once()
        assert taken.devices[spawner.device].sm_percent == 75
        assert DCGM not in taken.missing
