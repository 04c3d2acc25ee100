"""What the hub is told: addresses, roles, sign-in, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from allotment_hub.configure import BROKER_SCOPES, configure
from allotment_hub.host.layout import lay_out
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]


def configured(folder: Path, **changes: Any) -> Any:
    paths = Paths(data=folder)
    lay_out(paths, defaults=ROOT / "deploy" / "config")
    values: dict[str, Any] = {
        "installation": "0badcafe",
        "engine": "local",
        "gpus": "none",
        "public_url": "http://127.0.0.1:8000",
        "hub_api_url": "http://127.0.0.1:8081/hub/api",
        "broker_host": "127.0.0.1",
        "broker_port": 8083,
        "broker_url_for_workloads": "http://127.0.0.1:8083/services/allotment/",
        "hub_api_url_for_workloads": "http://127.0.0.1:8081/hub/api",
        "proxy_api_url": "http://127.0.0.1:8001",
        "agent_socket": "agent.sock",
        "environments": {},
    }
    paths.runtime.write_text(Runtime(**{**values, **changes}).model_dump_json(), encoding="utf-8")
    config = Config()
    configure(config, paths=paths)
    return config


def test_services_and_sessions_outlive_the_hub(tmp_path: Path) -> None:
    c = configured(tmp_path)
    assert not c.ConfigurableHTTPProxy.should_start
    assert (c.JupyterHub.cleanup_servers, c.JupyterHub.cleanup_proxy) == (False, False)
    assert "command" not in c.JupyterHub.services[0]


@pytest.mark.parametrize(("shell", "asked"), [("/bin/bash", "/bin/bash"), (None, "sh")])
def test_terminals_of_local_sessions_keep_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str | None, asked: str
) -> None:
    """Debian's /etc/profile, which login shells read, sets another PATH: `allot` and pip would be lost."""
    monkeypatch.delenv("SHELL", raising=False)
    if shell is not None:
        monkeypatch.setenv("SHELL", shell)
    server = ServerApp()
    server.parse_command_line([*configured(tmp_path).GpuLocalSpawner.args])
    assert server.terminado_settings == {"shell_command": asked}


def test_the_broker_limits_not_the_hub(tmp_path: Path) -> None:
    c = configured(tmp_path)
    assert (c.JupyterHub.concurrent_spawn_limit, c.JupyterHub.active_server_limit) == (0, 0)
    assert c.Spawner.start_timeout > c.GpuSpawnerMixin.wait_limit + c.GpuSpawnerMixin.ready_limit
    # a server that died after its first answer must not keep its person waiting for a minute
    assert c.Spawner.http_timeout <= 30


def test_homes_are_whose_site_yaml_says(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir(parents=True)
    text = "docker: {home: '/srv/homes/{username}'}\nhomes: {owner: nss, uid: 2001, gid: 2002}\n"
    (tmp_path / "config" / "site.yaml").write_text(text, encoding="utf-8")
    spawner = configured(tmp_path, engine="docker").GpuDockerSpawner
    assert (spawner.home, spawner.home_owner) == ("/srv/homes/{username}", "nss")
    assert (spawner.home_uid, spawner.home_gid) == (2001, 2002)


def test_roles_are_the_least(tmp_path: Path) -> None:
    c = configured(tmp_path)
    roles = {role["name"]: role for role in c.JupyterHub.load_roles}
    assert set(BROKER_SCOPES) == {
        "list:users",
        "read:servers",
        "delete:servers",
        "read:groups",
        "read:users:groups",
    }
    assert roles["allotment-broker"]["services"] == ["allotment"]
    assert "access:services!service=allotment" in roles["server"]["scopes"]
    assert "access:services!service=allotment" in c.JupyterHub.extra_user_scopes
    assert not [scope for role in roles.values() for scope in role["scopes"] if "act-as" in scope]


def test_sign_up_is_closed(tmp_path: Path) -> None:
    c = configured(tmp_path)
    assert not c.LocalAuthenticator.enable_signup
    assert not c.Authenticator.allow_all
    assert c.Authenticator.admin_users == {"admin"}


@pytest.mark.parametrize(
    ("url", "secure"), [("http://127.0.0.1:8000", False), ("https://gpu.example.org", True)]
)
def test_cookies_are_secure_under_https(tmp_path: Path, url: str, secure: bool) -> None:
    c = configured(tmp_path, public_url=url)
    assert ("tornado_settings" in c.JupyterHub) is secure


def test_docker_talks_to_the_engine_of_site_yaml(tmp_path: Path) -> None:
    c = configured(tmp_path, engine="docker", request_devices="cdi", broker_host="172.18.0.1")
    assert c.JupyterHub.spawner_class == "allotment-docker"
    assert c.DockerSpawner.client_kwargs == {"base_url": "unix:///var/run/docker.sock"}
    assert c.GpuDockerSpawner.request_devices == "cdi"
    assert c.GpuSpawnerMixin.broker_url == "http://172.18.0.1:8083/services/allotment/"


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    configured(tmp_path)
    (tmp_path / "secrets" / "cookie").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="secret cookie is empty"):
        configure(Config(), paths=Paths(data=tmp_path))


def test_the_form_s_cards_get_the_catalogue_s_descriptions(tmp_path: Path) -> None:
    c = configured(tmp_path)
    assert c.GpuSpawnerMixin.flavor_descriptions["cpu"] == "No GPU; for writing, plotting and small data"
