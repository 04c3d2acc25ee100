"""Two writers at once: one waits, whatever the file system can do, and a dead one blocks nobody."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from allotment.packages.lock import HELD, LockUnavailable, hold_until_exit, locked

HOLD = "import sys; from allotment.packages.lock import hold_until_exit as h; "
HOLD += "h(sys.argv[1], {}); print('held', flush=True); sys.stdin.read()"


@contextmanager
def holder(path: Path, *, script: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until the block ends, or until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


WITHOUT_LOCKS = (
    "import errno, fcntl\n"
    "def refuse(*_): raise OSError(errno.ENOLCK, 'no locks')\n"
    "fcntl.lockf = refuse\n" + HOLD
)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system (NFS without its lock service) that has none."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)


def test_one_waits_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "packages" / ".lock"
    with holder(path), pytest.raises(LockUnavailable, match="for too long"), locked(str(path), limit_s=0.3):
        pass
    assert "waiting for it" in capfd.readouterr().err
    with locked(str(path), limit_s=0):
        pass


def test_killed_holders_block_nobody(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with holder(path) as process:
        process.kill()
        process.wait()
        with locked(str(path), limit_s=5):
            pass


def test_children_of_a_holder_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    with holder(Path(path)):
        assert hold_until_exit(path, {HELD: path}) is False


@pytest.mark.usefixtures("no_locks")
def test_without_locks_in_the_file_system(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    script = WITHOUT_LOCKS
    with holder(path, script=script), pytest.raises(LockUnavailable), locked(str(path), limit_s=0.3):
        pass
    # killed, so its file is still there: not stale yet
    held = tmp_path / ".lock.held"
    with pytest.raises(LockUnavailable), locked(str(path), limit_s=0.3):
        pass
    old = time.time() - 3600
    os.utime(held, (old, old))
    with locked(str(path), limit_s=5):
        assert held.exists()
    assert [one.name for one in tmp_path.iterdir() if "held" in one.name] == []


@pytest.mark.usefixtures("no_locks")
def test_a_stale_lock_goes_to_one_of_many(tmp_path: Path) -> None:
    held = tmp_path / ".lock.held"
    held.touch()
    old = time.time() - 3600
    os.utime(held, (old, old))
    script = WITHOUT_LOCKS.replace("sys.stdin.read()", "import os; os._exit(0)")
    script = script.replace("h(sys.argv[1], {})", "h(sys.argv[1], {}, limit_s=1.5)")
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / ".lock")], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
        for _ in range(4)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[0] for process in processes]
    # who got it ended without giving it back, so the others may not have it
    assert sorted(said) == ["", "", "", "held\n"]
