"""What a person chose: strict reading of user_options from the API, the form and the query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from allotment_spawner.core.errors import BadOptions

__all__ = ["KEYS", "Choice", "choice_of", "options_of_form", "remembered"]

KEYS = ("environment", "flavor")
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_HELP = (
    'Choose again, or send {"environment": "minimal", "flavor": "cpu"} with names from the lists of '
    "environments and flavors."
)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Choice:
    """An environment and a flavor by id; None where the person named none."""

    environment: str | None = None
    flavor: str | None = None

    def options(self) -> dict[str, str]:
        """The same as user_options."""
        named = {"environment": self.environment, "flavor": self.flavor}
        return {key: value for key, value in named.items() if value is not None}


def choice_of(options: object, *, also: frozenset[str] = frozenset()) -> Choice:
    """The choice in `options`, which anybody may have written: wrong types and unknown keys are refused.

    `also` names further keys that this site's own `apply_user_options` takes. Raises `BadOptions`.
    """
    if not isinstance(options, Mapping):
        raise BadOptions("The options are not an object of names and values.", _HELP)
    unknown = [key for key in options if key not in KEYS and key not in also]
    if unknown:
        raise BadOptions(f"There is no option called {_shown(unknown[0])}.", _HELP)
    return Choice(environment=_word("environment", options), flavor=_word("flavor", options))


def options_of_form(form: Mapping[str, object]) -> dict[str, object]:
    """user_options of the form or query, whose values are lists of strings; judged later by `choice_of`.

    A single value loses its list, an empty one is dropped, the hub's own `_xsrf` is none of ours.
    """
    options: dict[str, object] = {}
    for key, values in form.items():
        if key == "_xsrf" or values in ([], [""]):
            continue
        options[key] = values[0] if isinstance(values, list) and len(values) == 1 else values
    return options


def remembered(options: object) -> Choice:
    """The stored choice as far as it can be read; an empty one otherwise (never raises)."""
    try:
        known = {key: options[key] for key in KEYS if key in options} if isinstance(options, Mapping) else {}
        return choice_of(known)
    except BadOptions:
        return Choice()


def _word(key: str, options: Mapping[str, object]) -> str | None:
    value = options.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadOptions(f"The {key} must be one name as text, not {_shown(value)}.", _HELP)
    if not _WORD.fullmatch(value):
        raise BadOptions(f"{_shown(value)} cannot be the name of a{'n' * (key[0] in 'aeiou')} {key}.", _HELP)
    return value


def _shown(value: object) -> str:
    """A hostile value in a sentence: one short line of ASCII."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
