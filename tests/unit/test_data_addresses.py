"""Which sources may be registered, and which addresses may be connected to."""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from allotment_hub.data.addresses import is_public, parse_allowed, parse_source
from allotment_hub.data.guard import Guard, own_addresses
from allotment_spawner.core.errors import AddressNotAllowed
from hypothesis import given
from hypothesis import strategies as st

NOT_PUBLIC = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.1.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "2002:c0a8:101::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "nonsense",
    "127.1",
    "2130706433",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_of_the_house_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_no_way_of_writing_an_address_makes_it_public(inner: ipaddress.IPv4Address) -> None:
    """Mapped, through 6to4 or through NAT64, it is what it leads to."""
    number = int(inner)
    ways = [
        ipaddress.IPv6Address(0xFFFF << 32 | number),
        ipaddress.IPv6Address(0x2002 << 112 | number << 80),
        ipaddress.IPv6Address(0x64FF9B << 96 | number),
    ]
    assert {is_public(str(way)) for way in ways} == {is_public(str(inner))}


@pytest.mark.parametrize(
    "source",
    [
        "",
        " https://example.org/x",
        "https://example.org/x\n",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "ftp://example.org/x",
        "gopher://example.org",
        "//example.org/x",
        "https:///x",
        "https://user:word@example.org/x",
        "https://token@example.org/x",
        "http://127.0.0.1/x",
        "http://[::1]/x",
        "http://[::ffff:10.0.0.1]/x",
        "http://0x7f.1/x",
        "http://2130706433/x",
        "http://017700000001/x",
        "http://10.0.0.1:80/x",
        "http://[::1",
        "http://example.org:99999/x",
        "s3://",
        "s3://bucket/key?versionId=1",
        "s3://bucket:80/key",
        "s3:/bucket/key",
        "/etc/passwd",
        "/srv/data/../../etc/passwd",
        "/srv/database/x",
        "x" * 3000,
        "javascript:alert(1)",
    ],
)
def test_sources_that_are_refused(source: str) -> None:
    with pytest.raises(AddressNotAllowed) as refused:
        parse_source(source, allow_paths=("/srv/data",))
    assert refused.value.next_step


def test_sources_that_are_taken() -> None:
    found = parse_source("https://example.org/a/iris%20data.csv?x=1")
    assert (found.kind, found.file_name) == ("http", "iris data.csv")
    assert parse_source("https://example.org/").file_name == "data"
    assert parse_source("https://example.org/%2e%2e").file_name == "data"
    assert parse_source("s3://bucket/a/b.npz").file_name == "b.npz"
    assert parse_source("s3://bucket/folder/").kind == "s3"
    inside = parse_source("/srv/data/a/./b//c", allow_paths=("/srv/data/",))
    assert (inside.location, inside.root) == ("/srv/data/a/b/c", "/srv/data")
    assert parse_source("http://10.0.0.1:9000/x", allow_hosts=("10.0.0.1:9000",)).kind == "http"
    assert parse_source("http://[fd00::1]:9000/x", allow_hosts=("[fd00::1]:9000",)).kind == "http"


def test_an_allowed_port_opens_no_other() -> None:
    for url in ("http://10.0.0.1/x", "http://10.0.0.1:9001/x", "http://10.0.0.2:9000/x"):
        with pytest.raises(AddressNotAllowed):
            parse_source(url, allow_hosts=("10.0.0.1:9000",))


def test_allowed_hosts() -> None:
    assert parse_allowed("minio:9000") == ("minio", 9000)
    assert parse_allowed("minio") == ("minio", None)
    assert parse_allowed("[fd00::1]:9000") == ("fd00::1", 9000)
    assert parse_allowed("fd00::1") == ("fd00::1", None)
    for wrong in ("http://minio", "minio/x", "a@b", ":9000"):
        with pytest.raises(ValueError, match=r"HOST|netloc|IPv6|port"):
            parse_allowed(wrong)


def test_this_machines_own_public_addresses_are_not_the_internet(tmp_path: Path) -> None:
    """Reached from here they answer past the firewall, with all that listens on every address."""
    (tmp_path / "fib_trie").write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 8.8.8.0\n        /24 link UNICAST\n"
        "     |-- 8.8.8.8\n        /32 host LOCAL\n     |-- 8.8.8.255\n        /32 link BROADCAST\n"
    )
    (tmp_path / "if_inet6").write_text("26064700000000000000000000001111 02 40 00 80     eth0\n")
    own = own_addresses(tmp_path)
    assert own == {"8.8.8.8", "2606:4700::1111"}
    guard = Guard(own=own)
    for host in (
        "8.8.8.8",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2606:4700:0::1111",
        "2606:4700::1111%eth0",
    ):
        assert not guard.allows((host, 443)), host
    assert guard.allows(("8.8.4.4", 443))
    assert guard.allows(("2606:4700::1112", 443, 0, 0))
    assert own_addresses(tmp_path / "none") == frozenset()
    assert "127.0.0.1" in own_addresses()


def test_the_guard_knows_only_network_addresses() -> None:
    guard = Guard()
    assert guard.allows(("8.8.8.8", 443))
    assert guard.allows(("2606:4700::1111", 443, 0, 0))
    for address in (
        ("127.0.0.1", 80),
        ("::1", 80, 0, 0),
        "/run/docker.sock",
        b"\0abstract",
        None,
        ("10.0.0.1",),
    ):
        assert not guard.allows(address)


_WALLED = """
import asyncio, socket, sys
from allotment_hub.data.guard import Guard
from allotment_hub.data.http_source import HttpSource
from allotment_hub.data.sources import Entry, Transient

port = int(sys.argv[1])
guard = Guard()
guard.install()
refused = []
for way in (
    lambda: socket.create_connection(("127.0.0.1", port)),
    lambda: socket.create_connection(("localhost", port)),
    lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("127.0.0.1", port)),
    lambda: socket.socket().connect_ex(("127.0.0.1", port)),
    lambda: asyncio.run(asyncio.open_connection("127.0.0.1", port)),
):
    try:
        way()
    except OSError as error:
        refused.append(type(error).__name__)
print(len(refused))

asked = []

def rebinding(host, port_, *rest, **named):
    # whatever a check before would have been told: the look-up of the connection says our own address
    asked.append(host)
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port_))]

socket.getaddrinfo = rebinding

async def fetch():
    source = HttpSource(f"http://innocent.example:{port}/x", file_name="x")
    try:
        async with source.open(Entry(f"http://innocent.example:{port}/x", "x"), offset=0, tag=None):
            print("opened")
    except Transient as error:
        print(error)
    finally:
        await source.close()

asyncio.run(fetch())
print(asked[0], guard.refused[-1] == str(("127.0.0.1", port)))
"""


def test_inside_the_wall_no_library_reaches_the_machine_whatever_names_say() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-I", "-c", _WALLED, str(port)], capture_output=True, text=True, check=False
        )
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0].split()[0] == "7"
    assert "Connector" in lines[1]
    assert lines[2] == "innocent.example True"
