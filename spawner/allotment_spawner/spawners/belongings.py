"""A person's home, shared folders and data, as the form shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from pydantic import ValidationError

from allotment_spawner.core.errors import Refusal
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.wire import DatasetView, HomeView, MountView

__all__ = ["belongings_of", "bytes_in_words", "dataset_line", "home_line"]

T = TypeVar("T")
_STEPS = ("bytes", "kB", "MB", "GB", "TB", "PB")


async def belongings_of(broker: BrokerClient, user: str) -> dict[str, Any]:
    """{"home", "mounts", "datasets", "closed"}; None where the broker cannot tell.

    `closed` is why nothing new is started at all. What is missing here must not keep anybody from
    starting, so no refusal leaves this function.
    """
    home, mounts, datasets, starts = await asyncio.gather(
        _known(broker.home(user)),
        _known(broker.mounts(user)),
        _known(broker.datasets(user)),
        _known(broker.starts()),
    )
    return {
        "closed": None if starts is None else starts.reason,
        "home": None if home is None else {**home.model_dump(mode="json"), **home_line(home)},
        "mounts": None if mounts is None else [_mount(one) for one in mounts],
        "datasets": None if datasets is None else [_dataset(one) for one in datasets],
    }


def home_line(home: HomeView) -> dict[str, Any]:
    """{"percent": 0-100 or None, "line": sentence}."""
    if home.used_bytes is None:
        return {"percent": None, "line": "How full your home is, is not known yet."}
    files = "" if home.files is None else f", {home.files:,} file{'s' * (home.files != 1)}"
    used = bytes_in_words(home.used_bytes)
    if not home.limit_bytes:
        return {"percent": None, "line": f"{used} used{files}."}
    percent = min(100, round(100 * home.used_bytes / home.limit_bytes))
    return {
        "percent": percent,
        "line": f"{used} of {bytes_in_words(home.limit_bytes)} used ({percent} %){files}.",
    }


def dataset_line(data: DatasetView) -> str:
    """ "Ready · 1.2 GB", "Fetched before your session starts · 1.2 GB", or why it failed."""
    size = "" if data.size_bytes is None else f" · {bytes_in_words(data.size_bytes)}"
    if data.state == "ready":
        return f"Ready{size}"
    if data.state == "failed":
        return data.reason or "It could not be fetched."
    if data.state == "absent":
        return f"Fetched before your session starts{size}"
    if data.got_bytes is None:
        return f"Being fetched{size}"
    if not data.size_bytes:
        return f"Being fetched: {bytes_in_words(data.got_bytes)} so far"
    return f"Being fetched: {min(100, round(100 * data.got_bytes / data.size_bytes))} %{size}"


def bytes_in_words(count: int) -> str:
    """ "1.5 GB", in steps of 1024 as everywhere on the form."""
    value, step = float(count), 0
    while value >= 1024 and step < len(_STEPS) - 1:
        value, step = value / 1024, step + 1
    digits = 1 if step and value < 100 else 0
    return f"{value:.{digits}f}".removesuffix(".0") + f" {_STEPS[step]}"


def _mount(one: MountView) -> dict[str, Any]:
    return {**one.model_dump(mode="json"), "rights": "you can write" if one.writable else "read only"}


def _dataset(one: DatasetView) -> dict[str, Any]:
    return {**one.model_dump(mode="json"), "line": dataset_line(one)}


async def _known(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except (Refusal, ValidationError):
        return None
