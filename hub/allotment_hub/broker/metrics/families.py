"""Families of Prometheus metrics, without any value that is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Spec", "counter", "families", "gauge"]

T = TypeVar("T")
Labelled = tuple[Sequence[str], T]
"""(values of the labels, what is measured)."""


@dataclass(frozen=True, slots=True)
class Spec(Generic[T]):
    """One metric of each `T`; `of` gives its value in base units, None where it is unknown."""

    name: str
    help: str
    of: Callable[[T], float | None]
    kind: Literal["gauge", "counter"] = "gauge"


def families(specs: Iterable[Spec[T]], labels: Sequence[str], found: Sequence[Labelled[T]]) -> list[Metric]:
    """What is unknown has no sample: never 0."""
    return [
        _family(
            spec.kind,
            spec.name,
            spec.help,
            labels,
            [(values, value) for values, one in found if (value := spec.of(one)) is not None],
        )
        for spec in specs
    ]


def gauge(name: str, help_: str, labels: Sequence[str], found: Iterable[Labelled[float]]) -> Metric:
    return _family("gauge", name, help_, labels, found)


def counter(name: str, help_: str, labels: Sequence[str], found: Iterable[Labelled[float]]) -> Metric:
    """`name` ends in _total."""
    return _family("counter", name, help_, labels, found)


def _family(
    kind: str, name: str, help_: str, labels: Sequence[str], found: Iterable[Labelled[float]]
) -> Metric:
    made: GaugeMetricFamily | CounterMetricFamily
    if kind == "gauge":
        made = GaugeMetricFamily(name, help_, labels=labels)
    else:
        made = CounterMetricFamily(name, help_, labels=labels)
    for values, value in found:
        made.add_metric(values, value)
    return made
