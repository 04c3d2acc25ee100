"""A wall around one process: connections go only to public addresses and to those that were allowed."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from allotment_hub.data.addresses import is_public, leads_to, parse_allowed

__all__ = ["AddressRefused", "Guard", "own_addresses"]

_NET = Path("/proc/self/net")


class AddressRefused(OSError):
    """Raised instead of a connection; an OSError, so that every library takes it for a failed one."""


class Guard:
    """`install` puts it around this process for good.

    It sits where Python itself connects (an audit hook), below every library, redirect and look-up: so the
    address that is checked is the address that is connected to, however a name answers the next time.
    """

    def __init__(self, *, allow_hosts: Sequence[str] = (), own: Collection[str] = ()) -> None:
        """`own`: this machine's addresses. A public one leads past its firewall, to what listens here."""
        self._own = frozenset(own)
        self._allowed: set[tuple[str, int | None]] = set()
        self._names = tuple(parse_allowed(entry) for entry in allow_hosts)
        self.refused: list[str] = []
        """Addresses that were not connected to, in order."""

    def install(self) -> None:
        """Look up the allowed names once and start to watch; cannot be undone."""
        for host, port in self._names:
            with contextlib.suppress(OSError):
                for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                    self._allowed.add((str(found[4][0]), port))
        sys.addaudithook(self._watch)

    def allows(self, address: object) -> bool:
        """`address` is what connect() is given: (host, port, …) for IPv4 and IPv6."""
        if not isinstance(address, tuple) or len(address) < 2:
            return False
        host, port = str(address[0]), address[1]
        if (host, port) in self._allowed or (host, None) in self._allowed:
            return True
        return is_public(host) and leads_to(host) not in self._own

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            if event == "socket.sendmsg" and address is None:
                return  # an open connection goes on
            if not self.allows(address):
                self.refused.append(str(address))
                raise AddressRefused(f"not a public address: {address!r}")


def own_addresses(net: Path = _NET) -> frozenset[str]:
    """Of this machine, as the kernel lists them; what it does not list is not found."""
    found, last = set(), ""
    with contextlib.suppress(OSError):
        for line in (net / "fib_trie").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[:1] == ["|--"]:
                last = words[1]
            elif words[:3] == ["/32", "host", "LOCAL"]:
                found.add(last)
    with contextlib.suppress(OSError):
        for line in (net / "if_inet6").read_text(encoding="ascii").splitlines():
            found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    return frozenset(found)
