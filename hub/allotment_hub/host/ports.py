"""Which ports are free, and a lasting choice of three inner ones."""

from __future__ import annotations

import errno
import random
import socket

from allotment_hub.host.errors import HostError

__all__ = ["can_listen", "choose_ports", "require_port"]

_FIRST, _LAST = 20000, 31999  # below Linux's ephemeral range, so that no outgoing connection takes them


def can_listen(host: str, port: int) -> OSError | None:
    """None when a server could listen there now, else the reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a connection of the last run that still lingers is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error
    return None


def require_port(host: str, port: int, *, option: str) -> None:
    """Raise `HostError` when nothing of ours could listen there."""
    error = can_listen(host, port)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise HostError(
            f"Port {port} on {host} is in use by another program; stop it, or choose another with {option}."
        )
    if error.errno == errno.EACCES:
        raise HostError(f"Port {port} needs root; choose one above 1023 with {option}.")
    if error.errno == errno.EADDRNOTAVAIL:
        raise HostError(f"This machine has no address {host}; `ip addr` lists those it has.")
    raise HostError(f"Nothing can listen on {host} port {port} ({error.strerror}).")


def choose_ports(host: str, count: int, *, avoid: frozenset[int]) -> list[int]:
    """This many different free ports; at random, so that two installations rarely ask for the same."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(_FIRST, _LAST + 1), 2000):
        if port not in avoid and can_listen(host, port) is None and can_listen("127.0.0.1", port) is None:
            found.append(port)
        if len(found) == count:
            return found
    raise HostError(f"No {count} free ports between {_FIRST} and {_LAST} on {host}.")
