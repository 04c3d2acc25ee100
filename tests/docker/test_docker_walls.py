"""From inside a session's container: what it can reach of the host, its neighbours and the network."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from allotment_spawner.engines.docker_setup import Bridge, ensure_bridge
from allotment_spawner.engines.firewall import Firewall, firewall_rules, run_iptables
from allotment_testing.docker_daemon import DockerDaemon, wait_until
from allotment_testing.docker_images import image_tag
from allotment_testing.docker_netns import add_address, far_network
from allotment_testing.docker_testbed import running_docker
from allotment_testing.engine_makers import DockerMaker

OURS = "0a1b2c3d"
DOCKERD_PORT, HUB_API, PROXY, BROKER, OTHER = 2375, 8081, 8000, 9000, 5000
LOOPBACK_BROKER, PROXY_API = 9001, 8001
HOST_METADATA, FAR_METADATA = "169.254.169.254", "169.254.170.2"
"""Stand-ins of the test's own network, which has no way out."""

TRY = """
import json, socket, sys
out = {}
for host, port in json.loads(sys.argv[1]):
    try:
        socket.create_connection((host, port), timeout=3).close()
        out[f"{host}:{port}"] = "open"
    except OSError as error:
        out[f"{host}:{port}"] = type(error).__name__
print(json.dumps(out))
"""


@dataclass
class Bed:
    client: Any
    maker: DockerMaker
    bridge: Bridge
    mine: str
    neighbour: str

    def inside(self, *argv: str) -> tuple[int, str]:
        made = self.client.exec_create(self.mine, list(argv))
        text = self.client.exec_start(made["Id"]).decode(errors="replace")
        return self.client.exec_inspect(made["Id"])["ExitCode"], text

    def reach(self, *targets: tuple[str, int]) -> list[str]:
        code, text = self.inside("python3", "-c", TRY, json.dumps(targets))
        assert code == 0, text
        return list(json.loads(text).values())

    def address(self, ref: str) -> str:
        networks = self.client.inspect_container(ref)["NetworkSettings"]["Networks"]
        return str(networks[self.bridge.name]["IPAddress"])


def listen(stack: contextlib.ExitStack, host: str, port: int) -> None:
    """A listening socket; the kernel completes the connection without anybody accepting it."""
    made = stack.enter_context(contextlib.closing(socket.socket()))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.listen(64)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with contextlib.ExitStack() as stack:
        daemon: DockerDaemon = stack.enter_context(running_docker("minimal", tcp_port=DOCKERD_PORT))
        client = stack.enter_context(contextlib.closing(daemon.client()))
        maker = DockerMaker(daemon.base_url, client, image_tag("minimal"))
        bridge = ensure_bridge(client, name=f"allotment-{OURS}", installation=OURS)
        add_address(f"{HOST_METADATA}/32", "metadata0")
        for host, port in [
            ("127.0.0.1", LOOPBACK_BROKER),
            ("127.0.0.1", PROXY_API),
            (bridge.gateway, HUB_API),
            (bridge.gateway, PROXY),
            (bridge.gateway, BROKER),
            ("0.0.0.0", OTHER),
            (HOST_METADATA, 80),
        ]:
            listen(stack, host, port)
        stack.enter_context(far_network(FAR_METADATA, 80, python=sys.executable))
        mine = maker.create(OURS, "mine", ["sleep", "600"])
        neighbour = maker.create(OURS, "neighbour", ["python3", "-m", "http.server", "8888"])
        maker.start(mine)
        maker.start(neighbour)
        stack.callback(maker.clean)
        yield Bed(client, maker, bridge, mine, neighbour)


@pytest.fixture
def walled(bed: Bed) -> Iterator[Bed]:
    firewall = Firewall(run=run_iptables)
    ports = [HUB_API, PROXY, BROKER]
    firewall.apply(
        firewall_rules(
            installation=OURS, interface=bed.bridge.interface, gateway=bed.bridge.gateway, ports=ports
        )
    )
    yield bed
    firewall.remove(OURS)


def test_without_the_rules_the_host_is_open(bed: Bed) -> None:
    """The control: what the other tests find closed is there and would be reached."""
    gateway = bed.bridge.gateway
    assert bed.reach((gateway, OTHER), (gateway, DOCKERD_PORT), (HOST_METADATA, 80)) == ["open"] * 3
    assert bed.reach((FAR_METADATA, 80)) == ["open"]


def test_hub_proxy_and_broker_are_reached_at_the_gateway(walled: Bed) -> None:
    gateway = walled.bridge.gateway
    assert walled.reach((gateway, HUB_API), (gateway, PROXY), (gateway, BROKER)) == ["open"] * 3


def test_other_ports_of_the_host_are_refused(walled: Bed) -> None:
    gateway = walled.bridge.gateway
    targets = [(gateway, OTHER), (gateway, DOCKERD_PORT), (HOST_METADATA, OTHER), (HOST_METADATA, BROKER)]
    assert walled.reach(*targets) == ["ConnectionRefusedError"] * 4


def test_what_listens_on_the_hosts_loopback_is_not_reached(walled: Bed) -> None:
    gateway = walled.bridge.gateway
    targets = [(host, port) for host in ("127.0.0.1", gateway) for port in (LOOPBACK_BROKER, PROXY_API)]
    assert walled.reach(*targets) == ["ConnectionRefusedError"] * 4


def test_cloud_metadata_is_not_reached(walled: Bed) -> None:
    assert walled.reach((HOST_METADATA, 80), (FAR_METADATA, 80)) == ["ConnectionRefusedError"] * 2


def test_a_neighbour_is_not_reached(walled: Bed) -> None:
    address = walled.address(walled.neighbour)

    def listens() -> bool:
        with contextlib.closing(socket.socket()) as probe:
            probe.settimeout(3)
            return probe.connect_ex((address, 8888)) == 0

    wait_until(listens, limit_s=30, what="the neighbour serves this host")
    assert walled.reach((address, 8888))[0] != "open"


def test_a_neighbour_is_not_reached_even_without_our_rules(bed: Bed) -> None:
    assert bed.reach((bed.address(bed.neighbour), 8888))[0] != "open"


def test_no_socket_of_the_host_is_inside(bed: Bed) -> None:
    _, text = bed.inside("sh", "-c", "find / -xdev -type s 2>/dev/null")
    assert text.strip() == ""
    code, _ = bed.inside("test", "-e", "/var/run/docker.sock")
    assert code == 1


def test_no_way_to_more_rights(bed: Bed) -> None:
    _, status = bed.inside("cat", "/proc/self/status")
    assert "NoNewPrivs:\t1" in status
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status
    for argv in (
        ["unshare", "--net", "true"],
        ["mount", "-t", "tmpfs", "none", "/mnt"],
        ["mknod", "/tmp/null", "c", "1", "3"],
        ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
    ):
        code, _ = bed.inside(*argv)
        assert code != 0, argv


def test_a_raw_packet_or_another_address_cannot_be_sent(bed: Bed) -> None:
    """No ARP games with the neighbours: raw sockets and interface changes need capabilities."""
    raw = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"
    code, text = bed.inside("python3", "-c", raw)
    assert code != 0
    assert "PermissionError" in text
