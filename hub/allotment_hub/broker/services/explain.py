"""Why a lease waits, ended or was refused: which rule, which devices, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from allotment_spawner.core.allocator import NoRoom, capacity, place
from allotment_spawner.core.errors import BrokerUnavailable, Refusal
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.core.request import Request
from allotment_spawner.wire import Work

from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.history import History
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.planning import pools_in
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.steps import no_such_lease
from allotment_hub.broker.services.views import DeviceHold, Explanation, RuleView
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store import notices
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog

__all__ = ["Explainer"]

_ANOTHER = "another person"
_MOST = 64
_WHATEVER_THE_SIZE = frozenset({"disk_full", "data_on_its_way", "engine_unavailable"})
"""Rules that hold up every size: another one would not start sooner."""

_ENDS = {
    EndReason.STOPPED: "It was stopped.",
    EndReason.CANCELLED: "The start was cancelled.",
    EndReason.REFUSED: "The start was refused.",
    EndReason.WAIT_LIMIT: "It waited as long as a start may wait, and no device came free.",
    EndReason.ABANDONED: "Nobody waited for it any more, or the hub had forgotten its server.",
    EndReason.START_FAILED: "The server did not come up.",
    EndReason.GRANT_EXPIRED: "Its device was held for it, but the start did not go on in time.",
    EndReason.REPLACED: "A newer start of the same server took its place.",
    EndReason.WORKLOAD_EXITED: "The server ended by itself.",
    EndReason.ENGINE_STOPPED: "What runs the servers was stopped or restarted, and the server with it.",
    EndReason.NODE_RESTARTED: "The machine was restarted.",
    EndReason.DEVICE_MISMATCH: "The server saw another device than its own, so it was stopped.",
}
_LIVES = {
    LeaseState.GRANTED: "Its device is held for it and its server is starting.",
    LeaseState.ACTIVE: "It is running.",
    LeaseState.ENDING: "It is ending; its device is handed on when it is known to be free.",
}


class Explainer:
    """Implements `ExplainerApi`; asks the same planner that decides, so it cannot say otherwise."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: Store,
        book: Book,
        admission: Admission,
        situation: Situation,
        observations: Observations,
        scheduler: Scheduler,
        waiters: Waiters,
        history: History,
        clock: Callable[[], datetime],
        waits_for: Callable[[Lease], Work | None],
        no_room: Callable[[], str | None],
    ) -> None:
        self._waits_for = waits_for
        self._no_room = no_room
        self._catalog = catalog
        self._store = store
        self._book = book
        self._admission = admission
        self._situation = situation
        self._seen = observations
        self._scheduler = scheduler
        self._waiters = waiters
        self._history = history
        self._clock = clock

    async def explain(self, lease_id: str, *, for_operator: bool) -> Explanation:
        lease = self._book.get(lease_id) or await self._store.read(lambda tx: tx.lease(lease_id))
        if lease is None:
            raise no_such_lease()
        if lease.state is LeaseState.QUEUED:
            return await self._waiting(lease, for_operator)
        rules, helps = [], []
        sentence = _LIVES.get(lease.state, "")
        if lease.end_reason is not None:
            why = _ENDS[lease.end_reason]
            rules.append(RuleView(rule=lease.end_reason.value, sentence=why))
            announced = await self._announced(lease)
            if announced is not None:
                rules.append(RuleView(rule="announced", sentence=announced))
                why = f"{why.removesuffix('.')}, as announced: {announced}"
            sentence = why if lease.state is LeaseState.ENDED else f"{sentence} {why}"
        if lease.refusal is not None:
            sentence = str(lease.refusal["detail"])
            rules.append(RuleView(rule=str(lease.refusal["code"]), sentence=sentence))
            helps.append(str(lease.refusal["next_step"]))
        if lease.note is not None:
            rules.append(RuleView(rule="quarantined", sentence=lease.note))
            helps.append("It is tried again until the device is free; an operator can end what holds it.")
        return Explanation(
            lease=lease.id,
            state=lease.state.value,
            sentence=sentence,
            rules=tuple(rules),
            devices=(),
            help=tuple(helps),
        )

    async def _announced(self, lease: Lease) -> str | None:
        """What said before that it would be stopped by then: who was not there reads it afterwards."""
        if lease.end_reason is not EndReason.STOPPED or lease.stopped_at is None:
            return None
        told = await self._store.read(lambda tx: notices.of_lease(tx.connection, lease.id))
        due = [one for one in told if one.stop_at is not None and one.stop_at <= lease.stopped_at]
        return due[-1].sentence if due else None

    async def _waiting(self, lease: Lease, for_operator: bool) -> Explanation:
        request = self._scheduler.request_for(lease)
        rules = self._rules(lease, request)
        place_ = self._book.place(lease.id, self._clock())
        sentence = f"It waits at place {place_}. {rules[0].sentence}"
        devices = () if request is None else self._holds(lease, request, for_operator)
        return Explanation(
            lease=lease.id,
            state=lease.state.value,
            sentence=sentence,
            rules=tuple(rules),
            devices=devices,
            help=tuple(await self._helps(lease, rules)),
        )

    def _rules(self, lease: Lease, request: Request | None) -> list[RuleView]:
        rules = []
        if not self._waiters.is_connected(lease.id):
            rules.append(
                ("nobody_waits", "Nobody waits for it at the moment; it keeps its place for a while.")
            )
        if (full := self._no_room()) is not None:
            rules.append(("disk_full", full))
        work = self._waits_for(lease)
        if work is not None:
            rules.append(("data_on_its_way", f"It waits for data. {work.sentence}"))
        if lease.reserved:
            rules.append(("cutting", "Its device is being prepared."))
        if self._seen.engine_problem is not None:
            rules.append(("engine_unavailable", f"The engine does not answer: {self._seen.engine_problem}"))
        if request is not None and self._seen.agent_problem is not None:
            rules.append(("agent_unavailable", f"The GPUs cannot be asked: {self._seen.agent_problem}"))
        if request is not None and not lease.reserved:
            answer = place(request, self._situation.machine().snapshot, self._situation.demand)
            if isinstance(answer, NoRoom):
                rules.append((answer.rule, answer.sentence))
            ahead = self._ahead(lease, request)
            if ahead:
                who = "An earlier request waits" if ahead == 1 else f"{ahead} earlier requests wait"
                rules.append(("first_come_first_served", f"{who} for the same GPUs and goes first."))
        if not rules:
            rules.append(("next_pass", "It is served in a moment."))
        return [RuleView(rule=rule, sentence=sentence) for rule, sentence in rules]

    def _ahead(self, lease: Lease, request: Request) -> int:
        mine = pools_in(request)
        count = 0
        for other in self._book.queue(self._clock()):
            if other.id == lease.id:
                break
            wanted = self._scheduler.request_for(other)
            count += wanted is not None and bool(mine & pools_in(wanted))
        return count

    def _holds(self, lease: Lease, request: Request, for_operator: bool) -> tuple[DeviceHold, ...]:
        pools = pools_in(request)
        everybody = self._book.holders()
        found = []
        for facts in self._situation.machine().gpus:
            if facts.pool is None or facts.pool.name not in pools:
                continue
            for other in everybody.get(facts.gpu.uuid, ()):
                named = for_operator or other.user == lease.user
                found += [
                    DeviceHold(
                        gpu_uuid=device.gpu_uuid,
                        placement=device.placement,
                        holder=other.user if named else _ANOTHER,
                        since=other.granted_at,
                        lease=other.id if for_operator else None,
                    )
                    for device in other.devices
                    if device.gpu_uuid == facts.gpu.uuid and other.id != lease.id
                ]
            if facts.problem is not None:
                note = facts.problem if for_operator else "out of order"
                found.append(
                    DeviceHold(gpu_uuid=facts.gpu.uuid, placement=None, holder=note, since=None, lease=None)
                )
        return tuple(found[:_MOST])

    async def _helps(self, lease: Lease, rules: Sequence[RuleView]) -> list[str]:
        helps = []
        if not any(rule.rule in _WHATEVER_THE_SIZE for rule in rules):
            helps += [f"{title} could start now." for title in await self._startable(lease)]
        expected = self._history.expected(lease)
        if expected is not None:
            helps.append(f"Going by earlier sessions it starts before {expected.latest:%Y-%m-%d %H:%M} UTC.")
        return helps

    async def _startable(self, lease: Lease) -> list[str]:
        """Titles of the other flavors that would serve this person now; none while their groups, which may
        forbid some, cannot be asked for."""
        titles = []
        snapshot = self._situation.machine().snapshot
        try:
            groups = await self._admission.groups_of(lease.user)
        except BrokerUnavailable:
            return []
        for flavor_id, flavor in self._catalog.flavors.items():
            try:
                request = self._admission.check(lease.user, flavor_id, lease.environment, groups)
            except Refusal:
                continue
            if flavor_id != lease.flavor and (request is None or capacity(request, snapshot)[0] > 0):
                titles.append(flavor.title)
        return titles
