"""A PostgreSQL of the test's own: a cluster in a temporary folder, reached over a unix socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PostgresCluster", "postgres_cluster"]


class PostgresCluster:
    """`database()` makes an empty database and returns its SQLAlchemy URL."""

    def __init__(self, *, folder: Path, binaries: Path) -> None:
        self._folder = folder
        self._binaries = binaries
        self._made = 0

    def database(self) -> str:
        self._made += 1
        name = f"allotment{self._made}"
        _run([str(self._binaries / "createdb"), "-h", str(self._folder), "-U", "postgres", name])
        return f"postgresql://postgres@/{name}?host={self._folder}"


@contextmanager
def postgres_cluster() -> Iterator[PostgresCluster]:
    """Started and stopped here. As root it runs as user postgres (the server refuses root)."""
    binaries = _binaries()
    # a unix socket's path has at most 107 bytes, so not below pytest's long folders
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    data = folder / "data"
    if os.getuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    try:
        _as_postgres([str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "-N"])
        start = [str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options]
        _as_postgres([*start, "start"])
        try:
            yield PostgresCluster(folder=folder, binaries=binaries)
        finally:
            _as_postgres([str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
    return Path(on_path).parent


def _as_postgres(command: list[str]) -> None:
    _run(["runuser", "-u", "postgres", "--", *command] if os.getuid() == 0 else command)


def _run(command: list[str]) -> None:
    # no pipe for the output: the server that pg_ctl leaves running would keep it open
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
