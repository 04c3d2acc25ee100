"""The hub's pages and calls of ours: choices, changes, a person's own lease, cancel, start on CPU."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.pages import SpawnHandler
from jupyterhub.handlers.static import CacheControlStaticFilesHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from allotment_spawner.core.errors import BudgetExhausted, FlavorUnavailable, Refusal
from allotment_spawner.spawners.choices import choices_for, preselected
from allotment_spawner.spawners.defaults import cheapest_without_gpu, needs_gpu
from allotment_spawner.spawners.link_page import FormHandler
from allotment_spawner.spawners.money import cannot_pay
from allotment_spawner.spawners.options import remembered
from allotment_spawner.spawners.refusals import SPAWN_STATUS, spawn_exception
from allotment_spawner.spawners.shared import HubSide

__all__ = ["handlers", "template_paths"]

_FORM = Path(__file__).parent / "form"
_KEEP_ALIVE_S = 10.0
_CANCEL_S = 1.0


def template_paths() -> list[str]:
    """For `JupyterHub.template_paths`: our spawn, waiting and refusal pages."""
    return [str(_FORM / "templates")]


def handlers() -> list[tuple[Any, ...]]:
    """(pattern, handler[, arguments]) for `Authenticator.get_handlers`; the hub puts its prefix before each.

    From there they stand before the hub's own, as the form's must. `JupyterHub.extra_handlers` come last:
    there the hub's own page serves the form, and a link with options says that nothing was started.
    """
    return [
        (r"/spawn", FormHandler),
        (r"/spawn/([^/]+)", FormHandler),
        (r"/spawn/([^/]+)/([^/]+)", FormHandler),
        (r"/allotment/choices", ChoicesHandler),
        (r"/allotment/events", EventsHandler),
        (r"/allotment/lease", LeaseHandler),
        (r"/allotment/cancel", CancelHandler),
        (r"/allotment/start-on-cpu", StartOnCpuHandler),
        (r"/allotment/static/(.*)", CacheControlStaticFilesHandler, {"path": str(_FORM / "static")}),
    ]


class _Json(BaseHandler):
    """Signed in by the hub's own cookie; answers JSON, errors included."""

    def get_content_type(self) -> str:
        return "application/json"

    async def prepare(self) -> None:
        await super().prepare()
        self.set_header("Cache-Control", "no-store")
        if self.current_user is None:
            raise web.HTTPError(401, "Sign in first.")

    def named_user(self) -> str:
        return str(self.get_argument("user", "") or self.current_user.name)

    def side_of(self, user_name: str) -> tuple[Any, HubSide]:
        user = self.find_user(user_name)
        if user is None:
            raise web.HTTPError(404)
        return user, user.spawner.hub_side

    def answer(self, value: object) -> None:
        self.finish(json.dumps(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        body = {"status": status_code, "detail": getattr(error, "log_message", None) or "Not possible."}
        if isinstance(error, Refusal):
            body |= {"code": error.code, "detail": error.sentence, "next_step": error.next_step}
            self.set_status(SPAWN_STATUS.get(type(error), 422))
            body["status"] = self.get_status()
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(body))

    def log_exception(self, *exc_info: Any) -> None:
        """A refusal is an answer, not a mistake of ours."""
        if not isinstance(exc_info[1], Refusal):
            super().log_exception(*exc_info)


class ChoicesHandler(_Json):
    """GET: what `user` (default: me) can pick now."""

    async def get(self) -> None:
        await self._get(user_name=self.named_user())

    @needs_scope("servers")
    async def _get(self, user_name: str) -> None:
        user, side = self.side_of(user_name)
        last = user.spawner.last_choice()
        choices = await choices_for(side.broker, user.name, last=last)
        self.answer({**choices, "selected": preselected(choices, last)})


class LeaseHandler(_Json):
    """GET: my newest lease of `server`, and why it waits or what became of it."""

    async def get(self) -> None:
        await self._get(user_name=self.named_user(), server_name=str(self.get_argument("server", "")))

    @needs_scope("read:servers")
    async def _get(self, user_name: str, server_name: str) -> None:
        user, side = self.side_of(user_name)
        found = await side.broker.leases(user=user.name, server=server_name, limit=1)
        lease = found[0] if found else None
        explanation = await self._explain(side, lease.id) if lease and lease.place is not None else None
        self.answer(
            {
                "lease": lease.model_dump(mode="json", by_alias=True) if lease else None,
                "explanation": explanation,
            }
        )

    @staticmethod
    async def _explain(side: HubSide, lease: str) -> dict[str, Any] | None:
        """For the person: sentences only; the hub asks as itself and could see more."""
        try:
            whole = await side.broker.explain(lease)
        except Refusal:
            return None
        return {"sentence": whole.get("sentence"), "help": whole.get("help") or []}


class EventsHandler(_Json):
    """GET: server-sent `changed` events, from the hub's one stream of the broker's."""

    def get_content_type(self) -> str:
        return "text/event-stream"

    async def get(self) -> None:
        self.set_header("X-Accel-Buffering", "no")
        changes = self.current_user.spawner.hub_side.changes
        self._gone = asyncio.Event()
        try:
            await self._send(": hello\n\n")
            async with aclosing(changes.watch()) as versions:
                await self._pass_on(versions)
        except StreamClosedError:
            return

    async def _pass_on(self, versions: Any) -> None:
        step = asyncio.ensure_future(anext(versions))
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            while not self._gone.is_set():
                done, _ = await asyncio.wait(
                    [step, gone], timeout=_KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if step in done:
                    await self._send(f"event: changed\ndata: {json.dumps({'version': step.result()})}\n\n")
                    step = asyncio.ensure_future(anext(versions))
                elif gone not in done:
                    await self._send(": still here\n\n")
        finally:
            step.cancel()
            gone.cancel()
            # a generator that still runs its step cannot be closed
            await asyncio.wait([step, gone])

    async def _send(self, text: str) -> None:
        self.write(text)
        await self.flush()

    def on_connection_close(self) -> None:
        self._gone.set()


class CancelHandler(SpawnHandler):
    """POST: give up the pending start of `server` (the named one, not the default one)."""

    def get(self) -> None:
        raise web.HTTPError(405)

    @web.authenticated
    async def post(self) -> None:
        user_name = str(self.get_body_argument("user", "") or self.current_user.name)
        await self._act(user_name=user_name, server_name=str(self.get_body_argument("server", "")))

    @needs_scope("delete:servers")
    async def _act(self, user_name: str, server_name: str) -> None:
        user = self._user_with(user_name, server_name)
        await self._give_up(user, server_name)
        self.redirect(url_path_join(self.hub.base_url, "home"))

    def _user_with(self, user_name: str, server_name: str) -> Any:
        user = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            raise web.HTTPError(404, "There is no such server.")
        return user

    async def _give_up(self, user: Any, server_name: str) -> None:
        """As the hub's own DELETE, without its fixed second: our start() hands its clean-up over at once."""
        spawner = user.spawners[server_name]
        if spawner.pending == "spawn":
            pending = spawner._spawn_future
            if pending is not None:
                pending.cancel()
                await asyncio.wait([pending], timeout=_CANCEL_S)
        if spawner.pending is None and spawner.active:
            await self.stop_single_user(user, server_name)


class StartOnCpuHandler(CancelHandler):
    """POST: give up the wait of `server` and start it on the cheapest flavor without a GPU."""

    @needs_scope("servers")
    async def _act(self, user_name: str, server_name: str) -> None:
        user = self._user_with(user_name, server_name)
        spawner = user.spawners[server_name]
        options = await self._on_cpu(spawner)
        await self._give_up(user, server_name)
        # a fresh one: the hub drops a spawner that was stopped
        spawner = user.get_or_create_spawner(server_name, server_name, replace_failed=True)
        pending_url = self._get_pending_url(user, server_name)
        await self._wrap_spawn_single_user(user, server_name, server_name, spawner, pending_url, options)

    @staticmethod
    async def _on_cpu(spawner: Any) -> dict[str, object]:
        """The same environment; refused before anything is given up."""
        try:
            flavors = await spawner.hub_side.broker.flavors(spawner.user.name)
            offered = [one for one in flavors if not needs_gpu(one)]
            flavor = cheapest_without_gpu(offered)
            if flavor is None:
                raise FlavorUnavailable("Nothing here runs without a GPU.", "Wait, or choose another size.")
            why = next((cannot_pay(one) for one in offered if one.id == flavor), None)
            if why is not None:
                raise BudgetExhausted(why, "Your place in line is kept.")
        except Refusal as refusal:
            raise spawn_exception(refusal) from refusal
        return {**remembered(spawner.user_options).options(), "flavor": flavor}
