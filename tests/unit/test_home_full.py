"""A home that takes no more writes: where the session writes instead, and when."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment import home as full_home
from allotment.home import FULL, NO_LOCKS, locks_work, make_room, set_umask, spare_locks, takes_writes

ROOT = Path(__file__).resolve().parents[2]
IPYTHON = ROOT / "images" / "minimal" / "files" / "usr" / "local" / "etc" / "ipython" / "ipython_config.py"


def env_of(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "JUPYTER_RUNTIME_DIR": "/run/allotment/jupyter", "JUPYTER_PATH": "/opt/j"}


class NoRoom:
    """A file that fails at its `fails` call, as on a full disk or over a quota."""

    def __init__(self, fails: str) -> None:
        self._fails = fails

    def __enter__(self) -> NoRoom:
        if self._fails == "open":
            raise OSError(28, "No space left on device")
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def write(self, _data: bytes) -> None:
        if self._fails == "write":
            raise OSError(122, "Disk quota exceeded")

    def flush(self) -> None:
        return None

    def fileno(self) -> int:
        raise OSError(122, "Disk quota exceeded")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_home_with_room_changes_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    before = dict(env)
    assert not make_room(env)
    assert env == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", ["open", "write", "sync"])
def test_a_full_home_moves_what_is_written_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: NoRoom(fails))
    (tmp_path / ".jupyter" / "lab" / "user-settings").mkdir(parents=True)
    env = env_of(tmp_path)
    assert make_room(env)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "XDG_CACHE_HOME"):
        assert env[name].startswith("/run/allotment/home/")
    assert env["JUPYTER_PATH"] == f"/opt/j:{tmp_path}/.local/share/jupyter"
    assert env["JUPYTER_CONFIG_PATH"] == f"{tmp_path}/.jupyter"
    assert env["JUPYTERLAB_SETTINGS_DIR"] == f"{tmp_path}/.jupyter/lab/user-settings"
    assert "full" in env[FULL]


def test_a_home_that_is_not_there_takes_no_writes(tmp_path: Path) -> None:
    assert not takes_writes(str(tmp_path / "none"))


def test_a_home_with_locks_is_left_alone(tmp_path: Path) -> None:
    env = env_of(tmp_path)
    before = dict(env)
    assert spare_locks(env) == []
    assert (env, list(tmp_path.iterdir())) == (before, [])


@pytest.mark.parametrize("hangs", [False, True])
def test_without_locks_history_and_trust_are_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """A file server without its lock service refuses, or never answers."""
    release = threading.Event()

    def no_lock(*_: object) -> None:
        if hangs:
            release.wait(20)
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_lock)
    assert not locks_work(str(tmp_path), 0.05)
    release.set()
    env = env_of(tmp_path) | {"JUPYTER_RUNTIME_DIR": str(tmp_path / "run" / "jupyter")}
    assert spare_locks(env) == [f"--NotebookNotary.db_file={tmp_path}/run/home/nbsignatures.db"]
    assert env[NO_LOCKS] == f"{tmp_path}/run/home"
    assert IPYTHON.read_text(encoding="utf-8").count(NO_LOCKS) == 1


def test_a_full_home_needs_no_second_remedy(tmp_path: Path) -> None:
    assert spare_locks(env_of(tmp_path) | {FULL: "Your home is full."}) == []


@pytest.mark.parametrize(("word", "mask"), [("0002", 0o002), ("27", 0o027), ("", 0o022), ("x", 0o022)])
def test_the_umask(umask: None, word: str, mask: int) -> None:
    set_umask({"ALLOTMENT_UMASK": word})
    assert os.umask(0o022) == mask


def test_it_starts_quickly() -> None:
    """It runs before every notebook server, so it may import only what is there already or small."""
    source = Path(full_home.__file__).read_text(encoding="utf-8")
    assert {"fcntl", "os", "tempfile", "threading", "pathlib", "__future__"} == {
        line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))
    }
