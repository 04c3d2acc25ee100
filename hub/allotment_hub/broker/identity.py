"""Who calls: a person, a service that acts for people, or nobody we know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from allotment_spawner.core.errors import NotAllowed

__all__ = ["ACCESS_SCOPES", "ACT_AS_SCOPE", "Caller", "caller_of", "may_read_metrics"]

ACT_AS_SCOPE: Final = "custom:allotment:act-as"
ACCESS_SCOPES: Final = frozenset({"access:services", "access:services!service=allotment"})
READ_METRICS: Final = "read:metrics"
"""JupyterHub's own scope for its `/hub/metrics`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. A service's name is never taken for a person's of the same name.

    `act_as`: may make and steer leases for anybody (the hub's spawners).
    `operator`: hub admin or member of the operators' group; only people are operators.
    """

    name: str
    kind: Literal["person", "service"]
    act_as: bool = False
    operator: bool = False
    groups: frozenset[str] = frozenset()

    @property
    def person(self) -> str | None:
        """The person's name; None for services."""
        return self.name if self.kind == "person" else None


def may_read_metrics(model: Mapping[str, Any]) -> bool:
    """Whether this token was made for monitoring; it needs no other right."""
    return READ_METRICS in (model.get("scopes") or ())


def caller_of(model: Mapping[str, Any], *, operators_group: str) -> Caller:
    """The caller in the hub's answer to `GET /hub/api/user`; raises `NotAllowed` without the access scope."""
    scopes = frozenset(str(scope) for scope in model.get("scopes") or ())
    if not scopes & ACCESS_SCOPES:
        raise NotAllowed(
            "This token may not use Allotment.",
            "Make a token with the scope access:services!service=allotment, or use your server's own token.",
        )
    groups = frozenset(str(group) for group in model.get("groups") or ())
    name = str(model["name"])
    if model.get("kind") == "service":
        return Caller(name=name, kind="service", act_as=ACT_AS_SCOPE in scopes)
    operator = model.get("admin") is True or operators_group in groups
    return Caller(name=name, kind="person", operator=operator, groups=groups)
