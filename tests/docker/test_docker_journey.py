"""From the built images to PyTorch on a 10 GB slice in a real container, and to nothing left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from allotment_spawner.launch.names import home_volume_name
from allotment_testing.installation import Installation, wait_until
from allotment_testing.notebook import Notebook
from allotment_testing.recovery_checks import Session, slots_taken
from allotment_testing.workloads import Containers

ENVIRONMENTS = ("minimal", "pytorch")
GIB = 2**30
COUNT = """
import os, torch
print(torch.__version__, os.environ["ALLOTMENT_DEVICES"], torch.arange(9).sum().item())
"""
MEMORY = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true"


@pytest.fixture(scope="module")
def session(installation: Installation, containers: Containers) -> Session:
    return Session(installation=installation, environment="pytorch", workloads=containers)


@pytest.fixture(scope="module")
def lease(session: Session) -> dict[str, Any]:
    return session.start("gpu-10gb")


def torch_of(installation: Installation) -> str:
    """The version that is shown to people who choose."""
    offered = {one["id"]: one for one in installation.broker("environments").json()}
    assert [offered[name]["available"] for name in ENVIRONMENTS] == [True, True]
    return str(offered["pytorch"]["packages"]["torch"])


def test_pytorch_runs_on_10_gb(installation: Installation, session: Session, lease: dict[str, Any]) -> None:
    notebook = Notebook(url=session.url, token=session.token)
    version, devices, total = notebook.run(notebook.start_kernel(), COUNT).split()
    assert version.startswith("2.")
    assert version.partition("+")[0] == torch_of(installation).partition("+")[0]
    assert devices == lease["devices"][0]["uuid"]
    assert (lease["environment"], lease["devices"][0]["profile"]) == ("pytorch", "1g.10gb")
    assert total == "36"


def test_the_container_has_its_limits_and_walls(
    installation: Installation, lease: dict[str, Any], containers: Containers
) -> None:
    container = containers.of(lease["id"])
    host, network = container["HostConfig"], f"allotment-{installation.runtime.installation}"
    assert (host["Memory"], host["MemorySwap"], host["CpuQuota"]) == (8 * GIB, 8 * GIB, 200_000)
    assert host["PidsLimit"] > 0
    assert host["ShmSize"] > 64 * 2**20
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], None)
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert (host["Privileged"], host["Init"], host["NetworkMode"]) == (False, True, network)
    assert (host["RestartPolicy"]["Name"], host["PortBindings"] or {}) == ("no", {})
    assert list(container["NetworkSettings"]["Networks"]) == [network]
    assert container["Config"]["User"] == "1000:100"
    volume = home_volume_name(installation.runtime.installation, "demo")
    mounts = {one["Destination"]: one for one in container["Mounts"]}
    assert sorted(mounts) == ["/home/jovyan", "/scratch", "/tmp"]
    assert (mounts["/home/jovyan"]["Type"], mounts["/home/jovyan"]["Name"]) == ("volume", volume)
    scratch = mounts["/scratch"]["Source"]
    assert (scratch, Path(scratch).name) == (mounts["/tmp"]["Source"], lease["id"])
    inside = containers.inside(lease["id"], "cat", "/proc/self/status")
    assert "NoNewPrivs:\t1" in inside
    assert "CapBnd:\t0000000000000000" in inside
    limit = containers.inside(lease["id"], "sh", "-c", MEMORY)
    assert str(8 * GIB) in limit


def test_the_home_stays_and_the_container_does_not(
    installation: Installation, session: Session, lease: dict[str, Any], containers: Containers
) -> None:
    notebook = Notebook(url=session.url, token=session.token)
    notebook.run(notebook.start_kernel(), "open('kept.txt', 'w').write('from before')")
    session.stop()
    wait_until(lambda: not containers.all(), what="no container is left")
    ended = session.lease(lease["id"])
    assert (ended["state"], ended["end_reason"]) == ("ended", "stopped")
    assert ended["active_at"] <= ended["stopped_at"] <= ended["ended_at"]
    assert slots_taken(installation) == 0

    again = Session(installation=installation, workloads=containers)
    lease = again.start("cpu")
    assert containers.inside(lease["id"], "sh", "-c", "cat ~/kept.txt") == "from before"
    again.stop()
    assert containers.all() == []
