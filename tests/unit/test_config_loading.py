"""Configuration files: every error at once, with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_hub.config_loading import ConfigError, load_catalog, load_configuration, load_site

ROOT = Path(__file__).resolve().parents[2]
CATALOG = """\
flavors:
  cpu: {title: CPU, cpu: 1, memory_gib: 1, price_per_hour: "0.05"}
environments:
  minimal: {}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def findings(error: pytest.ExceptionInfo[ConfigError], folder: Path) -> list[str]:
    return [line.replace(f"{folder}/", "") for line in error.value.findings]


def test_the_delivered_files_are_sound() -> None:
    config = ROOT / "deploy" / "config"
    site, catalog = load_configuration(site=config / "site.yaml", catalog=config / "catalog.yaml")
    assert [pool.name for pool in site.pools] == ["mig", "whole"]
    assert list(catalog.flavors) == ["cpu", "gpu-10gb", "gpu-20gb", "gpu-40gb", "gpu-full", "gpu-2x"]


def test_an_empty_site_has_every_default(tmp_path: Path) -> None:
    assert load_site(write(tmp_path, "site.yaml", "# nothing\n")).currency == "credits"


def test_all_errors_come_at_once_with_line_and_key(tmp_path: Path) -> None:
    text = (
        "title: Ours\n"
        "policies:\n"
        "  sessions_per_person: 5000\n"
        "  wait_limit: 5\n"
        "pools:\n"
        "  - name: a\n"
        "    mig: true\n"
        "    layout: {devices: {1g.10gb: 99}}\n"
        "  - mig: false\n"
        "title: Again\n"
    )
    with pytest.raises(ConfigError) as error:
        load_site(write(tmp_path, "site.yaml", text))
    assert findings(error, tmp_path) == [
        "site.yaml:10: title: stands here twice, first in line 1",
        "site.yaml:8: pools.0.layout.devices.1g.10gb: should be less than or equal to 16, not 99",
        "site.yaml:9: pools.1.name: this key is missing",
        "site.yaml:3: policies.sessions_per_person: should be less than or equal to 1000, not 5000",
        "site.yaml:4: policies.wait_limit: there is no such key",
    ]


def test_names_must_fit_between_the_files(tmp_path: Path) -> None:
    site = write(tmp_path, "site.yaml", "pools:\n  - name: a\n    mig: true\n    flavors: [cpus]\n")
    with pytest.raises(ConfigError) as error:
        load_configuration(site=site, catalog=write(tmp_path, "catalog.yaml", CATALOG))
    assert findings(error, tmp_path) == [
        "site.yaml:4: pools.0.flavors.0: no flavor of the catalogue is called 'cpus'; did you mean 'cpu'?"
    ]


def test_environments_of_a_flavor_must_exist(tmp_path: Path) -> None:
    text = CATALOG.replace('"0.05"', '"0.05", environments: [minimal, torch]')
    with pytest.raises(ConfigError) as error:
        load_catalog(write(tmp_path, "catalog.yaml", text))
    assert findings(error, tmp_path) == [
        "catalog.yaml:2: flavors.cpu.environments.1: no environment is called 'torch'; there are minimal"
    ]


def test_a_slice_needs_memory(tmp_path: Path) -> None:
    text = CATALOG.replace("title: CPU", "title: CPU, gpu: {kind: slice, count: 2}")
    with pytest.raises(ConfigError) as error:
        load_catalog(write(tmp_path, "catalog.yaml", text))
    assert findings(error, tmp_path) == [
        "catalog.yaml:2: flavors.cpu.gpu: a slice needs `memory_gb`",
        "catalog.yaml:2: flavors.cpu.gpu.count: a session has one slice: must be 1",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\n", "not valid YAML"),
        ("- a\n", "must hold keys and values"),
        ("a: &a\n  b: *a\n", "an alias may not hold itself"),
        ("pools:\n  - {name: a, mig: true}\n  - {name: b, mig: true}\n", "in pool 'a' already"),
        ("pools: [{name: a, mig: false, layout: {devices: {}}}]\n", "only a pool with"),
        ("public_url: example.org\n", "must begin with http"),
        ("public_url: https://example.org/jupyter\n", "no path"),
        ("public_url: 'https://:x/'\n", "an address alone"),
        ("docker: {home: homes/x}\n", "absolute path"),
    ],
)
def test_refused_sites(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_site(write(tmp_path, "site.yaml", text))


def test_a_public_url_is_taken(tmp_path: Path) -> None:
    for url in ("https://gpu.example.org", "http://192.0.2.1:8000/"):
        assert load_site(write(tmp_path, "site.yaml", f"public_url: {url}\n")).public_url == url


def test_a_missing_file_is_one_finding(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file does not exist"):
        load_site(tmp_path / "site.yaml")
