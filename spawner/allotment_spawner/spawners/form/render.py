"""The form's HTML from the broker's lists, or a page that says why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jupyterhub.utils import url_path_join
from markupsafe import Markup, escape

from allotment_spawner.core.errors import BadOptions, Refusal
from allotment_spawner.spawners.choices import choices_for, preselected
from allotment_spawner.spawners.link_page import asked_by
from allotment_spawner.spawners.options import Choice

__all__ = ["TEMPLATES", "options_form"]

TEMPLATES = Path(__file__).parent / "templates"
_PACKAGES_SHOWN = 4
_templates = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def _coded(text: object) -> Markup:
    """`command` in a sentence of the broker's as code; all else escaped."""
    parts = [escape(part) for part in str(text).split("`")]
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(one) if at % 2 else one for at, one in enumerate(parts)
    )


_templates.filters["coded"] = _coded


async def options_form(spawner: Any) -> str:
    """`Spawner.options_form`: complete without JavaScript; form.js keeps its numbers live."""
    asked, wrong = asked_by(spawner.handler)
    wanted = _over(spawner.last_choice(), asked)
    try:
        choices = await choices_for(spawner.hub_side.broker, spawner.user.name, last=wanted)
    except Refusal as refusal:
        spawner.log.warning("No form for %s: %s", spawner.user.name, refusal.code)
        return _templates.get_template("allotment/no_form.html").render(refusal=refusal)
    selected = preselected(choices, wanted)
    return _templates.get_template("allotment/form.html").render(
        choices=choices,
        selected=selected,
        link=_link(asked, wrong, choices, selected) if _is_link(spawner.handler) else None,
        descriptions=spawner.flavor_descriptions,
        spending=url_path_join(spawner.user.settings.get("base_url", "/"), "services/allotment/usage"),
        packages_shown=_PACKAGES_SHOWN,
    )


def _is_link(handler: Any) -> bool:
    """A form that was sent and is shown again has no link in it."""
    return handler is not None and handler.request.method == "GET"


def _over(last: Choice, asked: Choice) -> Choice:
    """`asked`, and the last choice where it names nothing; never the version of another environment."""
    version = asked.version or (last.version if asked.environment in (None, last.environment) else None)
    return replace(
        asked,
        environment=asked.environment or last.environment,
        flavor=asked.flavor or last.flavor,
        version=version,
        datasets=asked.datasets or last.datasets,
        charge_to=asked.charge_to or last.charge_to,
        app=asked.app or last.app,
    )


def _link(
    asked: Choice, wrong: BadOptions | None, choices: Mapping[str, Any], selected: Mapping[str, Any]
) -> dict[str, Any] | None:
    """{"repo", "problems": sentences}: what a link brought that a person should know before the click."""
    problems = [] if wrong is None else [f"{wrong.sentence} {wrong.next_step}"]
    for kind, offered in (("environment", choices["environments"]), ("flavor", choices["flavors"])):
        name = getattr(asked, kind)
        if name is not None and name != selected[kind]:
            found = next((one for one in offered if one["id"] == name), None)
            problems.append(f"The link asks for {name}: {_why_not(found, choices, selected)}")
    if asked.charge_to and asked.charge_to not in (selected["charge_to"], *choices["charge_to"]):
        problems.append(f"The link charges {asked.charge_to}, which is not yours to choose here.")
    missing = [name for name in asked.datasets if name not in selected["datasets"]]
    if missing:
        problems.append(f"The link asks for data that is not offered to you here: {', '.join(missing)}.")
    return {"repo": asked.repo, "problems": problems} if asked.repo or problems else None


def _why_not(found: Mapping[str, Any] | None, choices: Mapping[str, Any], selected: Mapping[str, Any]) -> str:
    if found is None:
        return "it is not offered to you here."
    chosen = [one["reasons"] for one in choices["environments"] if one["id"] == selected["environment"]]
    together = chosen[0].get(found["id"]) if chosen else None
    return str(found["reason"] or together or "it is not available.")
