"""Which sources a dataset may have, and which network addresses may be asked for it (pure)."""

from __future__ import annotations

import ipaddress
import posixpath
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from allotment_spawner.core.errors import AddressNotAllowed

__all__ = ["SOURCE_LENGTH", "Source", "is_public", "leads_to", "parse_allowed", "parse_source"]

SOURCE_LENGTH = 2000
_SIXTO4 = ipaddress.ip_network("2002::/16")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SPECIAL = tuple(
    ipaddress.ip_network(net)
    for net in [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ]
)
"""IANA's special-purpose addresses. Python's own tables differ from one patch release to the next."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Source:
    """A checked source. `location` is the URL, or the absolute path without `..`; `root` the allowed folder
    that a path lies in, None for the network."""

    kind: Literal["http", "s3", "path"]
    location: str
    root: str | None = None

    @property
    def file_name(self) -> str:
        """What a single file is called in the dataset: the source's last part, or `data`."""
        path = self.location if self.kind == "path" else unquote(urlsplit(self.location).path)
        name = posixpath.basename(path.rstrip("/"))
        usable = name.isprintable() and 0 < len(name.encode()) <= 255 and name not in (".", "..")
        return name if usable else "data"


def is_public(address: str) -> bool:
    """Whether this IP address is one of the open internet: not this machine, its networks, or a way to them.

    An IPv4 address inside an IPv6 one counts as what it leads to.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _public(found)


def leads_to(address: str) -> str | None:
    """The address in its one spelling; of an IPv4 address inside an IPv6 one, that. None for no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    inner = _embedded(found) if isinstance(found, ipaddress.IPv6Address) else None
    return str(inner or found)


def _public(found: Address) -> bool:
    if isinstance(found, ipaddress.IPv6Address):
        inner = _embedded(found)
        if inner is not None:
            return _public(inner)
    return not any(found in net for net in _SPECIAL if net.version == found.version)


def _embedded(found: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if found.ipv4_mapped is not None:
        return found.ipv4_mapped
    if found in _SIXTO4:
        return ipaddress.IPv4Address(int(found) >> 80 & 0xFFFFFFFF)
    if found in _NAT64:
        return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return None


def parse_allowed(entry: str) -> tuple[str, int | None]:
    """HOST, HOST:PORT or [IPV6]:PORT of `datasets.allow_hosts`. ValueError when it is none of these."""
    parts = urlsplit(f"//{entry}") if entry.count(":") < 2 or "[" in entry else urlsplit(f"//[{entry}]")
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in entry:
        raise ValueError(f"{entry!r} is not HOST or HOST:PORT")
    return parts.hostname, parts.port


def parse_source(text: str, *, allow_hosts: Sequence[str] = (), allow_paths: Sequence[str] = ()) -> Source:
    """The source behind `text`, or `AddressNotAllowed`. Names are looked up only when it is fetched."""
    if not text or len(text) > SOURCE_LENGTH or not text.isprintable() or text != text.strip():
        raise _no("The source is empty, too long, or holds characters that no address has.")
    if text.startswith("/"):
        return _path(text, allow_paths)
    try:
        parts = urlsplit(text)
        host, port, secret = parts.hostname, parts.port, parts.username or parts.password
    except ValueError:
        raise _no("The source is not an address that can be read.") from None
    if parts.scheme not in ("http", "https", "s3"):
        raise _no("Data comes from http://, https:// or s3:// addresses, or from an allowed folder.")
    if secret:
        raise _no("The address holds a name or password, which everybody who lists datasets could read.")
    if not host:
        raise _no("The address names no host or bucket.")
    if parts.scheme == "s3":
        if "?" in text or "#" in text or port is not None:
            raise _no("An s3 address is s3://BUCKET/KEY, and nothing more.")
        return Source("s3", text)
    check_literal(host, port or (443 if parts.scheme == "https" else 80), allow_hosts)
    return Source("http", text)


def check_literal(host: str, port: int, allow_hosts: Sequence[str]) -> None:
    """Refuse a host that is itself an address of a network in the house. Names pass: they are checked when
    they are looked up, right before each connection."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        if _is_number(host):
            raise refused_address() from None
        return
    allowed = [parse_allowed(entry) for entry in allow_hosts]
    if not is_public(host) and (host, port) not in allowed and (host, None) not in allowed:
        raise refused_address()


def _is_number(host: str) -> bool:
    """2130706433, 0x7f.1 and the like: numbers that the system would read as an IPv4 address."""
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True


def refused_address() -> AddressNotAllowed:
    return AddressNotAllowed(
        "This address leads into the machine's own networks, which data is not fetched from.",
        "Use a public address, or have the operator name HOST:PORT in datasets.allow_hosts of site.yaml.",
    )


def _path(text: str, allow_paths: Sequence[str]) -> Source:
    path = posixpath.normpath(text)
    if ".." in text.split("/") or path.startswith("//"):
        raise _no("A path must be plain, without `..`.")
    for root in allow_paths:
        if path == root.rstrip("/") or path.startswith(root.rstrip("/") + "/"):
            return Source("path", path, root.rstrip("/") or "/")
    raise AddressNotAllowed(
        "This folder of the machine is not one that datasets may come from.",
        "Have the operator name it in datasets.allow_paths of site.yaml.",
    )


def _no(sentence: str) -> AddressNotAllowed:
    return AddressNotAllowed(sentence, "Give an address like https://host/file.tar.gz or s3://bucket/key.")
