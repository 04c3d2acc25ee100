"""Git links may fill folders that people see, never hidden ones, from which programs read configuration.

Whoever opens a link of nbgitpuller's pulls at once, and its page shows what the link says: so what a link may
say is looked at here, before nbgitpuller does.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from jupyter_server.utils import url_path_join
from tornado import web

__all__ = ["add_guard", "why_not", "why_not_open", "why_not_repo"]

_REPO = re.compile(r"(?:(?:https?|ssh|git|file)://|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:|/)[^\s<>\"'`\\]*")
_DOT = re.compile(r"%2e", re.IGNORECASE)


def why_not(repo: str, target: str | None) -> str | None:
    """Why a link may not pull `repo` into the folder `target` of the home; None when it may.

    `.ipython/profile_default/startup` as the folder would run a stranger's code with the next kernel.
    """
    parts = (target or repo.rstrip("/").rsplit("/", 1)[-1]).split("/")
    if parts[0] == "" or "\\" in (target or ""):
        return "This link names a folder outside of your home; nothing was pulled."
    if any(part.startswith(".") for part in parts):
        return "This link names a hidden folder, from which programs read settings; nothing was pulled."
    if target == "":
        return "This link names your home itself as the folder to fill; nothing was pulled."
    return None


def why_not_repo(repo: str) -> str | None:
    """The page makes a link of the address: a click on `javascript:…` would run a stranger's script."""
    if _REPO.fullmatch(repo):
        return None
    return "This link names no address that a repository can have; nothing was pulled."


def why_not_open(path: str) -> str | None:
    """Where the page goes, below this server's address, once all is pulled; browsers read `%2e` as a dot."""
    way = re.split(r"[?#]", _DOT.sub(".", path), maxsplit=1)[0]
    if ".." in way.split("/") or "\\" in path or not path.isprintable():
        return "This link leads away from your server; nothing was pulled."
    return None


def add_guard(app: Any) -> None:
    """Answer nbgitpuller's own addresses in its place, where it is installed. Call before it is loaded."""
    try:
        importlib.import_module("nbgitpuller._compat").get_base_handler(app)
        handlers: Any = importlib.import_module("nbgitpuller.handlers")
    except ImportError:
        return
    if hasattr(handlers, "jinja_env"):
        # its page writes what the link says into HTML as it came
        handlers.jinja_env.autoescape = True
    base = app.web_app.settings["base_url"]
    app.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "git-pull/api"), _guarded_pull(handlers.SyncHandler)),
            (url_path_join(base, "git-pull"), _guarded_page(handlers.UIHandler)),
        ],
    )


def _guarded_pull(pull: Any) -> Any:
    class GuardedPull(pull):  # type: ignore[misc]
        @web.authenticated
        async def get(self) -> None:
            repo = self.get_argument("repo")
            why = why_not_repo(repo) or why_not(repo, self.get_argument("targetpath", None))
            if why is None:
                await super().get()
                return
            self.set_header("content-type", "text/event-stream")
            await self.emit({"phase": "error", "message": why, "error": {"code": "refused"}, "output": why})

    return GuardedPull


def _guarded_page(page: Any) -> Any:
    class GuardedPage(page):  # type: ignore[misc]
        @web.authenticated
        async def get(self) -> None:
            told = {
                name: self.get_argument(name, "") for name in ("urlpath", "urlPath", "subpath", "subPath")
            }
            why = why_not_repo(self.get_argument("repo"))
            for path in told.values():
                why = why or why_not_open(path)
            if why is not None:
                raise web.HTTPError(400, why)
            await super().get()

    return GuardedPage
