"""Secrets, locks, logs, ports, backups: the small parts below `up`."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from allotment_hub.host.backoff import Backoff
from allotment_hub.host.backup import back_up
from allotment_hub.host.checks import check_data_dir
from allotment_hub.host.connection import make_password
from allotment_hub.host.errors import HostError
from allotment_hub.host.files import ensure_secret, private_folder, write_private
from allotment_hub.host.layout import lay_out
from allotment_hub.host.lock import Lock, holder
from allotment_hub.host.ports import choose_ports, require_port
from allotment_hub.host.rotation import rotate, tail
from allotment_hub.paths import Paths
from allotment_testing.installation import free_port

ROOT = Path(__file__).resolve().parents[2]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    private_folder(tmp_path / "s")
    first = ensure_secret(tmp_path / "s", "proxy")
    assert ensure_secret(tmp_path / "s", "proxy") == first
    assert len(first) == 64
    assert (mode(tmp_path / "s"), mode(tmp_path / "s" / "proxy")) == (0o700, 0o600)
    write_private(tmp_path / "s" / "proxy", "other\n")
    assert mode(tmp_path / "s" / "proxy") == 0o600
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["proxy"]


def test_layout_keeps_what_is_there(tmp_path: Path) -> None:
    paths = Paths(data=tmp_path / "d")
    secrets = lay_out(paths, defaults=ROOT / "deploy" / "config")
    paths.site.write_text("title: Ours\n", encoding="utf-8")
    assert lay_out(paths, defaults=ROOT / "deploy" / "config") == secrets
    assert paths.site.read_text(encoding="utf-8") == "title: Ours\n"
    assert mode(paths.data) == 0o700


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = Lock(path)
    assert holder(path) is None
    assert first.take()
    assert not Lock(path).take(patience_s=0.0)
    assert holder(path) is not None
    first.release()
    assert holder(path) is None


def test_passwords_differ_and_are_long_enough() -> None:
    made = {make_password() for _ in range(50)}
    assert len(made) == 50
    assert all(len(password) == 19 for password in made)


def test_rotation_keeps_the_writer_going(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    with log.open("a", encoding="utf-8") as writer:
        writer.write("old line\n" * 10)
        writer.flush()
        assert rotate(log, limit_bytes=50)
        writer.write("new line\n")
        writer.flush()
    assert tail(log) == ["new line"]
    assert "old line" in (tmp_path / "hub.log.1").read_text(encoding="utf-8")
    assert not rotate(log, limit_bytes=50)


def test_back_off_grows_and_is_forgotten() -> None:
    backoff = Backoff()
    waits = [backoff.died(started=0, now=1) - 1 for _ in range(8)]
    assert waits == [0, 1, 2, 4, 8, 15, 15, 15]
    assert backoff.died(started=100, now=200) == 200


def test_a_busy_port_is_one_sentence() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(1)
        with pytest.raises(HostError, match="in use by another program"):
            require_port("127.0.0.1", busy.getsockname()[1], option="--port")
    require_port("127.0.0.1", free_port(), option="--port")


def test_chosen_ports_differ() -> None:
    assert len(set(choose_ports("127.0.0.1", 3, avoid=frozenset()))) == 3


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="too long for a unix socket"):
        check_data_dir(Paths(data=tmp_path / ("x" * 110)))


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(HostError, match="holds other files already"):
        check_data_dir(Paths(data=tmp_path))


def test_the_configuration_may_be_there_before_the_first_start(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "site.yaml").write_text("title: Ours\n", encoding="utf-8")
    check_data_dir(Paths(data=tmp_path))


def test_backups_are_whole_and_few(tmp_path: Path) -> None:
    paths = Paths(data=tmp_path)
    paths.hub.mkdir()
    assert back_up(paths, old_code="0.1", now=datetime(2026, 1, 1, tzinfo=UTC)) is None
    with sqlite3.connect(paths.hub / "jupyterhub.sqlite") as database:
        database.execute("create table users (name text)")
        database.execute("insert into users values ('demo')")
    database.close()
    made = [back_up(paths, old_code="0.1", now=datetime(2026, 1, day, tzinfo=UTC)) for day in range(1, 9)]
    kept = sorted(path.name for path in (tmp_path / "backups").iterdir())
    assert len(kept) == 5
    last = made[-1]
    assert last is not None
    assert mode(last / "jupyterhub.sqlite") == 0o600
    copy = sqlite3.connect(last / "jupyterhub.sqlite")
    assert copy.execute("select name from users").fetchall() == [("demo",)]
    copy.close()


def test_a_folder_out_of_reach_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even root's tests see it: the folder that may not be entered is played."""
    exists, hidden = Path.exists, tmp_path / "closed"

    def closed(path: Path) -> bool:
        if hidden in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    hidden.mkdir()
    monkeypatch.setattr(Path, "exists", closed)
    monkeypatch.setattr(os, "access", lambda path, mode: path != hidden)
    with pytest.raises(HostError, match=f"You may not write in {hidden}. Choose another"):
        check_data_dir(Paths(data=hidden / "data"))
