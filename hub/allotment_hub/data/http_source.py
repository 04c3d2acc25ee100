"""One file over HTTP, through fsspec's session: resumed by range, redirects checked hop by hop."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin

import aiohttp
from allotment_spawner.core.errors import DatasetUnavailable
from fsspec.implementations.http import HTTPFileSystem

from allotment_hub.data.addresses import parse_source
from allotment_hub.data.sources import CHUNK_BYTES, Entry, Opened, Transient, gone

__all__ = ["HttpSource"]

_HOPS = 8
_MOVED = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class HttpSource:
    """`silence_s`: how long no byte may come before the line counts as broken."""

    def __init__(
        self, url: str, *, file_name: str, allow_hosts: tuple[str, ...] = (), silence_s: float = 60.0
    ) -> None:
        self._url = url
        self._name = file_name
        self._allow_hosts = allow_hosts
        self._silence_s = silence_s
        self._files = HTTPFileSystem(asynchronous=True, get_client=self._client, skip_instance_cache=True)

    async def _client(self, **_options: Any) -> aiohttp.ClientSession:
        """No cookies, no proxy of the environment; names by the system's own look-up at each connection."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=self._silence_s)
        connector = aiohttp.TCPConnector(resolver=aiohttp.ThreadedResolver(), family=socket.AF_UNSPEC)
        return aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    async def entries(self) -> Entry:
        return Entry(key=self._url, name=self._name)

    @asynccontextmanager
    async def open(self, entry: Entry, *, offset: int, tag: str | None) -> AsyncIterator[Opened]:
        headers = {"Accept-Encoding": "identity"}
        if offset and tag is not None:
            headers |= {"Range": f"bytes={offset}-", "If-Range": tag}
        try:
            async with self._following(entry.key, headers) as answer:
                yield self._opened(answer, offset)
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise Transient(type(error).__name__) from error

    @asynccontextmanager
    async def _following(self, url: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        session = await self._files.set_session()
        for _ in range(_HOPS):
            async with session.get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status not in _MOVED:
                    yield answer
                    return
                url = self._next(url, answer.headers.get("Location", ""))
        raise DatasetUnavailable(
            "The address leads from one to the next without end.", "Ask an operator to correct it."
        )

    def _next(self, url: str, location: str) -> str:
        """A redirect is a new source: what may not be asked may not be led to, nor a secure way left."""
        target = parse_source(urljoin(url, location), allow_hosts=self._allow_hosts)
        if target.kind != "http" or (url.startswith("https:") and not target.location.startswith("https:")):
            raise DatasetUnavailable(
                "The address leads on to one without encryption.", "Ask an operator to correct the source."
            )
        return target.location

    def _opened(self, answer: aiohttp.ClientResponse, offset: int) -> Opened:
        status = answer.status
        if status in _BUSY:
            raise Transient(f"HTTP {status}")
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise Transient("the file is shorter than before")
        if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise gone(f"it answers HTTP {status}")
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise DatasetUnavailable(
                "The source packs the data on its way, so that it cannot be checked.",
                "Ask an operator for an address that serves the file as it is.",
            )
        start, total = 0, answer.content_length
        if status == HTTPStatus.PARTIAL_CONTENT:
            start, total = _range(answer.headers.get("Content-Range", ""))
            if start != offset:
                raise gone("it answers with another part than was asked for")
        return Opened(start, total, _tag(answer), answer.content.iter_chunked(CHUNK_BYTES))

    async def close(self) -> None:
        session = await self._files.set_session()
        await session.close()


def _tag(answer: aiohttp.ClientResponse) -> str | None:
    """What If-Range takes: a strong ETag, else the date."""
    etag = answer.headers.get("ETag", "")
    if etag.startswith('"'):
        return etag
    return answer.headers.get("Last-Modified")


def _range(header: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", header)
    if found is None:
        raise gone("it answers with a range that cannot be read")
    return int(found[1]), None if found[2] == "*" else int(found[2])
