"""Writes the dashboard's pages out of what the broker's services answered."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2
from allotment_spawner.wire import EnvironmentView, FlavorView, LeaseView, Problem

from allotment_hub.dashboard import board, machine, words
from allotment_hub.dashboard.spending_page import SpendingPage

__all__ = ["STATIC", "BoardData", "Pages"]

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"


@dataclass(frozen=True, slots=True)
class BoardData:
    """`fleet` is the fleet view as plain data, None for people who are no operators.
    `explanations`: lease id -> explanation (`sentence`, `help`, `rules`) of those that wait, and of the one
    that ended last."""

    leases: Sequence[LeaseView]
    flavors: Sequence[FlavorView]
    environments: Sequence[EnvironmentView]
    explanations: Mapping[str, Any]
    fleet: Mapping[str, Any] | None


class Pages:
    """Every value is escaped; templates hold no script and no style."""

    def __init__(
        self, *, title: str, currency: str, engine: str, simulated: bool, prefix: str, version: str
    ) -> None:
        self._currency = currency
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["utc"] = words.utc
        self._environment.filters["iso"] = _iso
        self._environment.filters["local"] = words.local
        self._environment.filters["last_day"] = words.last_day
        self._environment.globals["site"] = {
            "title": title,
            "engine": engine,
            "simulated": simulated,
            "prefix": prefix,
            "version": version,
        }
        # A server of somebody's on our origin can put its worker between a browser and our files
        # (Service-Worker-Allowed); what it would give out instead of them must not run in our page.
        self._environment.globals["digest"] = {file.name: _digest(file) for file in STATIC.iterdir()}

    def page(self, data: BoardData, *, person: str, csrf: str) -> str:
        """The whole page; `csrf` is what its script sends back in a header."""
        return self._write("page.html", person=person, csrf=csrf, **self._board(data))

    def board(self, data: BoardData) -> str:
        """Only the part that changes."""
        return self._write("board.html", **self._board(data))

    def spending(self, page: SpendingPage, *, person: str) -> str:
        return self._write("spending.html", page=page, person=person)

    def refusal(self, problem: Problem) -> str:
        return self._write("refusal.html", problem=problem, person=None)

    def _board(self, data: BoardData) -> dict[str, Any]:
        return {
            "sessions": board.sessions(
                data.leases,
                flavors=data.flavors,
                environments=data.environments,
                explanations=data.explanations,
                currency=self._currency,
            ),
            "ended": board.ended_sessions(
                data.leases,
                flavors=data.flavors,
                explanations=data.explanations,
                currency=self._currency,
            ),
            "choices": board.choices(data.flavors),
            "machine": data.fleet,
            "gpus": machine.cards(data.fleet) if data.fleet else [],
            "findings": machine.findings(data.fleet) if data.fleet else [],
        }

    def _write(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def _digest(file: Path) -> str:
    """For an `integrity` attribute."""
    return "sha384-" + base64.b64encode(hashlib.sha384(file.read_bytes()).digest()).decode()


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
