"""`down --purge` outside the data directory: our own parts, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

from allotment_hub.data.cache import Cache
from allotment_hub.host.purge import purge_folders
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import DatasetSettings, ScratchSettings, Site
from allotment_spawner.disk.keeper import FolderKeeper


def runtime(tmp_path: Path) -> Runtime:
    url = "http://127.0.0.1:1"
    urls = (
        "public_url",
        "hub_api_url",
        "broker_url_for_workloads",
        "hub_api_url_for_workloads",
        "proxy_api_url",
    )
    told = {
        "installation": "0123abcd",
        "engine": "docker",
        "gpus": "none",
        "broker_host": "127.0.0.1",
        "broker_port": 1,
        "agent_socket": str(tmp_path / "agent.sock"),
        "environments": {},
    }
    return Runtime.model_validate(told | dict.fromkeys(urls, url))


def test_only_ours_goes(tmp_path: Path) -> None:
    fast, precious = tmp_path / "fast", tmp_path / "precious"
    for folder in (
        fast / "allotment-0123abcd-datasets/ready/x",
        fast / "allotment-ffffffff-datasets",
        fast / "other",
        precious,
    ):
        folder.mkdir(parents=True)
    (precious / "x").write_text("x")
    (fast / "allotment-0123abcd-datasets/ready/x/link").symlink_to(precious)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "allotment-0123abcd-scratch").symlink_to(precious)
    site = Site(datasets=DatasetSettings(cache=str(fast)), scratch=ScratchSettings(path=str(scratch)))
    paths = Paths(tmp_path / "data")
    purge_folders(site, runtime(tmp_path), paths)
    assert sorted(path.name for path in fast.iterdir()) == ["allotment-ffffffff-datasets", "other"]
    assert (precious / "x").read_text() == "x"
    purge_folders(site, runtime(tmp_path), paths)
    purge_folders(Site(), runtime(tmp_path), paths)


def test_one_fast_disk_serves_datasets_and_scratch(tmp_path: Path) -> None:
    """They are different accounts' folders: the broker's, and root's."""
    paths, fast = Paths(tmp_path / "data"), str(tmp_path)
    cache = Cache(paths.cache(fast, "0123abcd"))
    cache.open()
    keeper = FolderKeeper(roots={"scratch": paths.scratch(fast, "0123abcd")}, state_dir=tmp_path)
    keeper.make("scratch", "lease", uid=1234, gid=2345, mode=0o700, limit_bytes=None)
    assert keeper.names("scratch") == ["lease"]
    cache.sweep(ready=(), work=())
    site = Site(datasets=DatasetSettings(cache=fast), scratch=ScratchSettings(path=fast))
    purge_folders(site, runtime(tmp_path), paths)
    assert [path.name for path in tmp_path.glob("allotment-*")] == []
