"""The form on which a person chooses an environment and a flavor."""

from __future__ import annotations

from allotment_spawner.spawners.form.render import options_form

__all__ = ["options_form"]
