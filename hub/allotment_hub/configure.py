"""site.yaml, catalog.yaml, runtime.json and the secrets, turned into JupyterHub's configuration."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from allotment_spawner.spawners import handlers as spawner_handlers
from allotment_spawner.spawners.proxy import LastCallProxy

from allotment_hub.authenticators import LocalAuthenticator
from allotment_hub.config_loading import load_configuration
from allotment_hub.names import USER_NAME
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["ACT_AS", "BROKER_SCOPES", "SERVICE", "configure", "read_runtime", "read_secret"]

SERVICE = "allotment"
SERVICE_SCOPE = f"access:services!service={SERVICE}"
ACT_AS = "custom:allotment:act-as"
BROKER_SCOPES = ("list:users", "read:servers", "delete:servers", "read:groups", "read:users:groups")
"""What the broker's token may do at the hub; never tokens, never admin."""
PREFIX = f"/services/{SERVICE}/"
DAY_S = 86400
PULL_ALLOWANCE_S = 3600
QUIET_LAB = ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
"""For sessions without an image; the images settle the same in their own configuration."""
SESSION_CONFIG = Path(__file__).parent / "session_config"
"""Settings of JupyterLab in sessions without an image: no news prompt."""


def configure(c: Any, *, paths: Paths) -> None:
    """Set everything on the traitlets config object `c`. `ConfigError` names all that is wrong."""
    site, catalog = load_configuration(site=paths.site, catalog=paths.catalog)
    runtime = read_runtime(paths)
    _configure_addresses(c, site=site, runtime=runtime)
    _configure_proxy(c, paths=paths, runtime=runtime)
    _configure_store(c, paths=paths)
    _configure_sign_in(c, paths=paths, site=site)
    _configure_roles(c)
    _configure_broker_service(c, paths=paths, runtime=runtime)
    _configure_servers(c, paths=paths, site=site, runtime=runtime)
    c.GpuSpawnerMixin.flavor_descriptions = {
        name: flavor.description for name, flavor in catalog.flavors.items() if flavor.description
    }


def read_runtime(paths: Paths) -> Runtime:
    """What `up` decided."""
    return Runtime.model_validate_json(paths.runtime.read_text(encoding="utf-8"))


def read_secret(paths: Paths, name: str) -> str:
    """One secret's line; an empty one is refused rather than used."""
    text = (paths.secrets / name).read_text(encoding="utf-8").strip()
    if not text:
        raise ValueError(f"the secret {name} is empty; remove the file and start again")
    return text


def _configure_addresses(c: Any, *, site: Site, runtime: Runtime) -> None:
    c.JupyterHub.bind_url = runtime.public_url
    if site.public_url is not None:
        c.JupyterHub.public_url = site.public_url
    c.JupyterHub.hub_bind_url = _origin(runtime.hub_api_url)
    c.JupyterHub.hub_connect_url = _origin(runtime.hub_api_url_for_workloads)
    c.JupyterHub.template_paths = spawner_handlers.template_paths()
    c.JupyterHub.template_vars = {
        "allotment_title": site.title,
        "allotment_simulated": runtime.gpus.startswith("sim:"),
        "allotment_engine": runtime.engine,
    }
    if runtime.public_url.startswith("https:"):
        c.JupyterHub.cookie_host_prefix_enabled = True
        c.JupyterHub.tornado_settings = {"cookie_options": {"secure": True}}
    c.JupyterHub.pid_file = ""
    c.JupyterHub.log_level = "INFO"


def _configure_proxy(c: Any, *, paths: Paths, runtime: Runtime) -> None:
    """The supervisor runs the proxy; sessions and routes outlive the hub."""
    c.JupyterHub.proxy_class = LastCallProxy
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.auth_token = read_secret(paths, "proxy")
    c.ConfigurableHTTPProxy.api_url = runtime.proxy_api_url
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cleanup_proxy = False


def _configure_store(c: Any, *, paths: Paths) -> None:
    c.JupyterHub.db_url = f"sqlite:///{paths.hub}/jupyterhub.sqlite"
    c.JupyterHub.cookie_secret = bytes.fromhex(read_secret(paths, "cookie"))


def _configure_sign_in(c: Any, *, paths: Paths, site: Site) -> None:
    c.JupyterHub.authenticator_class = LocalAuthenticator
    c.LocalAuthenticator.enable_signup = False
    c.LocalAuthenticator.hub_handlers = spawner_handlers.handlers()
    c.LocalAuthenticator.allowed_failed_logins = 10
    c.LocalAuthenticator.seconds_before_next_try = 60
    c.Authenticator.username_pattern = USER_NAME
    c.Authenticator.admin_users = {"admin"}
    # Who stands in the hub may sign in; who is removed there may not, whatever the store still holds.
    c.Authenticator.allow_all = False
    c.Authenticator.allow_existing_users = True
    c.JupyterHub.api_tokens = {read_secret(paths, "admin"): "admin"}
    c.JupyterHub.token_expires_in_max_seconds = 365 * DAY_S
    c.JupyterHub.oauth_token_expires_in = 14 * DAY_S
    c.JupyterHub.cookie_max_age_days = 14
    c.JupyterHub.oauth_require_pkce = True
    c.JupyterHub.shutdown_on_logout = False
    c.JupyterHub.load_groups = {site.sign_in.operators_group: {"users": []}}


def _configure_roles(c: Any) -> None:
    c.JupyterHub.custom_scopes = {
        ACT_AS: {"description": "Ask the broker for sessions on behalf of anybody (for hubs only)."}
    }
    c.JupyterHub.extra_user_scopes = [SERVICE_SCOPE]
    c.JupyterHub.load_roles = [
        {
            "name": "server",
            "scopes": ["users:activity!user", "access:servers!server", SERVICE_SCOPE],
        },
        {"name": "allotment-broker", "scopes": list(BROKER_SCOPES), "services": [SERVICE]},
    ]


def _configure_broker_service(c: Any, *, paths: Paths, runtime: Runtime) -> None:
    c.JupyterHub.services = [
        {
            "name": SERVICE,
            "url": f"http://{runtime.broker_host}:{runtime.broker_port}",
            "api_token": read_secret(paths, "broker-service"),
            "oauth_no_confirm": True,
            "oauth_client_allowed_scopes": [SERVICE_SCOPE],
            "timeout": 2,
            "display": True,
        }
    ]


def _configure_servers(c: Any, *, paths: Paths, site: Site, runtime: Runtime) -> None:
    """Limits are the broker's: the hub's own would answer a waiting queue with 429."""
    c.JupyterHub.concurrent_spawn_limit = 0
    c.JupyterHub.active_server_limit = 0
    c.JupyterHub.allow_named_servers = True
    c.JupyterHub.named_server_limit_per_user = 0
    limits = site.policies
    c.Spawner.start_timeout = limits.wait_limit_s + limits.start_limit_s + PULL_ALLOWANCE_S
    c.GpuSpawnerMixin.broker_url = f"http://{runtime.broker_host}:{runtime.broker_port}{PREFIX}"
    c.GpuSpawnerMixin.broker_token_file = str(paths.secrets / "hub-to-broker")
    c.GpuSpawnerMixin.installation = runtime.installation
    c.GpuSpawnerMixin.wait_limit = float(limits.wait_limit_s)
    c.GpuSpawnerMixin.ready_limit = limits.start_limit_s * 0.8  # before the broker's own limit
    c.GpuSpawnerMixin.stop_grace = float(limits.stop_grace_s)
    # start() returns only once the server has answered; one that dies right then is noticed by this alone
    c.Spawner.http_timeout = 20
    c.Spawner.disable_user_config = True
    c.Spawner.default_url = "/lab"
    c.JupyterHub.spawner_class = f"allotment-{runtime.engine}"
    if runtime.engine == "docker":
        c.DockerSpawner.client_kwargs = {"base_url": site.docker.socket}
        c.DockerSpawner.network_name = site.docker.network_of(runtime.installation)
        c.DockerSpawner.use_internal_ip = True
        c.GpuDockerSpawner.home = site.docker.home
        c.GpuDockerSpawner.home_owner = site.homes.owner
        c.GpuDockerSpawner.home_uid, c.GpuDockerSpawner.home_gid = site.homes.uid, site.homes.gid
        c.GpuDockerSpawner.request_devices = runtime.request_devices
    else:
        c.GpuLocalSpawner.args = [*QUIET_LAB, _terminals(os.environ)]
        c.GpuLocalSpawner.environment = {"JUPYTER_CONFIG_PATH": str(SESSION_CONFIG)}
        c.GpuLocalSpawner.homes_dir = str(paths.homes)
        c.GpuLocalSpawner.logs_dir = str(paths.logs / "sessions")


def _terminals(env: Mapping[str, str]) -> str:
    """No login shells: /etc/profile would take the session's own Python and `allot` off the PATH."""
    return f"--ServerApp.terminado_settings=shell_command={shlex.quote(env.get('SHELL') or 'sh')}"


def _origin(url: str) -> str:
    """`http://host:port` of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
