"""What is read of a container's control group, of either version, from recorded files."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from allotment_spawner.engines.base import Workload
from allotment_spawner.engines.cgroups import Cgroups, Counted
from allotment_spawner.engines.docker_samples import DockerSampler, added, counted_by_docker

ID = "ab" * 32
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo:  900       9    0    0    0     0          0         0      900       9    0    0    0     0
  eth0: 1182      13    0    0    0     0          0         0      266       3    0    0    0     0
"""


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write(tmp_path / "proc" / "7" / "net", {"dev": NET})
    return tmp_path / "proc"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 0\n",
    "memory.current": "300000000\n",
    "memory.stat": "anon 100000000\nfile 200000000\nactive_file 50000000\ninactive_file 120000000\n",
    "memory.max": "4294967296\n",
    "io.stat": "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dios=0\n8:16 rbytes=1 wbytes=2 rios=1\n",
}


@pytest.mark.parametrize(
    "path", [f"/system.slice/docker-{ID}.scope", f"/docker/{ID}", f"/docker/{ID}/init.scope/below"]
)
def test_version_2(proc: Path, root: Path, path: str) -> None:
    (proc / "7" / "cgroup").write_text(f"0::{path}\n")
    own = path.removesuffix("/init.scope/below").lstrip("/")
    write(root / own, V2)
    cgroups = Cgroups(proc=proc, root=root)
    folders = cgroups.find([7], ID)
    assert folders is not None
    assert cgroups.read(folders) == Counted(2.5, 180_000_000, 4 * 2**30, 4097, 8194)
    assert cgroups.network([7], ID) == (1182, 266)


def test_version_2_without_a_limit_and_without_disks(proc: Path, root: Path) -> None:
    (proc / "7" / "cgroup").write_text(f"0::/docker/{ID}\n")
    write(root / "docker" / ID, V2 | {"memory.max": "max\n", "io.stat": ""})
    cgroups = Cgroups(proc=proc, root=root)
    folders = cgroups.find([7], ID)
    assert folders is not None
    assert cgroups.read(folders) == Counted(2.5, 180_000_000, None, 0, 0)


def test_a_controller_that_is_not_there_is_unknown(proc: Path, root: Path) -> None:
    (proc / "7" / "cgroup").write_text(f"0::/docker/{ID}\n")
    write(root / "docker" / ID, {"memory.current": "5\n", "cpu.stat": V2["cpu.stat"]})
    cgroups = Cgroups(proc=proc, root=root)
    folders = cgroups.find([7], ID)
    assert folders is not None
    assert cgroups.read(folders) == Counted(cpu_s=2.5)


def test_version_1(proc: Path, root: Path) -> None:
    (proc / "7" / "cgroup").write_text(
        f"5:memory:/up/docker/{ID}\n4:cpu,cpuacct:/docker/{ID}\n3:blkio:/docker/{ID}\n0::/docker/{ID}\n"
    )
    write(root / "cpuacct" / "docker" / ID, {"cpuacct.usage": "2500000000\n"})
    memory = {
        "memory.usage_in_bytes": "300\n",
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.stat": "inactive_file 7\ntotal_inactive_file 100\n",
    }
    write(root / "memory" / "up" / "docker" / ID, memory)
    counts = "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n"
    write(root / "blkio" / "docker" / ID, {"blkio.throttle.io_service_bytes_recursive": counts})
    cgroups = Cgroups(proc=proc, root=root)
    folders = cgroups.find([7], ID)
    assert folders is not None
    assert cgroups.read(folders) == Counted(2.5, 200, None, 10, 20)
    # a kernel that counts nothing says so by leaving the devices away
    write(root / "blkio" / "docker" / ID, {"blkio.throttle.io_service_bytes_recursive": "Total 0\n"})
    counted = cgroups.read(folders)
    assert counted is not None
    assert (counted.disk_read_bytes, counted.disk_write_bytes) == (None, None)


def test_a_pid_that_was_given_away_tells_nothing(proc: Path, root: Path) -> None:
    (proc / "7" / "cgroup").write_text(f"0::/docker/{'cd' * 32}\n")
    write(root / "docker" / ("cd" * 32), V2)
    cgroups = Cgroups(proc=proc, root=root)
    assert cgroups.find([7], ID) is None
    assert cgroups.network([7], ID) is None


def test_a_group_that_is_gone(proc: Path, root: Path) -> None:
    (proc / "7" / "cgroup").write_text(f"0::/docker/{ID}\n")
    write(root / "docker" / ID, V2)
    cgroups = Cgroups(proc=proc, root=root)
    folders = cgroups.find([7], ID)
    assert folders is not None
    for name in V2:
        (root / "docker" / ID / name).unlink()
    assert cgroups.read(folders) is None


def test_dockers_answer_of_either_version() -> None:
    base = {
        "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        "networks": {"eth0": {"rx_bytes": 5, "tx_bytes": 6}, "eth1": {"rx_bytes": 1, "tx_bytes": 1}},
    }
    disk = [{"op": "Read", "value": 10}, {"op": "write", "value": 20}, {"op": "Total", "value": 30}]
    v1 = base | {
        "memory_stats": {
            "usage": 300,
            "limit": 512,
            "stats": {"inactive_file": 7, "total_inactive_file": 100},
        },
        "blkio_stats": {"io_service_bytes_recursive": disk},
    }
    assert counted_by_docker(v1) == Counted(2.5, 200, 512, 10, 20, 6, 7)
    v2 = base | {
        "memory_stats": {"usage": 300, "limit": 512, "stats": {"inactive_file": 7}},
        "blkio_stats": {"io_service_bytes_recursive": None},
    }
    assert counted_by_docker(v2) == Counted(2.5, 293, 512, None, None, 6, 7)
    assert counted_by_docker({}) == Counted()


async def test_two_containers_of_one_lease_are_added_and_unknown_stays_unknown(
    proc: Path, root: Path
) -> None:
    other = "cd" * 32
    write(proc / "8", {"cgroup": f"0::/docker/{other}\n"})
    (proc / "7" / "cgroup").write_text(f"0::/docker/{ID}\n")
    write(root / "docker" / ID, V2)
    write(root / "docker" / other, V2 | {"memory.max": "max"})
    sampler = DockerSampler(base_url="unix:///no/such.sock", cgroups=Cgroups(proc=proc, root=root))
    workloads = [
        Workload(f"ref-{pid}", "0123abcd", "lease", "ada", "", "running", (), (pid,), container_id=container)
        for pid, container in ((7, ID), (8, other))
    ]
    found = (await sampler.sample(workloads))["lease"]
    sampler.close()
    assert (found.cpu_s, found.memory_used_bytes, found.processes) == (5.0, 360_000_000, 2)
    assert (found.memory_limit_bytes, found.network_rx_bytes) == (None, None)
    assert added(found, found).cpu_s == 10.0


class SilentDocker:
    """Answers only when it is told to."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def stats(self, _ref: str, **_options: bool) -> dict[str, object]:
        self.may_answer.wait()
        return {}

    def close(self) -> None:
        self.may_answer.set()


async def test_who_is_read_from_files_is_not_older_for_who_does_not_answer(proc: Path, root: Path) -> None:
    (proc / "7" / "cgroup").write_text(f"0::/docker/{ID}\n")
    write(root / "docker" / ID, V2)
    silent = SilentDocker()
    sampler = DockerSampler(
        cgroups=Cgroups(proc=proc, root=root), client_factory=lambda: silent, deadline_s=0.3
    )
    hangs = Workload("b", "0123abcd", "lease-2", "ben", "", "running", (), (8,), container_id="cd" * 32)
    works = Workload("a", "0123abcd", "lease-1", "ada", "", "running", (), (7,), container_id=ID)
    found = await sampler.sample([hangs, works])
    back_s = time.monotonic()
    sampler.close()
    assert set(found) == {"lease-1"}
    assert found["lease-1"].read_s is not None
    assert back_s - found["lease-1"].read_s > 0.2


class DockerThatSays:
    """Answers each container's name with what is given for it."""

    def __init__(self, answers: dict[str, object]) -> None:
        self._answers = answers

    def stats(self, ref: str, **_options: bool) -> object:
        return self._answers[ref]

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    "nonsense",
    [
        {"networks": {"eth0": {}}},
        {"networks": ["eth0"]},
        {"cpu_stats": "busy"},
        {"cpu_stats": {"cpu_usage": {"total_usage": "much"}}},
        {"memory_stats": {"usage": None, "stats": 5}},
        {"blkio_stats": {"io_service_bytes_recursive": [{"op": "read"}]}},
        ["a list"],
    ],
)
async def test_one_container_of_which_docker_tells_nonsense_takes_nothing_from_the_others(
    nonsense: object,
) -> None:
    docker = DockerThatSays({"a": {"cpu_stats": {"cpu_usage": {"total_usage": 2e9}}}, "b": nonsense})
    sampler = DockerSampler(client_factory=lambda: docker)
    workloads = [
        Workload(ref, "0123abcd", f"lease-{ref}", "ada", "", "running", (), (7,)) for ref in ("a", "b")
    ]
    found = await sampler.sample(workloads)
    sampler.close()
    assert set(found) == {"lease-a"}
    assert found["lease-a"].cpu_s == 2.0
