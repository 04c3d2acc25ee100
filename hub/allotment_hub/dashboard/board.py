"""What the dashboard shows of a person's sessions and choices, ready to be written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from allotment_spawner.core.lease import LIVE, LeaseState
from allotment_spawner.wire import DeviceView, EnvironmentView, FlavorView, LeaseView

from allotment_hub.dashboard.words import END_WORDS, STATE_WORDS, gigabytes, money, price, server_label, wait

__all__ = ["Choice", "EndedSession", "Session", "choices", "ended_sessions", "sessions"]


@dataclass(frozen=True, slots=True)
class Session:
    """One session of the person. `devices`: (what, where). `action` is what its button says, None when
    there is nothing to do."""

    lease: str
    server: str
    flavor: str
    environment: str
    state: str
    state_word: str
    place: int | None
    earliest: datetime | None
    latest: datetime | None
    devices: tuple[tuple[str, str], ...]
    since: datetime | None
    price: str
    cost: str | None
    link: str
    link_word: str | None
    action: str | None
    why: str | None
    helps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndedSession:
    server: str
    flavor: str
    ended: datetime | None
    reason: str
    cost: str | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """One flavor. `share` is the used part in twelfths of a bar, None where nothing is counted."""

    id: str
    title: str
    resources: str
    count: str
    used: int | None
    state: str
    price: str
    reason: str | None
    wait: str | None


def sessions(
    leases: Sequence[LeaseView],
    *,
    flavors: Sequence[FlavorView],
    environments: Sequence[EnvironmentView],
    explanations: Mapping[str, Any],
    currency: str,
) -> list[Session]:
    """Those that are not over, in the given order. `explanations`: lease id -> its explanation."""
    titles = {one.id: one.title for one in flavors} | {f"env:{one.id}": one.title for one in environments}
    return [
        _session(lease, titles, explanations.get(lease.id), currency)
        for lease in leases
        if lease.state is not LeaseState.ENDED
    ]


def _session(lease: LeaseView, titles: Mapping[str, str], why: Any, currency: str) -> Session:
    waiting = lease.state in (LeaseState.QUEUED, LeaseState.GRANTED)
    words = {LeaseState.ACTIVE: ("Open", "Stop"), LeaseState.ENDING: (None, None)}
    link_word, action = words.get(lease.state, ("Watch it start", "Cancel"))
    expected = lease.expected_start
    return Session(
        lease=lease.id,
        server=server_label(lease.server),
        flavor=titles.get(lease.flavor, lease.flavor),
        environment=titles.get(f"env:{lease.environment}", lease.environment),
        state=lease.state.value,
        state_word=STATE_WORDS[lease.state],
        place=lease.place,
        earliest=expected.earliest if expected else None,
        latest=expected.latest if expected else None,
        devices=tuple(_device(device) for device in lease.devices),
        since=lease.active_at or lease.granted_at,
        price=price(lease.price_per_hour, currency),
        cost=_cost(lease, currency),
        link=_link(lease, pending=waiting),
        link_word=link_word,
        action=action if lease.state in LIVE else None,
        why=why.sentence if why is not None else None,
        helps=tuple(why.help) if why is not None else (),
    )


def _cost(lease: LeaseView, currency: str) -> str | None:
    """So far and in all, and who pays; None before there is any."""
    if lease.cost is None:
        return None
    whose = f", charged to {lease.charged_to}" if lease.charged_to else ""
    return f"{money(lease.cost)} {lease.currency or currency}{whose}"


def _device(device: DeviceView) -> tuple[str, str]:
    """What it is, and where."""
    return device.profile or "whole GPU", f"{device.gpu_uuid[:12]}, {device.node}"


def _link(lease: LeaseView, *, pending: bool) -> str:
    user, server = quote(lease.user, safe=""), quote(lease.server, safe="")
    if pending:
        return f"/hub/spawn-pending/{user}" + (f"/{server}" if server else "")
    return f"/user/{user}/" + (f"{server}/" if server else "")


def ended_sessions(
    leases: Sequence[LeaseView],
    *,
    flavors: Sequence[FlavorView],
    explanations: Mapping[str, Any],
    currency: str,
    limit: int = 5,
) -> list[EndedSession]:
    """The newest. `explanations`: lease id -> its explanation, of those for which it was asked."""
    titles = {one.id: one.title for one in flavors}
    over = [lease for lease in leases if lease.state is LeaseState.ENDED][:limit]
    return [
        EndedSession(
            server=server_label(lease.server),
            flavor=titles.get(lease.flavor, lease.flavor),
            ended=lease.ended_at,
            reason="unknown" if lease.end_reason is None else END_WORDS[lease.end_reason],
            cost=_cost(lease, currency),
            why=_more(explanations.get(lease.id)),
        )
        for lease in over
    ]


def _more(explanation: Any) -> str | None:
    """What it says beyond the reason itself: the first rule is that reason."""
    return explanation.rules[-1].sentence if explanation is not None and explanation.rules[1:] else None


def choices(flavors: Sequence[FlavorView]) -> list[Choice]:
    return [_choice(flavor) for flavor in flavors]


def _choice(flavor: FlavorView) -> Choice:
    state, count, used = "free", "", None
    if flavor.free is not None and flavor.total is not None:
        count = f"{flavor.free} of {flavor.total} free"
        used = 12 if flavor.total == 0 else round(12 * (flavor.total - flavor.free) / flavor.total)
        state = "free" if flavor.free > 0 else "taken"
    reason = flavor.reason
    if not flavor.available:
        state, count = "unavailable", ""
    elif flavor.quote and flavor.quote.refusal:
        # a device may be free, but not for this person
        state, reason = "unavailable", flavor.quote.refusal
    return Choice(
        id=flavor.id,
        title=flavor.title,
        resources=_resources(flavor.resources),
        count=count or ("always free" if state == "free" else ""),
        used=used,
        state=state,
        price=price(flavor.quote.price_per_hour if flavor.quote else flavor.price_per_hour, flavor.currency),
        reason=reason,
        wait=wait(flavor.expected_wait_s),
    )


def _resources(resources: Mapping[str, Any]) -> str:
    gpu = resources.get("gpu")
    parts = []
    if isinstance(gpu, dict) and gpu.get("kind") not in (None, "none"):
        count = gpu.get("count") or 1
        other = "slice of a GPU" if gpu["kind"] == "slice" else f"whole GPU{'' if count == 1 else 's'}"
        what = gpu.get("profile") or other
        size = gigabytes(gpu.get("memory_bytes"))
        many = f"{count} × " if count != 1 else ""
        parts.append(f"{many}{what}" + (f" ({size})" if size else ""))
    cpu = resources.get("cpu")
    if isinstance(cpu, int | float):
        parts.append(f"{cpu:g} CPU{'' if cpu == 1 else 's'}")
    memory = gigabytes(resources.get("memory_bytes"))
    if memory:
        parts.append(f"{memory} memory")
    return " · ".join(parts)
