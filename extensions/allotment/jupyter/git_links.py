"""Git links may fill folders that people see, never hidden ones, from which programs read configuration."""

from __future__ import annotations

import importlib
from typing import Any

from jupyter_server.utils import url_path_join
from tornado import web

__all__ = ["add_guard", "why_not"]


def why_not(repo: str, target: str | None) -> str | None:
    """Why a link may not pull `repo` into the folder `target` of the home; None when it may.

    Whoever opens a link of nbgitpuller's pulls at once: `.ipython/profile_default/startup` as the folder
    would run a stranger's code with the next kernel.
    """
    parts = (target or repo.rstrip("/").rsplit("/", 1)[-1]).split("/")
    if parts[0] == "" or "\\" in (target or ""):
        return "This link names a folder outside of your home; nothing was pulled."
    if any(part.startswith(".") for part in parts):
        return "This link names a hidden folder, from which programs read settings; nothing was pulled."
    return None


def add_guard(app: Any) -> None:
    """Answer nbgitpuller's own address in its place, where it is installed. Call before it is loaded."""
    try:
        importlib.import_module("nbgitpuller._compat").get_base_handler(app)
        pull: Any = importlib.import_module("nbgitpuller.handlers").SyncHandler
    except ImportError:
        return

    class Guarded(pull):  # type: ignore[misc]
        @web.authenticated
        async def get(self) -> None:
            why = why_not(self.get_argument("repo"), self.get_argument("targetpath", None))
            if why is None:
                await super().get()
                return
            self.set_header("content-type", "text/event-stream")
            await self.emit({"phase": "error", "message": why, "error": {"code": "refused"}, "output": why})

    base = app.web_app.settings["base_url"]
    app.web_app.add_handlers(".*$", [(url_path_join(base, "git-pull/api"), Guarded)])
