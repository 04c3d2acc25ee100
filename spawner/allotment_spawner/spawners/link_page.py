"""The hub's page for starting a server: links fill the form in, a person's click starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub.handlers.pages import SpawnHandler
from jupyterhub.scopes import needs_scope
from tornado import web
from tornado.httputil import url_concat

from allotment_spawner.core.errors import BadOptions
from allotment_spawner.spawners.doors import door
from allotment_spawner.spawners.options import Choice, choice_of_link, options_of_form, remembered

__all__ = ["FormHandler", "asked_by"]


def asked_by(handler: Any) -> tuple[Choice, BadOptions | None]:
    """(what the request of a form's page asks for, what is wrong with it): a link, or a form sent before."""
    if handler is None:
        return Choice(), None
    if handler.request.method == "POST":
        sent = options_of_form(_texts(handler.request.body_arguments))
        return remembered({**sent, "datasets": _as_list(sent.get("datasets"))}), None
    return choice_of_link(_texts(handler.request.query_arguments))


class FormHandler(SpawnHandler):
    """`/hub/spawn`. JupyterHub starts a server as soon as an address with options is opened: any page could
    make a person pay, so here such an address only fills the form in."""

    async def prepare(self) -> None:
        """What is no text would break JupyterHub's own reading of it, as a mistake of ours."""
        await super().prepare()
        for arguments in (self.request.query_arguments, self.request.body_arguments):
            try:
                for values in arguments.values():
                    b"\n".join(values).decode()
            except UnicodeDecodeError:
                raise web.HTTPError(400, "The options are no text in UTF-8.") from None

    def _get_user_options(self, query_options: Mapping[str, object]) -> dict[str, object]:
        return {}

    @needs_scope("servers")
    async def _post(self, user_name: str, server_name: str, display_name: str) -> None:
        user = self.find_user(user_name)
        if user is not None:
            # a refused form is shown again with what was chosen; the hub asks the default server's for it
            user.spawner.handler = self
        await super()._post(user_name=user_name, server_name=server_name, display_name=display_name)

    @property
    def template_namespace(self) -> dict[str, Any]:
        """With the form's address: the options of a link would otherwise go on to the started server."""
        goes_to = self.get_argument("next", "")
        action = url_concat(self.request.path, {"next": goes_to}) if goes_to else self.request.path
        return {**super().template_namespace, "allotment_action": action}

    def get_next_url(self, user: Any = None, default: str | None = None) -> str:
        """A server that runs already opens what the link asks for."""
        asked, _ = asked_by(self)
        opens = door(app=asked.app, repo=asked.repo, branch=asked.branch, urlpath=asked.urlpath)
        if default and opens:
            default = default.rstrip("/") + opens
        return str(super().get_next_url(user, default))

    def append_query_parameters(self, url: str, exclude: list[str] | None = None) -> str:
        return url


def _texts(arguments: Mapping[str, list[bytes]]) -> dict[str, object]:
    return {key: [one.decode("utf-8", "replace") for one in values] for key, values in arguments.items()}


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]
