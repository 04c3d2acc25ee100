"""What JupyterLab shows of this session, put together from the environment, the broker and the home."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from allotment.jupyter.purse import tightest
from allotment.jupyter.room import Room
from allotment.jupyter.upstream import Upstream

__all__ = ["SessionView", "dashboard_url"]

_FRESH_S = 45.0
_TIGHT_BYTES = 200 * 2**20


class SessionView:
    """One document, made anew at most every 45 s whatever the number of open pages.

    Members: lease, flavor, flavor_title, environment, version, since, price_per_hour, currency, cost,
    charged_to, budget {title, left, limit, unit, hard, until}, simulated, server, user, dashboard,
    home {used_bytes, free_bytes, limit_bytes, warning}, packages. None is unknown; money is text.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        upstream: Upstream,
        room: Room,
        packages: Callable[[], Mapping[str, Any]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._env = env
        self._upstream = upstream
        self._room = room
        self._packages = packages
        self._monotonic = monotonic
        self._me: dict[str, Any] | None = None
        self._made: dict[str, Any] | None = None
        self._made_at = 0.0
        self._gate = asyncio.Lock()

    async def document(self) -> dict[str, Any]:
        async with self._gate:
            if self._made is None or self._monotonic() - self._made_at > _FRESH_S:
                self._made = await self._make()
                self._made_at = self._monotonic()
            return self._made

    def forget(self) -> None:
        """Look anew at the next question."""
        self._made = None

    async def _make(self) -> dict[str, Any]:
        if self._me is None:
            self._me = await self._upstream.me()
        lease, home, budgets = await asyncio.gather(
            self._upstream.lease(),
            self._upstream.home(),
            self._upstream.budgets(self._env.get("JUPYTERHUB_USER")),
        )
        told, me = lease or {}, self._me or {}
        env = self._env
        return {
            "lease": env.get("ALLOTMENT_LEASE"),
            "flavor": env.get("ALLOTMENT_FLAVOR"),
            "flavor_title": env.get("ALLOTMENT_FLAVOR_TITLE") or env.get("ALLOTMENT_FLAVOR"),
            "environment": env.get("ALLOTMENT_ENVIRONMENT"),
            "version": told.get("version"),
            "since": told.get("active_at"),
            "price_per_hour": told.get("price_per_hour"),
            "currency": told.get("currency") or me.get("currency"),
            "cost": told.get("cost"),
            "charged_to": told.get("charged_to"),
            "budget": tightest(budgets or [], user=told.get("user"), charged_to=told.get("charged_to")),
            # a session without a GPU runs on real cores, whatever this machine's GPUs are
            "simulated": me.get("simulated") if env.get("ALLOTMENT_DEVICES") else False,
            "user": told.get("user"),
            "server": told.get("server"),
            "dashboard": dashboard_url(env),
            "home": self._home(home or {}),
            "packages": await _quietly(asyncio.to_thread(self._packages)),
        }

    def _home(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """The operators' own figures where they measure, else what can be seen from here."""
        seen = self._room.look()
        used = told.get("used_bytes")
        warning = self._env.get("ALLOTMENT_HOME_FULL") or told.get("warning") or _warning(seen)
        return {
            "used_bytes": seen["used_bytes"] if used is None else used,
            "free_bytes": seen["free_bytes"],
            "limit_bytes": told.get("limit_bytes"),
            "warning": warning,
        }


def dashboard_url(env: Mapping[str, str]) -> str:
    """Allotment's page as a browser finds it from this server: usually a path of the same host."""
    hub = env.get("JUPYTERHUB_PUBLIC_HUB_URL", "").removesuffix("/").removesuffix("/hub")
    base = env.get("JUPYTERHUB_BASE_URL") or "/"
    return (f"{hub}/" if hub else base) + "services/allotment/"


def _warning(seen: Mapping[str, int | None]) -> str | None:
    """Only what stops work: the file system has no room for this account."""
    free = seen["free_bytes"]
    if free is None or free > _TIGHT_BYTES:
        return None
    return f"Your home has {free // 2**20} MiB left. Delete what you do not need, or saving will fail."


async def _quietly(found: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """A damaged overlay must not take the status bar with it; `allot env check` says what is wrong."""
    try:
        return await found
    except (OSError, ValueError, ImportError):
        return None
