"""The installation on this machine that a command is about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allotment.console import fail
from allotment.errors import AllotmentError
from allotment.settings import default_data_dir

from allotment_hub.config_loading import ConfigError, load_site
from allotment_hub.host.accounts import Accounts
from allotment_hub.host.errors import HostError
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["accounts_of", "paths_of", "polite", "runtime_of", "site_of"]


def paths_of(data_dir: Path | None) -> Paths:
    """Of the folder that was named, else of the default one."""
    return Paths(data=(data_dir or default_data_dir(os.environ)).expanduser().absolute())


def runtime_of(paths: Paths) -> Runtime:
    """`HostError` when there is no installation that this account may use."""
    try:
        return Runtime.model_validate_json(paths.runtime.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HostError(
            f"{paths.data} holds no Allotment; start one with ./deploy/up, or name another with --data-dir."
        ) from None
    except PermissionError:
        raise HostError(
            f"{paths.data} belongs to another account; run this as the one that started it."
        ) from None
    except ValueError:
        raise HostError(f"{paths.runtime} cannot be read; ./deploy/up writes it anew.") from None


def site_of(paths: Paths) -> Site:
    try:
        return load_site(paths.site)
    except ConfigError as error:
        raise HostError(error.findings[0]) from None


def accounts_of(paths: Paths) -> Accounts:
    """Through the running hub, with the installation's own admin token."""
    runtime = runtime_of(paths)
    token = (paths.secrets / "admin").read_text(encoding="utf-8").strip()
    return Accounts(api_url=runtime.hub_api_url, token=token)


@contextmanager
def polite() -> Iterator[None]:
    """Turn a `HostError` inside into its sentence and exit code 2."""
    try:
        yield
    except HostError as error:
        raise fail(_Said(str(error), "")) from None


class _Said(AllotmentError):
    exit_code = 2
