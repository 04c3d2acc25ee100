"""Parts of the agent: its socket's mode, its options, its memory of unhealthy GPUs, its client."""

from __future__ import annotations

import asyncio
import grp
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.core.inventory import Gpu, NodeInventory, Slice
from allotment_spawner.gpu.agent.health import Health
from allotment_spawner.gpu.agent.main import parse
from allotment_spawner.gpu.agent.server import bind_socket
from allotment_spawner.gpu.agent_client import UnixAgent

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SLICE = Slice(uuid="MIG-1", profile="1g.10gb", start=0, size=1, instance_id=7, ours=True)
GPU = Gpu(uuid="GPU-1", index=1, model="A100", memory_bytes=1, mig=True, axis=8, slices=(SLICE,))


def inventory(*gpus: Gpu, boot_id: str = "b") -> NodeInventory:
    return NodeInventory("n", boot_id, True, None, gpus)


def health(folder: Path) -> Health:
    made = Health(path=folder / "health.json", clock=lambda: NOW)
    made.boot("b")
    return made


def test_front_loads_no_nvml_and_no_simulator() -> None:
    ask = "import sys, allotment_spawner.gpu.agent.main; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert "pynvml" not in done.stdout
    assert "allotment_spawner.gpu.simulator" not in done.stdout


def test_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "agent.sock"
    path.parent.mkdir()
    path.write_text("what a dead agent left")
    bind_socket(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["agent.sock"]


def test_socket_for_a_group(tmp_path: Path) -> None:
    path = tmp_path / "new" / "agent.sock"
    group = grp.getgrgid(os.getgid()).gr_name
    bind_socket(path, group=group).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o710


@pytest.mark.parametrize(
    "text", ["inventory", "inventory=", "inventory=0", "inventory=nan", "lunch=3", "ensure=-1"]
)
def test_wrong_deadline_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(["--socket", "s", "--state-dir", "d", "--deadline", text])
    assert stopped.value.code == 2
    assert "VERB=SECONDS" in capsys.readouterr().err


def test_deadlines_from_options() -> None:
    options = parse(
        ["--socket", "s", "--state-dir", "d", "--deadline", "inventory=9", "--deadline=ensure=60.5"]
    )
    assert (options.deadlines.inventory, options.deadlines.ensure, options.deadlines.destroy) == (9, 60.5, 30)


def test_marked_gpu_is_shown_as_last_known(tmp_path: Path) -> None:
    kept = health(tmp_path)
    kept.complete(inventory(GPU))
    kept.mark("GPU-1", "hang", "it hung")
    again = health(tmp_path)
    assert again.hanging() == [1]
    [shown] = again.complete(inventory()).gpus
    assert (shown.slices, shown.problem) == ((SLICE,), "it hung")


def test_unreadable_gpu_is_shown_as_last_known(tmp_path: Path) -> None:
    kept = health(tmp_path)
    kept.complete(inventory(GPU))
    broken = Gpu("GPU-1", 1, "A100", 1, mig=False, axis=0, problem="reading it failed")
    [shown] = kept.complete(inventory(broken)).gpus
    assert (shown.slices, shown.mig, shown.problem) == ((SLICE,), True, "reading it failed")
    assert kept.marks == []


def test_hang_is_worse_than_a_fault_and_the_first_reason_stays(tmp_path: Path) -> None:
    kept = health(tmp_path)
    kept.complete(inventory(GPU))
    kept.mark("GPU-1", "fault", "Xid 94")
    kept.mark("GPU-1", "fault", "Xid 95")
    assert kept.marks[0].reason == "Xid 94"
    kept.mark("GPU-1", "hang", "it hung")
    kept.mark("GPU-1", "fault", "Xid 94")
    assert [(m.kind, m.reason, m.since) for m in kept.marks] == [("hang", "it hung", NOW)]


def test_reboot_and_heal_clear_marks(tmp_path: Path) -> None:
    kept = health(tmp_path)
    kept.mark("GPU-1", "hang", "it hung", index=1)
    assert kept.heal("GPU-1")
    assert not kept.heal("GPU-1")
    kept.mark("GPU-1", "hang", "it hung", index=1)
    assert kept.boot("c")
    assert health(tmp_path).marks == []


class SpeaksNonsense:
    """A socket that answers every request with one fixed line."""

    def __init__(self, path: Path, line: bytes) -> None:
        self.path = path
        self.line = line

    async def __aenter__(self) -> UnixAgent:
        self.server = await asyncio.start_unix_server(self.answer, self.path)
        return UnixAgent(socket_path=self.path, deadline_s=5)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(self.line)
        writer.close()

    async def __aexit__(self, *_error: object) -> None:
        self.server.close()


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"null\n", b'{"id": 0, "result": 7}\n', b'{"id": 0, "result": {"gpus": 3}}\n', b"\xff\n"],
)
async def test_client_takes_nonsense_for_unknown(tmp_path: Path, line: bytes) -> None:
    async with SpeaksNonsense(tmp_path / "s", line) as agent:
        with pytest.raises(AgentUnavailable):
            await agent.inventory()


async def test_client_without_an_agent(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable, match="cannot be reached"):
        await UnixAgent(socket_path=tmp_path / "none").inventory()
