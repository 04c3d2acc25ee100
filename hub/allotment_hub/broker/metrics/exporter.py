"""Asks the DCGM exporter that site.yaml names, with bounds on time and size, and fills gaps with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import httpx
from allotment_spawner.core.errors import ExporterUnavailable
from allotment_spawner.core.inventory import NodeInventory
from allotment_spawner.core.samples import DeviceSample

from allotment_hub.broker.metrics.dcgm import filled, readings

__all__ = ["DcgmExporter"]

_MOST_BYTES = 4 << 20
_NEXT = "Compare metrics.dcgm_url in site.yaml with where the DCGM exporter listens."


class DcgmExporter:
    """One URL, never another one: redirects and proxies of the environment are not followed.

    `inventory` gives what the agent said last, by which rows of the page become our devices.
    """

    def __init__(
        self,
        *,
        url: str,
        inventory: Callable[[], NodeInventory | None],
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = 2.0,
    ) -> None:
        self._url = url
        self._inventory = inventory
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            transport=transport,
            timeout=httpx.Timeout(timeout_s),
            limits=httpx.Limits(max_connections=1),
            # A compressed page could unpack to anything.
            headers={"Accept": "text/plain", "Accept-Encoding": "identity"},
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def fill_in(self, samples: Sequence[DeviceSample]) -> Mapping[str, DeviceSample]:
        """The samples that the exporter could tell more of, by device UUID. ExporterUnavailable."""
        inventory = self._inventory()
        if inventory is None or not samples:
            return {}
        page = await self._page()
        # A page of a large node is some thousand lines; nobody else waits for that.
        told = await asyncio.to_thread(readings, page, inventory)
        changed = {s.device_uuid: filled(s, told[s.device_uuid]) for s in samples if s.device_uuid in told}
        return {s.device_uuid: changed[s.device_uuid] for s in samples if changed.get(s.device_uuid, s) != s}

    async def _page(self) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read()
        except TimeoutError:
            raise _unavailable(f"did not answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _unavailable(f"cannot be asked: {type(error).__name__}") from error

    async def _read(self) -> str:
        async with self._http.stream("GET", self._url) as reply:
            if reply.status_code != httpx.codes.OK:
                raise _unavailable(f"answered {reply.status_code}")
            if reply.headers.get("Content-Encoding", "identity") != "identity":
                raise _unavailable("sent a compressed page that was not asked for")
            page = bytearray()
            async for part in reply.aiter_raw():
                page += part
                if len(page) > _MOST_BYTES:
                    raise _unavailable(f"sent more than {_MOST_BYTES >> 20} MiB")
        return page.decode("utf-8", "replace")


def _unavailable(what: str) -> ExporterUnavailable:
    return ExporterUnavailable(f"The DCGM exporter {what}.", _NEXT)
