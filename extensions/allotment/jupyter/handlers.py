"""allotment/session (GET), allotment/packages (POST), allotment/notices (WebSocket) of a notebook server.

A WebSocket and not an event stream: browsers keep at most six connections to one host, and six open pages
of JupyterLab would leave none for anything else.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from allotment.jupyter.pages import Pages
from allotment.jupyter.session import SessionView
from allotment.jupyter.tidying import CHOICES, tidy

__all__ = ["NoticesSocket", "PackagesHandler", "SessionHandler"]

_MOST = 100_000


class SessionHandler(APIHandler):
    def initialize(self, *, session: SessionView) -> None:
        super().initialize()
        self._session_view = session

    @web.authenticated
    async def get(self) -> None:
        """What this session is; see `SessionView`."""
        self.finish(json.dumps(await self._session_view.document()))


class PackagesHandler(APIHandler):
    def initialize(self, *, session: SessionView) -> None:
        super().initialize()
        self._session_view = session

    @web.authenticated
    async def post(self) -> None:
        """{"choice": aside or clean} for packages that do not work; answers {"sentence"}."""
        body: Any = self.get_json_body()
        choice = body.get("choice") if isinstance(body, dict) else None
        if choice not in CHOICES:
            raise web.HTTPError(400, "choice is one of: " + ", ".join(CHOICES))
        sentence = await asyncio.to_thread(tidy, choice)
        self._session_view.forget()
        self.finish(json.dumps({"sentence": sentence}))


class NoticesSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """To the page: {"type": notices|notice|withdrawn|last_call, …}. From it: {"type": "saved", "id",
    "saved", "failed"}."""

    def initialize(self, *, pages: Pages) -> None:
        super().initialize()
        self._open_pages = pages

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        self._open_pages.enter(self)

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.write_message(json.dumps(message))
        except WebSocketClosedError:
            self._open_pages.leave(self)

    def on_message(self, message: str | bytes) -> None:
        """Anything that is not an answer to a last call is passed over."""
        try:
            said = json.loads(message)
        except (ValueError, RecursionError):
            return
        if isinstance(said, dict) and said.get("type") == "saved":
            self._open_pages.answer(
                self, str(said.get("id")), saved=_count(said, "saved"), failed=_count(said, "failed")
            )

    def on_close(self) -> None:
        self._open_pages.leave(self)
        super().on_close()


def _count(said: dict[str, Any], name: str) -> int:
    found = said.get(name)
    return min(max(found, 0), _MOST) if isinstance(found, int) else 0
