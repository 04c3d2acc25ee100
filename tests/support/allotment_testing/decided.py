"""What `up` decides for an installation, as tests that start none of its services need it."""

from __future__ import annotations

from typing import Any

from allotment_hub.host.settings import HostSettings
from allotment_hub.runtime import Runtime

__all__ = ["host_settings_of", "runtime_of"]


def runtime_of(installation: str = "0123abcd", **changes: Any) -> Runtime:
    """A Docker installation without GPUs; `changes` are members of the runtime."""
    members = {
        "engine": "docker",
        "gpus": "none",
        "public_url": "http://x",
        "hub_api_url": "http://x/hub/api",
        "broker_host": "127.0.0.1",
        "broker_port": 2,
        "broker_url_for_workloads": "http://x/services/allotment/",
        "hub_api_url_for_workloads": "http://x/hub/api",
        "proxy_api_url": "http://x",
        "agent_socket": "/nonexistent",
        "environments": {},
    }
    return Runtime.model_validate({"installation": installation, **members, **changes})


def host_settings_of(**changes: Any) -> HostSettings:
    """Loopback without TLS; `changes` are members of the settings."""
    members = {
        "bind": "127.0.0.1",
        "port": 8000,
        "inner_host": "127.0.0.1",
        "hub_port": 1,
        "broker_port": 2,
        "proxy_api_port": 3,
        "tls_cert": None,
        "tls_key": None,
        "node": "node",
        "proxy_script": "proxy",
        "code": "1",
    }
    return HostSettings(**{**members, **changes})
