"""The form's HTML from the broker's lists, or a page that says why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from allotment_spawner.core.errors import Refusal
from allotment_spawner.spawners.choices import choices_for, preselected

__all__ = ["TEMPLATES", "options_form"]

TEMPLATES = Path(__file__).parent / "templates"
_PACKAGES_SHOWN = 4
_templates = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


async def options_form(spawner: Any) -> str:
    """`Spawner.options_form`: complete without JavaScript; form.js keeps its numbers live."""
    try:
        choices = await choices_for(spawner.hub_side.broker, spawner.user.name)
    except Refusal as refusal:
        spawner.log.warning("No form for %s: %s", spawner.user.name, refusal.code)
        return _templates.get_template("allotment/no_form.html").render(refusal=refusal)
    return _templates.get_template("allotment/form.html").render(
        choices=choices,
        selected=preselected(choices, spawner.last_choice()),
        descriptions=spawner.flavor_descriptions,
        packages_shown=_PACKAGES_SHOWN,
    )
