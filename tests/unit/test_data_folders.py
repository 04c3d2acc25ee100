"""Folders of `mounts`: what must never be mounted, and links that lead there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from allotment_hub.data import folders
from allotment_hub.data.folders import Found, MountFolders, look_at, own_folders
from allotment_hub.paths import Paths
from allotment_hub.site import DatasetSettings, DockerSettings, Mount, Site


def look(path: Path | str, tmp_path: Path, *, others: tuple[Mount, ...] = (), home: str = "volume") -> Found:
    mount = Mount(name="it", path=str(path))
    site = Site(mounts=(mount, *others), docker=DockerSettings(home=home))
    return look_at(mount, site, own_folders(site, Paths(tmp_path / "data")))


@pytest.fixture(autouse=True)
def _data(tmp_path: Path) -> None:
    (tmp_path / "data/secrets").mkdir(parents=True)
    (tmp_path / "srv/course").mkdir(parents=True)


def test_a_plain_folder_is_fine(tmp_path: Path) -> None:
    assert look(tmp_path / "srv/course", tmp_path) == Found(str(tmp_path / "srv/course"))


def test_the_operators_own_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "easy").symlink_to("srv/../srv/course")
    assert look(tmp_path / "easy", tmp_path) == Found(str(tmp_path / "srv/course"))


@pytest.mark.parametrize(
    "path", ["/etc", "/var/run", "/", "/proc", "/dev/shm", "/var", "/var/lib", "/root/x", "/usr/share"]
)
def test_the_system_is_never_mounted(tmp_path: Path, path: str) -> None:
    found = look(path, tmp_path).problem
    assert found is not None
    assert "system's" in found or "cannot be opened" in found or "own data" in found


def test_a_link_to_the_system_is_never_mounted(tmp_path: Path) -> None:
    (tmp_path / "nice").symlink_to("/etc")
    assert "the system's (/etc)" in (look(tmp_path / "nice", tmp_path).problem or "")


def test_own_data_is_never_mounted(tmp_path: Path) -> None:
    for path in ("data", "data/secrets", ""):
        assert "own data" in (look(tmp_path / path, tmp_path).problem or ""), path
    site = Site(datasets=DatasetSettings(cache=str(tmp_path / "fast")))
    assert str(tmp_path / "fast") in own_folders(site, Paths(tmp_path / "data"))


def test_homes_are_never_mounted_by_way_of_their_folder(tmp_path: Path) -> None:
    """All sessions may run as one uid, so nothing but the mount keeps them out of each other's homes."""
    (tmp_path / "srv/homes/ann").mkdir(parents=True)
    (tmp_path / "easy").symlink_to("srv/homes")
    home = f"{tmp_path}/srv/homes/{{username}}"
    for path in ("srv/homes", "srv", "easy"):
        assert "everybody's homes" in (look(tmp_path / path, tmp_path, home=home).problem or ""), path
    assert look(tmp_path / "srv/homes/ann", tmp_path, home=home).problem is not None
    assert look(tmp_path / "srv/course", tmp_path, home=home).problem is None


def test_missing_folders_files_and_endless_links_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    assert "No such file" in (look(tmp_path / "none", tmp_path).problem or "")
    assert "no folder" in (look(tmp_path / "file", tmp_path).problem or "")
    assert "cannot be opened" in (look(tmp_path / "loop", tmp_path).problem or "")


def test_no_way_leads_through_what_sessions_write(tmp_path: Path) -> None:
    """Whoever may write in `shared` could replace what is mounted from there by a link to anywhere."""
    shared = tmp_path / "srv/shared"
    (shared / "course").mkdir(parents=True)
    writable = Mount(name="shared", path=str(shared), write=("staff",))
    assert "sessions can write" in (look(shared / "course", tmp_path, others=(writable,)).problem or "")
    (shared / "link").symlink_to(tmp_path / "srv/course")
    assert "sessions can write" in (look(shared / "link", tmp_path, others=(writable,)).problem or "")
    (tmp_path / "indirect").symlink_to(shared / "link")
    assert "sessions can write" in (look(tmp_path / "indirect", tmp_path, others=(writable,)).problem or "")
    assert look(shared, tmp_path, others=(writable,)).problem is None
    readable = Mount(name="shared", path=str(shared))
    assert look(shared / "course", tmp_path, others=(readable,)).problem is None
    homes = str(tmp_path / "srv/{username}")
    assert "sessions can write" in (look(tmp_path / "srv/course", tmp_path, home=homes).problem or "")


async def test_a_file_system_that_hangs_is_told_and_takes_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, asked = threading.Event(), []

    def never(mount: Mount, _site: Site, _own: object) -> Found:
        asked.append(mount.name)
        hangs.wait(30)
        return Found(mount.path)

    monkeypatch.setattr(folders, "look_at", never)
    mount = Mount(name="slow", path=str(tmp_path))
    watched = MountFolders(site=Site(mounts=(mount,)), own=(), answer_s=0.05)
    for _ in range(3):
        assert "does not answer" in (await watched.problem(mount) or "")
    assert asked == ["slow"]
    hangs.set()
    assert await MountFolders(site=Site(mounts=(mount,)), own=(), answer_s=30).problem(mount) is None
