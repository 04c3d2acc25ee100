"""The disk below a whole installation is filled to the brim while a session runs and the broker is killed."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.host.rotation import rotate
from allotment_hub.paths import Paths
from allotment_testing.installation import Installation, wait_until
from allotment_testing.loop_disk import fill, loop_disk
from allotment_testing.recovery_checks import Session, slots_taken


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    made = Installation()
    with contextlib.ExitStack() as open_:
        open_.callback(made.close)
        disk = open_.enter_context(loop_disk(made.folder, "ext4", mib=1400))
        made.data = disk / "d"
        made.paths = Paths(data=made.data)
        made.paths.site.parent.mkdir(parents=True)
        made.paths.runtime.parent.mkdir()
        made.paths.site.write_text("disk: {floor_gib: 0.02}\n")
        open_.callback(lambda: made.down("--purge", check=False))
        made.up()
        yield made


def state_of(installation: Installation, lease: str) -> str:
    """From the database: on a full disk the hub may not know its own tokens."""
    file = installation.paths.broker_database
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return str(database.execute("SELECT state FROM leases WHERE id = ?", (lease,)).fetchone()[0])


def test_what_runs_ends_and_its_slice_comes_free(installation: Installation) -> None:
    disk = installation.data.parent
    session = Session(installation=installation)
    lease = session.start("gpu-10gb")["id"]
    assert slots_taken(installation) > 0
    fill(disk)
    installation.restart("broker")
    assert state_of(installation, lease) == "active", "it comes back on the full disk and knows the session"
    session.kill_workload()
    wait_until(lambda: state_of(installation, lease) == "ended", what="the lease ended", limit_s=90)
    assert slots_taken(installation) == 0
    (disk / "filler").unlink()
    wait_until(lambda: installation.broker("disk").ok, what="the hub knows its tokens again", limit_s=90)
    assert installation.broker("disk").json()["ok"]
    session.start("gpu-10gb")
    session.stop()


def test_logs_give_their_room_back_on_a_full_disk(tmp_path: Path) -> None:
    with loop_disk(tmp_path, "ext4", mib=32) as disk:
        log = disk / "broker.log"
        log.write_bytes(b"line\n" * 1_000_000)
        fill(disk)
        with pytest.raises(OSError, match="No space") as refused, (disk / "more").open("wb") as stream:
            stream.write(b"x" * 1_000_000)
        assert refused.value.errno == errno.ENOSPC
        assert rotate(log, limit_bytes=1000)
        assert log.stat().st_size == 0
        assert not (disk / "broker.log.1").exists()
        (disk / "more").write_bytes(b"x" * 1_000_000)
