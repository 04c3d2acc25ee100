"""What a person chose: strict reading of user_options from the API, the form and links."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from allotment_spawner.core.errors import BadOptions
from allotment_spawner.spawners.doors import APPS, branch_name, inner_path, repository

__all__ = ["KEYS", "Choice", "choice_of", "choice_of_link", "options_of_form", "remembered"]

_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_VERSION = re.compile(r"[0-9a-f]{12}", re.ASCII)
_GROUP = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")
"""Whatever a hub may call a group."""
_HELP = (
    'Choose again, or send {"environment": "minimal", "flavor": "cpu"} with names from the lists of '
    "environments and flavors."
)
_SHOWN = 40
_MOST_DATASETS = 50
_OF_A_VERSION = "version-"
"""Fields of the form: the version of each environment that has several."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What to start, by ids, and what to open; None where the person named none.

    `repo`, `branch` and `urlpath` belong to one start; the rest is offered again the next time.
    """

    environment: str | None = None
    flavor: str | None = None
    version: str | None = None
    datasets: tuple[str, ...] = ()
    charge_to: str | None = None
    app: str | None = None
    repo: str | None = None
    branch: str | None = None
    urlpath: str | None = None

    def options(self) -> dict[str, object]:
        """The same as user_options."""
        named = {key: getattr(self, key) for key in KEYS}
        return {key: list(one) if isinstance(one, tuple) else one for key, one in named.items() if one}

    def lasting(self) -> Choice:
        """What the next form should offer first."""
        return replace(self, repo=None, branch=None, urlpath=None)

    def wants(self) -> dict[str, object]:
        """The part that the broker decides about, as members of a `LeaseRequest`."""
        return {key: value for key, value in self.options().items() if key in _OF_THE_LEASE}


def choice_of(options: object, *, also: frozenset[str] = frozenset()) -> Choice:
    """The choice in `options`, which anybody may have written: wrong types and unknown keys are refused.

    `also` names further keys that this site's own `apply_user_options` takes. Raises `BadOptions`.
    """
    if not isinstance(options, Mapping):
        raise BadOptions("The options are not an object of names and values.", _HELP)
    unknown = [key for key in options if key not in KEYS and key not in also]
    if unknown:
        raise BadOptions(f"There is no option called {_shown(unknown[0])}.", _HELP)
    choice = Choice(**{key: _READ[key](options[key]) for key in KEYS if options.get(key) is not None})
    if choice.branch is not None and choice.repo is None:
        raise BadOptions("A branch was named, but no repository.", "Name the repository, too.")
    return choice


def choice_of_link(query: Mapping[str, object]) -> tuple[Choice, BadOptions | None]:
    """(what a link's `opt-…` parameters ask for, what is wrong with the first of the rest)."""
    options = options_of_form({key[4:]: query[key] for key in query if key.startswith("opt-")})
    good: dict[str, object] = {}
    wrong: BadOptions | None = None
    for key in sorted(options, key=lambda one: KEYS.index(one) if one in KEYS else -1):
        try:
            choice_of({**good, key: options[key]})
            good[key] = options[key]
        except BadOptions as refusal:
            wrong = wrong or refusal
    return choice_of(good), wrong


def options_of_form(form: Mapping[str, object]) -> dict[str, object]:
    """user_options of the form or a link, whose values are lists of strings; judged later by `choice_of`.

    A single value loses its list, an empty one is dropped, the hub's own `_xsrf` is none of ours.
    """
    options: dict[str, object] = {}
    for key, values in form.items():
        if key == "_xsrf" or values in ([], [""]):
            continue
        options[key] = values[0] if isinstance(values, list) and len(values) == 1 else values
    versions = {key: options.pop(key) for key in list(options) if key.startswith(_OF_A_VERSION)}
    version = versions.get(f"{_OF_A_VERSION}{options.get('environment')}")
    return options if version is None else {"version": version, **options}


def remembered(options: object) -> Choice:
    """The stored choice as far as it can be read; an empty one otherwise (never raises)."""
    try:
        known = {key: options[key] for key in KEYS if key in options} if isinstance(options, Mapping) else {}
        return choice_of(known)
    except BadOptions:
        return Choice()


def _word(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadOptions(f"The {key} must be one name as text, not {_shown(value)}.", _HELP)
    if not _WORD.fullmatch(value):
        raise BadOptions(f"{_shown(value)} cannot be the name of a{'n' * (key[0] in 'aeiou')} {key}.", _HELP)
    return value


def _version(value: object) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise BadOptions(
            f"{_shown(value)} is not a version; they are 12 of 0-9 and a-f.",
            "Take one from the list of environments, or leave it away for the one that is offered.",
        )
    return value


def _datasets(value: object) -> tuple[str, ...]:
    """Names in the given order, each once; one may come without a list."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise BadOptions(f"The datasets must be a list of names, not {_shown(value)}.", _HELP)
    if len(names) > _MOST_DATASETS:
        raise BadOptions(f"One session can have at most {_MOST_DATASETS} datasets.", "Choose fewer.")
    return tuple(dict.fromkeys(_word("dataset", one) for one in names))


def _group(value: object) -> str:
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise BadOptions(
            f"{_shown(value)} cannot be the name of a group to charge.",
            "Take one of your groups, or leave it away for the first that can pay.",
        )
    return value


def _app(value: object) -> str:
    if not isinstance(value, str) or value not in APPS:
        raise BadOptions(f"{_shown(value)} is nothing to open.", f"Choose one of {', '.join(APPS)}.")
    return value


def _shown(value: object) -> str:
    """A hostile value in a sentence: one short line of ASCII."""
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_READ: Final[Mapping[str, Callable[[object], Any]]] = {
    "environment": lambda value: _word("environment", value),
    "flavor": lambda value: _word("flavor", value),
    "version": _version,
    "datasets": _datasets,
    "charge_to": _group,
    "app": _app,
    "repo": repository,
    "branch": branch_name,
    "urlpath": inner_path,
}
KEYS: Final = tuple(_READ)
_OF_THE_LEASE: Final = frozenset({"environment", "flavor", "version", "datasets", "charge_to"})
