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
_TAG = 500
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
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
        try:
            if offset and tag is not None:
                only = {"Range": f"bytes={offset}-", "If-Range": tag}
                async with self._following(entry.key, headers | only) as answer:
                    rest = _rest(answer, offset, tag)
                    if rest is not None:
                        yield rest
                        return
            async with self._following(entry.key, headers) as answer:
                yield _whole(answer)
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise Transient(type(error).__name__) from error

    @asynccontextmanager
    async def _following(self, url: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        session = await self._files.set_session()
        for _ in range(_HOPS):
            # headers may come a byte at a time, each within the limit for silence
            async with (
                asyncio.timeout(self._silence_s) as limit,
                session.get(url, headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status not in _MOVED:
                    limit.reschedule(None)
                    yield answer
                    return
                url = self._next(url, answer.headers.get("Location", ""))
        raise DatasetUnavailable(
            "The address leads from one to the next without end.", "Ask an operator to correct it."
        )

    def _next(self, url: str, location: str) -> str:
        """A redirect is a new source: what may not be asked may not be led to, nor a secure way left."""
        try:
            joined = urljoin(url, location)
        except ValueError:
            raise DatasetUnavailable(
                "The address leads on to what is no address.", "Ask an operator to correct the source."
            ) from None
        target = parse_source(joined, allow_hosts=self._allow_hosts)
        if target.kind != "http" or (url.startswith("https:") and not target.location.startswith("https:")):
            raise DatasetUnavailable(
                "The address leads on to one without encryption.", "Ask an operator to correct the source."
            )
        return target.location

    async def close(self) -> None:
        session = await self._files.set_session()
        await session.close()


def _rest(answer: aiohttp.ClientResponse, offset: int, tag: str) -> Opened | None:
    """From `offset` on, or None where the file has to be asked for whole: it is another one by now, or the
    server does not say enough to know that the rest belongs to what is here."""
    if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        # all is here already: the fetch was killed after the last byte
        ended = answer.headers.get("Content-Range", "") == f"bytes */{offset}"
        return Opened(offset, offset, tag, _nothing()) if ended and _tag(answer) in (None, tag) else None
    if answer.status != HTTPStatus.PARTIAL_CONTENT:
        return _whole(answer)
    _check_plain(answer)
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    same = _tag(answer) == tag or (_tag(answer) is None and not tag.startswith('"'))
    if found is None or int(found[1]) != offset or not same:
        return None
    return Opened(offset, int(found[2]), tag, answer.content.iter_chunked(CHUNK_BYTES))


def _whole(answer: aiohttp.ClientResponse) -> Opened:
    if answer.status in _BUSY:
        raise Transient(f"HTTP {answer.status}")
    if answer.status != HTTPStatus.OK:
        raise gone(f"it answers HTTP {answer.status}")
    _check_plain(answer)
    return Opened(0, answer.content_length, _tag(answer), answer.content.iter_chunked(CHUNK_BYTES))


def _check_plain(answer: aiohttp.ClientResponse) -> None:
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise DatasetUnavailable(
            "The source packs the data on its way, so that it cannot be checked.",
            "Ask an operator for an address that serves the file as it is.",
        )


async def _nothing() -> AsyncIterator[bytes]:
    for _ in ():
        yield b""


def _tag(answer: aiohttp.ClientResponse) -> str | None:
    """What If-Range takes: a strong ETag, else the date. One that no header can carry is none."""
    etag = answer.headers.get("ETag", "")
    found = etag if etag.startswith('"') else answer.headers.get("Last-Modified", "")
    return found if found and found.isascii() and found.isprintable() and len(found) <= _TAG else None
