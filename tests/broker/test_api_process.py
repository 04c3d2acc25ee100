"""The broker as a process: what it says of a bad start, how fast it answers, how it stops."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

CONFIG = Path(__file__).parents[2] / "deploy" / "config"
HUB_TOKEN = "hub-to-broker-0123456789abcdef"
SERVICE_TOKEN = "broker-service-0123456789abcdef"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory as `up` makes it; neither hub nor agent answers."""
    for folder in ("config", "secrets", "run", "broker", "agent"):
        (tmp_path / folder).mkdir()
    for name in ("site.yaml", "catalog.yaml"):
        shutil.copy(CONFIG / name, tmp_path / "config" / name)
    (tmp_path / "secrets" / "hub-to-broker").write_text(HUB_TOKEN + "\n")
    (tmp_path / "secrets" / "broker-service").write_text(SERVICE_TOKEN + "\n")
    runtime: dict[str, Any] = {
        "installation": "0123abcd",
        "engine": "local",
        "gpus": "sim:1xA100-80GB:mig",
        "public_url": "http://127.0.0.1:8000",
        "hub_api_url": f"http://127.0.0.1:{free_port()}/hub/api",
        "broker_host": "127.0.0.1",
        "broker_port": free_port(),
        "broker_url_for_workloads": "http://127.0.0.1:8000/services/allotment/",
        "hub_api_url_for_workloads": "http://127.0.0.1:8081/hub/api",
        "proxy_api_url": "http://127.0.0.1:8001",
        "agent_socket": str(tmp_path / "agent" / "agent.sock"),
        "environments": {"minimal": {"title": "Minimal", "available": True}},
    }
    (tmp_path / "run" / "runtime.json").write_text(json.dumps(runtime))
    return tmp_path


def address(data: Path) -> str:
    runtime = json.loads((data / "run" / "runtime.json").read_text())
    return f"http://127.0.0.1:{runtime['broker_port']}/services/allotment/"


def command(data: Path) -> list[str]:
    return [sys.executable, "-m", "allotment_hub.broker.main", "--data-dir", str(data)]


@contextmanager
def started(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (data / "broker.log").open("wb") as log:
        process = subprocess.Popen(command(data), stderr=log, stdout=log)
    try:
        wait_ready(data, process)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=10)


def wait_ready(data: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None, (data / "broker.log").read_text()
        assert time.monotonic() < deadline, (data / "broker.log").read_text()
        try:
            if httpx.get(address(data) + "health", trust_env=False).json()["ready"]:
                return
        except httpx.TransportError:
            time.sleep(0.02)


def get(data: Path, path: str, token: str = HUB_TOKEN) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(address(data) + "api/v1/" + path, headers=headers, trust_env=False)


def test_it_serves_while_agent_and_hub_are_down_and_stops_at_once(data: Path) -> None:
    with started(data) as process:
        assert get(data, "me").json()["act_as"] is True
        assert get(data, "leases").json() == []
        unknown = get(data, "me", token="somebody-else's-token")
        assert (unknown.status_code, unknown.json()["code"]) == (503, "hub_unavailable")
        with httpx.stream(
            "GET",
            address(data) + "api/v1/events",
            headers={"Authorization": f"Bearer {HUB_TOKEN}"},
            trust_env=False,
        ) as stream:
            assert stream.status_code == 200
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
            assert time.monotonic() - began < 3
    log = (data / "broker.log").read_text()
    assert log.count('"message": "ready"') == 1
    for line in log.splitlines():
        assert json.loads(line)["time"]
    for secret in (HUB_TOKEN, SERVICE_TOKEN, "somebody-else's-token"):
        assert secret not in log


def test_a_killed_broker_starts_again(data: Path) -> None:
    with started(data) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
    with started(data):
        assert get(data, "leases").json() == []


def refused(data: Path) -> str:
    done = subprocess.run(command(data), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_all_that_is_wrong_is_said_at_once(data: Path) -> None:
    (data / "secrets" / "hub-to-broker").write_text("")
    (data / "secrets" / "broker-service").unlink()
    (data / "config" / "site.yaml").write_text("titel: x\n")
    (data / "config" / "catalog.yaml").write_text("flavors: {}\n")
    said = refused(data)
    for part in ("hub-to-broker", "broker-service", "site.yaml:1", "titel", "catalog.yaml"):
        assert part in said


def test_a_broken_runtime_file(data: Path) -> None:
    path = data / "run" / "runtime.json"
    path.write_text(path.read_text().replace('"local"', '"abacus"'))
    assert "runtime.json" in refused(data)
    path.write_text("{")
    assert "runtime.json" in refused(data)
    path.unlink()
    assert "runtime.json" in refused(data)


def test_a_busy_port(data: Path) -> None:
    runtime = json.loads((data / "run" / "runtime.json").read_text())
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", runtime["broker_port"]))
        other.listen()
        assert "cannot listen" in refused(data)
