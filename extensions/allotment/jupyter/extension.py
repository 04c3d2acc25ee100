"""Adds Allotment's addresses to a notebook server that runs in a session of Allotment's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jupyter_server.utils import url_path_join

from allotment import packages
from allotment.errors import NotConfigured
from allotment.jupyter.git_links import add_guard
from allotment.jupyter.handlers import NoticesSocket, PackagesHandler, SessionHandler
from allotment.jupyter.pages import Pages
from allotment.jupyter.room import Room
from allotment.jupyter.session import SessionView
from allotment.jupyter.upstream import Upstream
from allotment.packages.report import begin_check
from allotment.settings import find_settings

__all__ = ["load"]


def load(app: Any) -> None:
    """Called by jupyter_server. Outside a session nothing is added, and JupyterLab's part stays quiet."""
    lease = os.environ.get("ALLOTMENT_LEASE")
    if not lease:
        return
    try:
        settings = find_settings(os.environ)
    except NotConfigured as why:
        app.log.info("Allotment: %s", why.sentence)
        return
    begin_check()
    add_guard(app)
    upstream = Upstream(settings=settings, lease=lease)
    session = SessionView(
        env=os.environ, upstream=upstream, room=Room(home=Path.home()), packages=packages.status
    )
    pages = Pages(
        follow=upstream.notices,
        answer=lambda call, saved, failed: upstream.saved(call, saved=saved, failed=failed),
        failed=lambda error: app.log.error("Allotment: following the broker failed", exc_info=error),
    )
    base = app.web_app.settings["base_url"]
    app.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "allotment/session"), SessionHandler, {"session": session}),
            (url_path_join(base, "allotment/packages"), PackagesHandler, {"session": session}),
            (url_path_join(base, "allotment/notices"), NoticesSocket, {"pages": pages}),
        ],
    )
