"""A signed-in browser without a browser: cookies, XSRF and forms over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from allotment_testing.hub_process import HubProcess

__all__ = ["sign_in", "xsrf_of"]

_XSRF = re.compile(r'name="_xsrf"\s+value="([^"]+)"')


@asynccontextmanager
async def sign_in(hub: HubProcess, user: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client with `user`'s cookies."""
    async with httpx.AsyncClient(base_url=hub.url, follow_redirects=True, timeout=60) as client:
        page = await client.get("/hub/login")
        form = {"username": user, "password": "any", "_xsrf": xsrf_of(page.text)}
        answer = await client.post("/hub/login?next=/hub/home", data=form)
        assert answer.status_code == 200, answer.text
        yield client


def xsrf_of(page: str) -> str:
    """The token in a page's form."""
    found = _XSRF.search(page)
    assert found, "the page has no form with a token"
    return found.group(1)
