"""Start servers through a hub's REST API, measure request to ready, and stop them again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

__all__ = ["HubUnderTest", "at_once", "one_after_the_other"]

LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class HubUnderTest:
    """A hub that listens at `url` (without a trailing slash); `options` go with each start."""

    name: str
    url: str
    token: str
    options: Mapping[str, str]

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"token {self.token}"}
        return httpx.Client(base_url=f"{self.url}/hub/api", headers=headers, timeout=LIMIT_S, trust_env=False)

    def add_people(self, names: Sequence[str]) -> None:
        with self.client() as client:
            for name in names:
                answer = client.post(f"/users/{name}")
                if answer.status_code != 409:  # there already
                    answer.raise_for_status()


def one_after_the_other(hub: HubUnderTest, people: Sequence[str]) -> list[float]:
    """Seconds from request to ready, one person after the other; each server is stopped before the next."""
    seconds = []
    with hub.client() as client:
        for person in people:
            seconds.append(_start(client, person, hub.options))
            _stop(client, [person])
    return seconds


def at_once(hub: HubUnderTest, people: Sequence[str]) -> list[float]:
    """Seconds from the common request to ready, of each person, all asked for at the same moment."""
    with hub.client() as client:
        with ThreadPoolExecutor(len(people)) as pool:
            seconds = list(pool.map(lambda person: _start(client, person, hub.options), people))
        _stop(client, people)
    return seconds


def _start(client: httpx.Client, person: str, options: Mapping[str, str]) -> float:
    began = time.monotonic()
    answer = client.post(f"/users/{person}/server", json={"user_options": dict(options)})
    answer.raise_for_status()
    if answer.status_code != 201:
        _wait_until_ready(client, person)
    return time.monotonic() - began


def _wait_until_ready(client: httpx.Client, person: str) -> None:
    """The hub's own progress stream: it says ready at the moment, without polling from our side."""
    with client.stream("GET", f"/users/{person}/server/progress") as stream:
        stream.raise_for_status()
        for line in stream.iter_lines():
            if not line.startswith("data:"):
                continue
            event = json.loads(line.removeprefix("data:"))
            if event.get("ready"):
                return
            if event.get("failed"):
                raise RuntimeError(f"{person}: {event.get('message')}")
    raise RuntimeError(f"{person}: the progress stream ended before the server was ready")


def _stop(client: httpx.Client, people: Sequence[str]) -> None:
    """Return once no server of these people is left, so that the next round starts on an idle machine."""
    with ThreadPoolExecutor(len(people)) as pool:
        for answer in pool.map(lambda person: client.delete(f"/users/{person}/server"), people):
            answer.raise_for_status()
    deadline = time.monotonic() + LIMIT_S
    for person in people:
        while client.get(f"/users/{person}").raise_for_status().json()["servers"]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{person}: the server did not stop")
            time.sleep(0.1)
