"""site.yaml's mounts and datasets: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_hub.config_loading import ConfigError, load_site

MOUNTS = [
    ("{name: A, path: /srv/a}", "mounts.0.name"),
    ("{name: a, path: srv/a}", "mounts.0.path"),
    ("{name: a, path: /}", "not the root"),
    ("{name: a, path: /srv/../etc}", r"without \.\."),
    ("{name: a, path: '/srv/a:b'}", "mounts.0.path"),
    ("{name: a, path: '/srv/a,b'}", "mounts.0.path"),
    ('{name: a, path: "/srv/a\\nb"}', "mounts.0.path"),
    ("{name: a, path: /srv/a, target: /home/jovyan}", "must lie in one of"),
    ("{name: a, path: /srv/a, target: /datasets/x}", "must lie in one of"),
    ("{name: a, path: /srv/a, target: /etc}", "must lie in one of"),
    ("{name: a, path: /srv/a, target: /data}", "must lie in one of"),
    ("{name: a, path: /srv/a, target: /data/../etc}", "must lie in one of"),
    ("{name: a, path: /srv/a, target: /data/a/}", "must lie in one of"),
    ("{name: a, path: /srv/a, target: /data//a}", "must lie in one of"),
    ("{name: a, path: /srv/a}, {name: a, path: /srv/b}", "more than one mount"),
    ("{name: a, path: /srv/a}, {name: b, path: /srv/b, target: /data/a}", "more than one mount"),
    ("{name: a, path: /srv/a}, {name: b, path: /srv/b, target: /data/a/b}", "lies in another mount"),
    ("{name: a, path: /srv/a, mode: rw}", "no such key"),
]


def load(tmp_path: Path, text: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    load_site(path)


@pytest.mark.parametrize(("mounts", "expected"), MOUNTS)
def test_mounts_that_are_refused(tmp_path: Path, mounts: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(tmp_path, f"mounts: [{mounts}]\n")


def test_mounts_that_are_taken(tmp_path: Path) -> None:
    load(
        tmp_path,
        "mounts: [{name: a, path: /srv/a}, {name: ab, path: /srv/a b, target: /mnt/ab, write: [x]}]\n",
    )


HOSTS = ["http://minio", "minio/x", "a@b", "minio:0", "minio:65536", ":90", "::1", "", "minio:9000:1"]


@pytest.mark.parametrize("host", HOSTS)
def test_allowed_hosts_that_are_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="allow_hosts"):
        load(tmp_path, f"datasets: {{allow_hosts: ['{host}']}}\n")


def test_allowed_hosts_and_endpoints_that_are_taken(tmp_path: Path) -> None:
    hosts = "'minio', 'minio:9000', '[fd00::1]:9000', '10.0.0.1:65535'"
    load(tmp_path, f"datasets: {{allow_hosts: [{hosts}], s3_endpoint: 'http://minio:9000'}}\n")
    for wrong in ("minio:9000", "ftp://minio", "http://key:secret@minio", "http://minio/bucket"):
        with pytest.raises(ConfigError, match="s3_endpoint"):
            load(tmp_path, f"datasets: {{s3_endpoint: '{wrong}'}}\n")


HOMES = "docker: {home: '/srv/homes/{username}'}\n"


@pytest.mark.parametrize(
    "other",
    [
        "homes: {archive: /srv/homes/archive}",
        "homes: {archive: /srv/homes}",
        "homes: {archive: /srv/homes/}",
        "datasets: {cache: /srv/./homes/x}",
        "scratch: {path: /srv/homes}",
        "datasets: {allow_paths: [/srv/data, /srv]}",
        "datasets: {allow_paths: [/]}",
        "datasets: {allow_paths: [/srv/homes/ann]}",
    ],
)
def test_nothing_else_lies_where_homes_lie(tmp_path: Path, other: str) -> None:
    with pytest.raises(ConfigError, match="must be apart"):
        load(tmp_path, f"{HOMES}{other}\n")


def test_folders_beside_the_homes_are_taken(tmp_path: Path) -> None:
    load(
        tmp_path,
        f"{HOMES}homes: {{archive: /srv/homes-archive}}\nscratch: {{path: /srv/fast}}\n"
        "datasets: {cache: /srv/fast, allow_paths: [/srv/data]}\n",
    )


@pytest.mark.parametrize(
    "home", ["/{username}", "/srv/homes/../{username}", "/srv//{username}", "srv/{username}", "/srv/homes"]
)
def test_templates_of_homes_that_are_refused(tmp_path: Path, home: str) -> None:
    with pytest.raises(ConfigError, match=r"docker\.home"):
        load(tmp_path, f"docker: {{home: '{home}'}}\n")


@pytest.mark.parametrize(
    "home", ["volume", "/home/{username}", "/srv/h/u-{username}", "/mnt/{username}/work"]
)
def test_templates_of_homes_that_are_taken(tmp_path: Path, home: str) -> None:
    load(tmp_path, f"docker: {{home: '{home}'}}\n")
