"""A network of the tests' own: nothing in it can reach the outside, no port clashes with anything."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["add_address", "far_network", "private_network"]

_CLONE_NEWNET = 0x40000000
_SERVE = (
    "import signal, socket; s = socket.socket(); s.bind(('0.0.0.0', {port})); s.listen(64); "
    "print('up', flush=True); signal.pause()"
)
_OWN = Path("/proc/thread-self/ns/net")
_made: set[int] = set()
"""Inode numbers of the networks made here."""
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def private_network() -> Iterator[None]:
    """This thread, and every process and thread it starts, lives in a new network namespace.

    Only loopback is up. Needs root. Sockets opened before keep the old network.
    """
    before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWNET))
        try:
            _made.add(_OWN.stat().st_ino)
            _run("ip", "link", "set", "lo", "up")
            yield
        finally:
            _made.discard(_OWN.stat().st_ino)
            _check(_libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def add_address(address: str, name: str) -> None:
    """Give `address` (with its prefix length) to a new interface of this namespace."""
    _only_private()
    _run("ip", "link", "add", name, "type", "bridge")
    _run("ip", "address", "add", address, "dev", name)
    _run("ip", "link", "set", name, "up")


@contextlib.contextmanager
def far_network(address: str, port: int, *, python: str) -> Iterator[None]:
    """A second network behind a cable, where something listens at `address`: packets to it are forwarded.

    Only inside private_network(), so that even a packet that nobody stops stays on this machine.
    """
    _only_private()
    argv = ["unshare", "--net", python, "-c", _SERVE.format(port=port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            inside = ["nsenter", f"--net=/proc/{server.pid}/ns/net"]
            _run(
                "ip", "link", "add", "far0", "type", "veth", "peer", "name", "far1", "netns", str(server.pid)
            )
            _run("ip", "address", "add", "198.51.100.1/30", "dev", "far0")
            _run("ip", "link", "set", "far0", "up")
            _run("ip", "route", "add", f"{address}/32", "dev", "far0")
            _run(*inside, "ip", "address", "add", f"{address}/32", "dev", "far1")
            _run(*inside, "ip", "link", "set", "far1", "up")
            _run(*inside, "ip", "route", "add", "198.51.100.0/30", "dev", "far1")
            yield
        finally:
            server.kill()


def _only_private() -> None:
    if _OWN.stat().st_ino not in _made:
        raise RuntimeError("only inside private_network()")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
