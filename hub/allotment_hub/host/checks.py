"""What must be true of this machine before anything starts; `up` and `allot doctor` share it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from allotment_hub.host.errors import HostError
from allotment_hub.host.node import find_node
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.unix_account import STAYS_ROOT, UnixAccount, check_account, ordinary
from allotment_hub.paths import Paths

__all__ = ["Finding", "check_data_dir", "check_tls", "machine_findings", "require", "rights_finding"]

NEEDED_BYTES = 1 << 30
SOCKET_PATH_LIMIT = 107
"""Bytes of a unix socket's path on Linux, without its closing zero."""
NEEDED_FILES = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what was found and, unless it is fine, what to do."""

    name: str
    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


def require(findings: list[Finding]) -> None:
    """Raise `HostError` with the first error among them."""
    for finding in findings:
        if finding.level == "error":
            raise HostError(f"{finding.what} {finding.remedy}".strip())


def machine_findings(paths: Paths) -> list[Finding]:
    """All that does not depend on ports, engine or hardware. Nothing here changes the disk."""
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        _system,
        lambda: _data_of_root(paths) or _data_dir(paths),
        lambda: _socket_path(paths),
        lambda: _disk(paths),
        _open_files,
        _node,
    )
    return [check() for check in checks]


def check_data_dir(paths: Paths, account: UnixAccount | None = None) -> None:
    """The parts that must hold before a folder is made; raises `HostError`.

    With the account that the services are to run as, also whether it can use them there.
    """
    require([_system(), _data_dir(paths, account), _socket_path(paths), _disk(paths)])
    if account is not None:
        above = _existing(paths.data.parent)
        check_account(account, enters=[above])


def rights_finding(user: str | None) -> Finding | None:
    """As `user` stands in host.json; None where root started nothing."""
    account = ordinary(user)
    if account is not None:
        return Finding("rights", "ok", f"services run as {account.name}, only the agent as root")
    return Finding("rights", "warning", *STAYS_ROOT) if os.geteuid() == 0 else None


def check_tls(certificate: Path, key: Path) -> None:
    """Raise `HostError` unless the two files are a certificate and its key."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError):
        raise HostError(
            f"{certificate} and {key} are not a PEM certificate and its unencrypted private key."
        ) from None


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sqlite3.sqlite_version_info < (3, 35):
        return Finding("python", "error", f"Python's SQLite is {sqlite3.sqlite_version}.", "3.35 is needed.")
    return Finding("python", "ok", f"Python {found}, SQLite {sqlite3.sqlite_version}")


def _system() -> Finding:
    if not sys.platform.startswith("linux") or not Path("/proc/self/stat").exists():
        return Finding(
            "system",
            "error",
            "Allotment's services run on Linux only.",
            "Use a Linux machine or a virtual one.",
        )
    return Finding("system", "ok", f"Linux {os.uname().release}")


def _data_dir(paths: Paths, account: UnixAccount | None = None) -> Finding:
    here = _existing(paths.data)
    if not here.is_dir():
        return Finding("data", "error", f"{here} is not a folder.", "Choose another with --data-dir.")
    if not os.access(here, os.W_OK | os.X_OK):
        return Finding(
            "data", "error", f"You may not write in {here}.", "Choose another folder with --data-dir."
        )
    owners = {os.geteuid()} | ({account.uid} if account else set())
    if here == paths.data and here.stat().st_uid not in owners:
        return Finding(
            "data", "error", f"{here} belongs to another account.", "Run as that account, or use --data-dir."
        )
    # the configuration may be written before the first start
    others = here == paths.data and any(one != paths.site.parent for one in here.iterdir())
    if others and not paths.runtime.parent.exists():
        return Finding(
            "data", "error", f"{here} holds other files already.", "Choose an empty folder with --data-dir."
        )
    return Finding("data", "ok", f"data in {paths.data}")


def _data_of_root(paths: Paths) -> Finding | None:
    """For the account that root's services run as: it uses the folder and need not own it."""
    if os.geteuid() == 0 or not os.access(paths.runtime.parent, os.R_OK | os.X_OK):
        return None
    settings = HostSettings.load(paths.data)
    account = ordinary(settings.user) if settings is not None else None
    if account is None or account.uid != os.geteuid():
        return None
    return Finding("data", "ok", f"data in {paths.data}, started by root")


def _socket_path(paths: Paths) -> Finding:
    length = len(os.fsencode(paths.agent_socket))
    if length > SOCKET_PATH_LIMIT:
        return Finding(
            "socket",
            "error",
            f"The data directory's path is {length - SOCKET_PATH_LIMIT} bytes too long for a unix socket.",
            "Choose a shorter one with --data-dir.",
        )
    return Finding("socket", "ok", "the data directory's path is short enough")


def _disk(paths: Paths) -> Finding:
    here = _existing(paths.data)
    usage = shutil.disk_usage(here)
    free = f"{usage.free / (1 << 30):.1f} GiB free below {here}"
    if usage.free < NEEDED_BYTES:
        return Finding("disk", "error", f"There is too little room: {free}.", "1 GiB is needed; make room.")
    files = os.statvfs(here)
    if files.f_files and files.f_favail < NEEDED_FILES:
        return Finding("disk", "error", f"The disk of {here} has no inodes left.", "Remove some files.")
    return Finding("disk", "ok", free)


def _open_files() -> Finding:
    import resource  # noqa: PLC0415 - not on every system that can parse this file

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < 1024:
        return Finding(
            "files", "warning", f"Only {limit} files may be open at once.", "Raise it: ulimit -n 65536."
        )
    return Finding("files", "ok", f"{limit} open files allowed")


def _node() -> Finding:
    try:
        node = find_node()
    except HostError as error:
        return Finding("node", "error", str(error))
    return Finding("node", "ok", f"node at {node.node}")


def _existing(path: Path) -> Path:
    """The path, or the nearest of its parents that exists and may be looked at."""
    while path != path.parent:
        try:
            if path.exists():
                break
        except PermissionError:
            pass
        path = path.parent
    return path
