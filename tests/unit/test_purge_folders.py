"""`down --purge` outside the data directory: our own parts, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

from allotment_hub.host.purge import purge_folders
from allotment_hub.runtime import Runtime
from allotment_hub.site import DatasetSettings, ScratchSettings, Site


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
        fast / "allotment-0123abcd/ready/x",
        fast / "allotment-ffffffff",
        fast / "other",
        precious,
    ):
        folder.mkdir(parents=True)
    (precious / "x").write_text("x")
    (fast / "allotment-0123abcd/ready/x/link").symlink_to(precious)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "allotment-0123abcd").symlink_to(precious)
    site = Site(datasets=DatasetSettings(cache=str(fast)), scratch=ScratchSettings(path=str(scratch)))
    purge_folders(site, runtime(tmp_path))
    assert sorted(path.name for path in fast.iterdir()) == ["allotment-ffffffff", "other"]
    assert (precious / "x").read_text() == "x"
    purge_folders(site, runtime(tmp_path))
    purge_folders(Site(), runtime(tmp_path))
