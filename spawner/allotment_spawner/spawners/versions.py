"""Which versions of an environment a person may take, and what a newer one changes, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allotment_spawner.wire import EnvironmentView, VersionView

__all__ = ["version_options"]

_CHANGES_SHOWN = 4


def version_options(environment: EnvironmentView, wanted: str | None) -> dict[str, Any] | None:
    """{"news": sentence or None, "options": [{"value", "title", "text", "checked"}]}; None without a choice.

    `wanted` is the version that ran last, or that a link names. It stays chosen while it can start: a
    newer one is offered, not forced. The empty value is whichever is offered when the server starts.
    """
    offered = next((one for one in environment.versions if one.state == "offered"), None)
    kept = [one for one in environment.versions if one.state == "kept"]
    theirs = next((one for one in environment.versions if one.version == wanted), None)
    gone = theirs is not None and theirs.state == "retired"
    if offered is None or not (kept or gone):
        return None
    stays = theirs if theirs in kept else None
    options = [_option(offered, value="", title="Newest", since=stays, checked=stays is None)]
    for one in kept:
        title = "The one you used last" if one is stays else "Earlier"
        options.append(_option(one, value=one.version, title=title, checked=one is stays))
    return {"news": _news(stays, theirs if gone else None), "options": options}


def _news(stays: VersionView | None, gone: VersionView | None) -> str | None:
    if stays is not None:
        return "A newer version is here. You keep yours until you choose the new one."
    if gone is not None:
        return f"The version that you used last ({gone.label}) was retired; the newest one replaces it."
    return None


def _option(
    one: VersionView, *, value: str, title: str, checked: bool, since: VersionView | None = None
) -> dict[str, Any]:
    made = "" if one.made_at is None else f" of {one.made_at:%Y-%m-%d}"
    return {
        "value": value,
        "title": title,
        "text": f"{one.label}{made}",
        "changes": "" if since is None else _changes(since.packages, one.packages),
        "checked": checked,
    }


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """ "torch 2.12.0 → 2.13.0, numpy new"; empty when the shown packages are the same."""
    said = [
        f"{name} {before[name]} → {version}" if name in before else f"{name} {version} new"
        for name, version in sorted(after.items())
        if before.get(name) != version
    ]
    said += [f"{name} no more" for name in sorted(before) if name not in after]
    more = len(said) - _CHANGES_SHOWN
    return ", ".join(said[:_CHANGES_SHOWN]) + (f" and {more} more" if more > 0 else "")
