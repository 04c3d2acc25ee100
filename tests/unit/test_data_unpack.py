"""Archives that nobody trusts: what they may hold, and what they may cost."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from allotment_hub.data import unpack as unpacking
from allotment_hub.data.budget import Budget
from allotment_hub.data.spec import Manifest
from allotment_hub.data.unpack import unpack
from allotment_spawner.core.errors import DatasetUnavailable, DiskFull, Refusal
from allotment_testing.fetch_spec import fetch_spec

FILES = {"a.csv": b"1,2\n", "deep/er/b.bin": os.urandom(70_000), "deep/empty": b""}


def budget(folder: Path, **limits: int) -> Budget:
    return Budget(fetch_spec(folder, "https://example.org/x", **limits), say=lambda _now: None)


def tar(path: Path, members: dict[str, bytes], *, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, body in members.items():
            told = tarfile.TarInfo(name)
            told.size = len(body)
            archive.addfile(told, io.BytesIO(body))
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return path


def unpacked(archive: Path, folder: Path, **limits: int) -> Manifest:
    (folder / "work").mkdir(exist_ok=True)
    return unpack(archive, folder / "work/data", budget=budget(folder, **limits))


def content(folder: Path) -> dict[str, bytes]:
    data = folder / "work/data"
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_every_kind_unpacks_to_the_same(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "archive"
    archive = zipped(path, FILES) if mode == "zip" else tar(path, FILES, mode=mode)
    manifest = unpacked(archive, tmp_path)
    assert content(tmp_path) == FILES
    assert (manifest.files, manifest.size_bytes) == (3, sum(map(len, FILES.values())))
    again = tmp_path / "again"
    again.mkdir()
    assert unpacked(tar(again / "other", FILES), again).checksum == manifest.checksum


def test_a_tar_whose_last_member_is_a_zip_is_a_tar(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", FILES).read_bytes()
    unpacked(tar(tmp_path / "outer", {"inner.zip": inner}, mode="w"), tmp_path)
    assert content(tmp_path) == {"inner.zip": inner}


EVIL = [
    "../out",
    "/etc/cron.d/x",
    "a/../../out",
    "a//b",
    "..",
    "b\\..\\c",
    "x" * 300,
    "/".join("a" * 80),
]


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("make", [tar, zipped])
def test_names_that_lead_out_are_refused(
    tmp_path: Path, name: str, make: Callable[[Path, dict[str, bytes]], Path]
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(DatasetUnavailable, match=r"lead out|twice|damaged"):
        unpacked(make(inside / "archive", {"ok": b"1", name: b"evil"}), inside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside"]
    assert not Path("/etc/cron.d/x").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "archive", "w") as archive:
        told = tarfile.TarInfo("way-out")
        told.type, told.linkname = kind, "/etc"
        archive.addfile(told)
        later = tarfile.TarInfo("way-out/passwd")
        archive.addfile(later, io.BytesIO(b""))
    with pytest.raises(DatasetUnavailable, match="link or device"):
        unpacked(tmp_path / "archive", tmp_path)
    assert content(tmp_path) == {}


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        told = zipfile.ZipInfo("way-out")
        told.external_attr = 0o120777 << 16
        archive.writestr(told, "/etc")
    with pytest.raises(DatasetUnavailable, match="link or device"):
        unpacked(tmp_path / "archive", tmp_path)


def test_one_name_twice_or_as_file_and_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "twice", "w") as archive:
        for body in (b"1", b"2"):
            told = tarfile.TarInfo("same")
            told.size = 1
            archive.addfile(told, io.BytesIO(body))
    with pytest.raises(DatasetUnavailable, match="twice"):
        unpacked(tmp_path / "twice", tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(DatasetUnavailable, match="twice"):
        unpacked(tar(other / "both", {"a": b"", "a/b": b""}), other)


def test_a_zip_bomb_is_stopped_by_its_ratio_long_before_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros pack 1,000 : 1. What a gigabyte is free to do is a megabyte here, to keep the test short."""
    monkeypatch.setattr(unpacking, "_RATIO_FREE_BYTES", 2**20)
    bomb = zipped(tmp_path / "bomb", {"zeros": bytes(200 * 2**20)})
    with pytest.raises(DatasetUnavailable, match="zip bomb"):
        unpacked(bomb, tmp_path)
    written = sum(path.stat().st_size for path in (tmp_path / "work").rglob("*"))
    assert written <= bomb.stat().st_size * 200 + 2 * 2**20


def test_a_bomb_is_stopped_by_the_limit_whatever_its_headers_say(tmp_path: Path) -> None:
    bomb = tar(tmp_path / "bomb", {"zeros": bytes(50 * 2**20)})
    with pytest.raises(DiskFull):
        unpacked(bomb, tmp_path, limit_bytes=10 * 2**20)
    assert sum(path.stat().st_size for path in (tmp_path / "work").rglob("*")) <= 11 * 2**20


def test_a_sparse_giant_is_stopped_by_the_limit(tmp_path: Path) -> None:
    """A tar may claim a petabyte of holes in one kilobyte."""
    with tarfile.open(tmp_path / "giant", "w") as archive:
        told = tarfile.TarInfo("hole")
        told.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.size": str(2**50), "GNU.sparse.map": "0,0"}
        archive.addfile(told)
    with pytest.raises(Refusal):
        unpacked(tmp_path / "giant", tmp_path, limit_bytes=2**20)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    many = {f"d{number % 7}/f{number}": b"" for number in range(400)}
    with pytest.raises(DatasetUnavailable, match="more than 300 files"):
        unpacked(tar(tmp_path / "many", many), tmp_path, limit_files=300)


def test_a_zip_that_lists_more_than_fits_in_memory_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with path.open("wb") as archive:
        archive.write(b"PK\x03\x04")
        archive.truncate(400 * 2**20)
        archive.seek(0, 2)
        archive.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 300 * 2**20, 100 * 2**20, 0))
    with pytest.raises(DatasetUnavailable, match="lists more than"):
        unpacked(path, tmp_path)


@pytest.mark.parametrize("cut", [1, 200, 2000])
def test_damaged_archives_are_refused(tmp_path: Path, cut: int) -> None:
    for number, whole in enumerate((tar(tmp_path / "t", FILES), zipped(tmp_path / "z", FILES))):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "cut"
        path.write_bytes(whole.read_bytes()[:-cut])
        if number or cut > 1:
            with pytest.raises(DatasetUnavailable):
                unpacked(path, folder)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("1,2,3\n")
    with pytest.raises(DatasetUnavailable, match="neither a tar nor a zip"):
        unpacked(tmp_path / "text", tmp_path)


def test_a_tar_that_is_damaged_in_the_middle_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", {"a": b"x" * 600, "b": b"y" * 600, "c": b"z"}, mode="w")
    body = bytearray(archive.read_bytes())
    body[1536 + 5] ^= 0xFF  # in the header of b
    archive.write_bytes(bytes(body))
    with pytest.raises(DatasetUnavailable, match="damaged"):
        unpacked(archive, tmp_path)


def _bad_name(path: Path) -> Path:
    body = zipped(path, {"n\u00e4me": b"x" * 50}).read_bytes()
    return _written(path, body.replace("n\u00e4me".encode(), b"n\xff\xffme"))


def _bad_method(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", b"x" * 5000)
    body = bytearray(path.read_bytes())
    body[40:60] = b"\x00" * 20
    return _written(path, bytes(body))


def _bad_offset(path: Path) -> Path:
    body = bytearray(zipped(path, {"a": b"x" * 50}).read_bytes())
    at = body.rfind(b"PK\x05\x06")
    body[at + 12 : at + 16] = struct.pack("<L", 2**20)
    return _written(path, bytes(body))


def _bad_sparse_map(path: Path) -> Path:
    told = tarfile.TarInfo("a")
    told.size = 512
    told.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a"}
    told.pax_headers |= {"GNU.sparse.realsize": "9"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(told, io.BytesIO(b"many\n" * 102 + b"xx"))
    return path


def _written(path: Path, body: bytes) -> Path:
    path.write_bytes(body)
    return path


@pytest.mark.parametrize("make", [_bad_name, _bad_method, _bad_offset, _bad_sparse_map])
def test_what_pythons_readers_stumble_over_is_told_in_words(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    with pytest.raises(DatasetUnavailable, match=r"damaged|neither"):
        unpacked(make(tmp_path / "it"), tmp_path)
