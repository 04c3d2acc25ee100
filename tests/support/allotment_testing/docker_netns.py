"""A network of the tests' own: nothing in it can reach the outside, no port clashes with anything."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["add_address", "private_network"]

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def private_network() -> Iterator[None]:
    """This thread, and every process and thread it starts, lives in a new network namespace.

    Only loopback is up. Needs root. Sockets opened before keep the old network.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWNET))
        try:
            _run("ip", "link", "set", "lo", "up")
            yield
        finally:
            _check(_libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def add_address(address: str, name: str) -> None:
    """Give `address` (with its prefix length) to a new interface of this namespace."""
    if Path("/proc/thread-self/ns/net").stat().st_ino == Path("/proc/1/ns/net").stat().st_ino:
        raise RuntimeError("only inside private_network()")
    _run("ip", "link", "add", name, "type", "bridge")
    _run("ip", "address", "add", address, "dev", name)
    _run("ip", "link", "set", name, "up")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
