"""GpuSpawnerMixin: what every spawner of ours adds to the stock one."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.spawner import Spawner
from pydantic import ValidationError
from traitlets import Dict, Float, Unicode, default, observe

from allotment_spawner.core.errors import BadOptions, BrokerUnavailable, Refusal, StartFailed
from allotment_spawner.core.lease import EndReason
from allotment_spawner.spawners import form
from allotment_spawner.spawners.adoption import Silence, report_active, wait_for_answer
from allotment_spawner.spawners.defaults import complete
from allotment_spawner.spawners.doors import door
from allotment_spawner.spawners.last_call import last_call
from allotment_spawner.spawners.options import Choice, choice_of, options_of_form, remembered
from allotment_spawner.spawners.progress import Board
from allotment_spawner.spawners.refusals import blames_choice, spawn_exception
from allotment_spawner.spawners.session import Limits, Session, end_reason, start_session
from allotment_spawner.spawners.shared import HubSide, hub_side
from allotment_spawner.spawners.workload import Workload
from allotment_spawner.wire import Launch, LeaseRequest

__all__ = ["GpuSpawnerMixin"]

_POLL_S = 4.0
_MARGIN_S = 3600
"""For pulling and making, on top of the wait and the start, before the hub itself gives up."""
_RELEASE_S = 2.0


class GpuSpawnerMixin(Spawner):
    """Waits for a lease, runs on exactly its device, and gives it back.

    Put before a stock spawner. That class says how a workload is described (`build_workload`)
    and found again (`find_workload`, `workload_of`); everything else is here.
    """

    broker_url = Unicode(
        "http://127.0.0.1:8083/services/allotment/",
        config=True,
        help="The broker's address; ends in /services/allotment/.",
    )
    broker_token_file = Unicode("", config=True, help="File (0600) with the hub's token at the broker.")
    installation = Unicode("", config=True, help="This installation's id, as in the containers' labels.")
    wait_limit = Float(8 * 3600.0, config=True, help="Longest wait in the queue, in seconds.")
    ready_limit = Float(
        150.0, config=True, help="Seconds from the start of a server to its first answer; below the broker's."
    )
    stop_grace = Float(10.0, config=True, help="Seconds a server has to end by itself.")
    default_environment = Unicode("", config=True, help="If none is asked for; empty: minimal, or the first.")
    default_flavor = Unicode("", config=True, help="If none is asked for; empty: the cheapest without GPU.")
    flavor_descriptions = Dict(config=True, help="Flavor -> one line for its card on the form.")

    on_step: Callable[[str], None] = staticmethod(lambda _: None)
    """Called before each step of a start."""

    _session: Session | None = None
    _starting = False
    _adopting = False
    _board: Board | None = None
    _stored: Mapping[str, object] | None = None
    _last_choice: Mapping[str, object] | None = None
    _opens: str | None = None

    # -- for the platforms -------------------------------------------------------------------

    @abstractmethod
    async def build_workload(self, launch: Launch, session: Session) -> Workload:
        """Describe the workload of a granted lease; nothing is made yet."""

    @abstractmethod
    async def find_workload(self) -> Session | None:
        """The started session of this person and server on the platform, when the hub forgot it."""

    @abstractmethod
    def workload_of(self, state: Mapping[str, Any]) -> Workload:
        """The workload that `Workload.engine_ref` in a stored state names."""

    # -- traits' defaults ----------------------------------------------------------------------

    @default("start_timeout")
    def _default_start_timeout(self) -> int:
        return int(self.wait_limit + self.ready_limit + _MARGIN_S)

    @default("options_form")
    def _default_options_form(self) -> Callable[[Spawner], Awaitable[str]]:
        return form.options_form

    @default("options_from_form")
    def _default_options_from_form(self) -> Callable[[Mapping[str, object]], dict[str, object]]:
        return options_of_form

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Callable[[Spawner, object], None]:
        """Nothing: start() judges the options, whose refusal the hub then shows without a traceback."""
        return lambda _spawner, _options: None

    # -- options -------------------------------------------------------------------------------

    @observe("handler")
    def _remember_stored_options(self, change: Mapping[str, Any]) -> None:
        """The hub overwrites the stored options right after it sets `handler`, before they are judged."""
        if change["new"] is not None and self.orm_spawner is not None:
            self._stored = dict(self.orm_spawner.user_options or {})

    def last_choice(self) -> Choice:
        """What the form should offer first: the last choice that was started, or the stored one; always
        with the version that ran last, since nobody is moved to a newer one unasked."""
        stored = remembered(self.orm_spawner.user_options if self.orm_spawner else None).lasting()
        ran = remembered(self._last_choice)
        if stored.version is None and stored.environment in (None, ran.environment):
            return replace(stored, version=ran.version) if stored.options() else ran
        return stored

    def options_from_query(self, query_data: Mapping[str, object]) -> dict[str, object]:
        """Only reached where the hub's own page stands before ours: a link alone must start nothing."""
        refusal = BadOptions("A link chose for you; nothing was started.", "Look at it, then press Start.")
        raise spawn_exception(refusal)

    def get_env(self) -> dict[str, str]:
        """As a variable, never as the trait `default_url`, in which JupyterHub replaces {fields}."""
        opens = {"JUPYTERHUB_DEFAULT_URL": self._opens} if self._opens else {}
        return {**super().get_env(), **opens}

    def _site_options(self) -> frozenset[str]:
        mapped = self.apply_user_options
        return frozenset(mapped) if isinstance(mapped, Mapping) else frozenset()

    def _forget_choice(self, refusal: Refusal) -> None:
        """The hub stored the options before they were judged; VS Code's empty request would repeat them."""
        asked: Mapping[str, object] = self.user_options
        keep = self._stored
        if keep is None or keep == asked:
            keep = {} if blames_choice(refusal) else asked
        if self.orm_spawner is not None and self.orm_spawner.user_options != keep:
            self.orm_spawner.user_options = dict(keep)
            self.set_trait("user_options", dict(keep))
            self.user.db.commit()

    # -- start -----------------------------------------------------------------------------------

    @property
    def hub_side(self) -> HubSide:
        return hub_side(self.user.settings, url=self.broker_url, token_file=self.broker_token_file)

    async def start(self) -> str:
        """Wait for the device, start on it, and return the URL of a server that answers."""
        session = self._session = Session(user=self.user.name, server=self.name)
        self._adopting = False
        self._starting = True
        try:
            return await self._run(session)
        except Refusal as refusal:
            await self._note_last_words(session, refusal)
            self._abandon(end_reason(refusal))
            self._forget_choice(refusal)
            raise spawn_exception(refusal) from refusal
        except Exception as error:
            self.log.exception("Starting %s failed", self._log_name)
            self._abandon(EndReason.START_FAILED)
            raise spawn_exception(
                StartFailed(
                    "The server could not be started, because of a mistake on this side.",
                    "Try again; tell an operator if it stays. The hub's log says more.",
                )
            ) from error
        except BaseException as error:
            self._abandon(end_reason(error))
            raise
        finally:
            self._starting = False

    async def _run(self, session: Session) -> str:
        side = self.hub_side
        self._board = Board()
        await side.cleaner.settled(session.user, session.server)
        asked = choice_of(self.user_options, also=self._site_options())
        usual = Choice(environment=self.default_environment or None, flavor=self.default_flavor or None)
        choice = await complete(asked, broker=side.broker, user=session.user, defaults=usual)
        try:
            request = LeaseRequest.model_validate(
                {"user": session.user, "server": session.server, **choice.wants()}
            )
        except ValidationError as error:
            raise BadOptions("The names of this server are too long.", "Use shorter names.") from error
        self._opens = door(app=choice.app, repo=choice.repo, branch=choice.branch, urlpath=choice.urlpath)
        url = await start_session(
            session,
            broker=side.broker,
            request=request,
            build=self.build_workload,
            board=self._board,
            limits=Limits(wait_s=self.wait_limit, ready_s=self.ready_limit),
            on_step=self.on_step,
        )
        self._last_choice = replace(choice.lasting(), version=session.version).options()
        return url

    async def _note_last_words(self, session: Session, refusal: Refusal) -> None:
        """A container's log is removed with it; its end tells an operator why it did not come up."""
        if isinstance(refusal, StartFailed) and session.workload is not None:
            words = await session.workload.last_words()
            if words:
                self.log.warning("%s did not come up; its log ends:\n%s", self._log_name, words)

    def _abandon(self, reason: EndReason) -> None:
        """Give what this start holds to the background; the hub waits one second for a cancelled start."""
        session, self._session = self._session, None
        if session is not None:
            side = self.hub_side
            side.cleaner.hand_over(session, broker=side.broker, reason=reason, grace_s=self.stop_grace)

    async def progress(self) -> AsyncIterator[dict[str, object]]:
        board = self._board = self._board or Board()
        async for step in board.follow():
            yield step

    @property
    def allotment_step(self) -> dict[str, object]:
        """The latest step of the start, for the waiting page's first sight."""
        board = self._board = self._board or Board()
        return board.latest

    # -- running -----------------------------------------------------------------------------------

    async def poll(self) -> int | str | None:
        """None while it runs or cannot be told: unknown is not gone. Never raises, never asks the broker."""
        if self._starting:
            return None
        try:
            async with asyncio.timeout(_POLL_S):
                if self._session is None and self._check_pending:
                    self._session = await self.find_workload()
                if self._session is None:
                    return 0
                workload = self._session.workload
                return 0 if workload is None else await workload.exited()
        except (Refusal, TimeoutError) as error:
            self.log.warning("Cannot tell whether %s runs (%s); taken as running", self._log_name, error)
        except Exception:
            self.log.exception("Cannot tell whether %s runs; taken as running", self._log_name)
        return None

    async def get_url(self) -> str:
        """Where the server is, by inspection. During the hub's start-up check: once it answers."""
        if not self._check_pending:
            return await super().get_url()
        self._adopting = True
        if self._session is None:
            # the platform did not answer at poll(); it is asked until it does
            self._session = await self._find_patiently()
        session = self._session
        url = None
        if session is not None and session.workload is not None:
            silence = Silence(wanted=lambda: self._session is session, bear=self._bear_silence)
            url = await wait_for_answer(session.workload, silence)
        if url is None or session is None:
            # it is gone: the hub finds out by asking it once more, which need not take long
            self.http_timeout = 1
            self._adopting = False
            return await super().get_url()
        self._adopting = False
        side = self.hub_side
        side.background(
            report_active(session, broker=side.broker, grace_s=self.stop_grace), what="reporting a session"
        )
        return url

    async def _find_patiently(self) -> Session | None:
        while self._adopting:
            try:
                return await self.find_workload()
            except Refusal as refusal:
                self.log.warning("Cannot look for the server of %s: %s", self._log_name, refusal.sentence)
                self._bear_silence(None)
                await asyncio.sleep(1)
        # stopped on request meanwhile: this check has nothing left to decide
        raise asyncio.CancelledError

    def _bear_silence(self, url: str | None) -> None:
        """From here on the hub takes it as running. What a hub that died had stored is a random port."""
        where = urlsplit(url or "")
        if self.server is not None and where.hostname and where.port:
            self.server.ip, self.server.port = where.hostname, where.port
            self.user.db.commit()
        self._check_pending = False

    # -- stop --------------------------------------------------------------------------------------

    async def last_call(self) -> None:
        """Have open pages save what they show; called while the proxy still leads to the server."""
        if self._session is not None:
            await last_call(self._session, broker=self.hub_side.broker)

    async def stop(self, now: bool = False) -> None:
        """End and remove the workload, then the lease. Acts on a request, never on a silent check."""
        adopting, self._adopting = self._adopting, False
        if adopting and getattr(self, "_stop_future", None) is None:
            self._adopting = True
            self.log.warning("%s did not answer the hub's check; it is left running", self._log_name)
            return
        session, self._session = self._session, None
        side = self.hub_side
        if session is None:
            if adopting:
                await self._release_unseen(side)
            return
        try:
            if session.workload is not None:
                await session.workload.remove(grace_s=0 if now else self.stop_grace)
        finally:
            # recorded even if the removal failed: the broker finishes it
            await self._release(session, EndReason.STOPPED, side)

    async def _release_unseen(self, side: HubSide) -> None:
        """A stop while the platform does not answer: the broker, told so, ends what it finds later."""
        for lease in await side.broker.leases(user=self.user.name, server=self.name, live=True, limit=1):
            await side.broker.release(lease.id, reason=EndReason.STOPPED)

    async def _release(self, session: Session, reason: EndReason, side: HubSide) -> None:
        if session.lease is None:
            return
        try:
            await side.broker.release(session.lease, reason=reason, retry_for_s=_RELEASE_S)
        except BrokerUnavailable:
            released = Session(
                user=session.user, server=session.server, attempt=session.attempt, lease=session.lease
            )
            side.cleaner.hand_over(released, broker=side.broker, reason=reason, grace_s=0)
        except Refusal as refusal:
            self.log.warning("Lease %s not released: %s", session.lease, refusal.sentence)

    def run_post_stop_hook(self) -> Any:
        """Also reached when the server ended by itself and stop() was not called."""
        if not self._adopting:
            self._abandon(EndReason.WORKLOAD_EXITED)
        return super().run_post_stop_hook()

    # -- state -------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        session = self._session
        if session is not None and session.lease is not None and session.workload is not None:
            state["allotment"] = {
                "lease": session.lease,
                "attempt": session.attempt,
                "devices": list(session.devices),
                "engine_ref": session.workload.engine_ref,
            }
        if self._last_choice:
            state["allotment_choice"] = dict(self._last_choice)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._last_choice = remembered(state.get("allotment_choice")).options()
        kept = state.get("allotment")
        if kept:
            self._session = Session(
                user=self.user.name,
                server=self.name,
                attempt=kept["attempt"],
                lease=kept["lease"],
                devices=tuple(kept["devices"]),
                workload=self.workload_of(state),
            )

    def clear_state(self) -> None:
        """The last choice stays: it is the person's, not the server's."""
        super().clear_state()
        if not self._starting:
            self._session = None
