"""A server that wishes us ill, and a kill after the last byte: told in words, never stuck, never mixed."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.data.fetch import fetch
from allotment_hub.data.spec import FetchSpec, Manifest
from allotment_spawner.core.errors import DatasetUnavailable, Refusal
from allotment_testing.fetch_spec import fetch_spec

BODY = os.urandom(300_000)


def spec(folder: Path, port: int, **more: Any) -> FetchSpec:
    return fetch_spec(folder, f"http://127.0.0.1:{port}/one.bin", allow_hosts=(f"127.0.0.1:{port}",), **more)


async def fetched(told: FetchSpec) -> Manifest:
    """In this process: what the fetch's own would only tell as a traceback fails here."""
    return await fetch(told)


class Answers:
    """What the server heard, and how it answers: `say` gets (number of the request, its headers)."""

    def __init__(self, say: Callable[[int, dict[str, str]], bytes | list[bytes]]) -> None:
        self._say = say
        self.asked: list[dict[str, str]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:]
        headers = dict(line.lower().split(": ", 1) for line in head if ": " in line)
        self.asked.append(headers)
        said = self._say(len(self.asked), headers)
        try:
            for piece in [said] if isinstance(said, bytes) else said:
                writer.write(piece)
                await writer.drain()
                if not isinstance(said, bytes):
                    await asyncio.sleep(0.1)
        except OSError:
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[int]:
    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def ok(body: bytes, *headers: str) -> bytes:
    head = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def part(body: bytes, start: int, *headers: str) -> bytes:
    told = f"Content-Range: bytes {start}-{len(body) - 1}/{len(body)}"
    head = ["HTTP/1.1 206 Partial", f"Content-Length: {len(body) - start}", told, *headers, "", ""]
    return "\r\n".join(head).encode("latin-1") + body[start:]


def not_more(body: bytes) -> bytes:
    return f"HTTP/1.1 416 No\r\nContent-Range: bytes */{len(body)}\r\nContent-Length: 0\r\n\r\n".encode()


def as_servers_do(body: bytes) -> Callable[[int, dict[str, str]], bytes]:
    """RFC 9110: a range that begins at the end cannot be satisfied."""

    def say(_number: int, headers: dict[str, str]) -> bytes:
        start = int(headers.get("range", "bytes=0-")[6:-1])
        if start >= len(body):
            return not_more(body)
        return part(body, start, 'ETag: "a"') if start else ok(body, 'ETag: "a"')

    return say


def left_by_a_kill(folder: Path, got: bytes, tag: str = '"a"') -> None:
    """All came, and the process died before it was named or unpacked."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "part").write_bytes(got)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (work / "part.json").write_text(json.dumps({"tag": tag, "boot": boot, "synced": len(got)}))


def packed() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        member = tarfile.TarInfo("a.txt")
        member.size = len(BODY)
        tar.addfile(member, io.BytesIO(BODY))
    return whole.getvalue()


@pytest.mark.parametrize("unpack", [False, True])
async def test_killed_after_the_last_byte_it_is_finished_by_the_next(tmp_path: Path, unpack: bool) -> None:
    """Unpacking takes minutes: a restart of the broker hits it often."""
    body = packed()
    left_by_a_kill(tmp_path, body)
    answers = Answers(as_servers_do(body))
    async with serving(answers) as port:
        manifest = await fetched(spec(tmp_path, port, unpack=unpack))
    assert manifest.checksum == hashlib.sha256(body).hexdigest()
    assert len(answers.asked) == 1


async def test_a_file_that_became_shorter_begins_anew(tmp_path: Path) -> None:
    """The server does not look at If-Range."""
    left_by_a_kill(tmp_path, BODY * 2)
    async with serving(Answers(as_servers_do(BODY))) as port:
        assert (await fetched(spec(tmp_path, port))).checksum == hashlib.sha256(BODY).hexdigest()


async def test_a_part_of_another_version_is_not_mixed_in(tmp_path: Path) -> None:
    """Many servers do not know If-Range: they send the rest of whatever is there now, with its own tag."""
    left_by_a_kill(tmp_path, b"old" * 1000)

    def say(_number: int, headers: dict[str, str]) -> bytes:
        start = int(headers.get("range", "bytes=0-")[6:-1])
        return part(BODY, start, 'ETag: "new"') if start else ok(BODY, 'ETag: "new"')

    async with serving(Answers(say)) as port:
        assert (await fetched(spec(tmp_path, port))).checksum == hashlib.sha256(BODY).hexdigest()


async def test_a_part_of_unknown_length_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    left_by_a_kill(tmp_path, BODY[:1000])

    def say(number: int, headers: dict[str, str]) -> bytes:
        start = int(headers.get("range", "bytes=0-")[6:-1])
        if number == 1:
            head = f'HTTP/1.1 206 Partial\r\nContent-Range: bytes {start}-{start + 99}/*\r\nETag: "a"\r\n'
            return (head + "Content-Length: 100\r\n\r\n").encode() + BODY[start : start + 100]
        return part(BODY, start, 'ETag: "a"') if start else ok(BODY, 'ETag: "a"')

    async with serving(Answers(say)) as port:
        assert (await fetched(spec(tmp_path, port))).checksum == hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize("tag", ['"\xff\xfe"', '"' + "x" * 5000 + '"', '"a\tb"', "\xff"])
async def test_a_tag_that_no_header_can_carry_is_none(tmp_path: Path, tag: str) -> None:
    def say(number: int, _headers: dict[str, str]) -> bytes:
        whole = ok(BODY, f"ETag: {tag}")
        return whole[:-1000] if number == 1 else whole

    answers = Answers(say)
    async with serving(answers) as port:
        assert (await fetched(spec(tmp_path, port))).checksum == hashlib.sha256(BODY).hexdigest()
    assert len(answers.asked) == 2


@pytest.mark.parametrize(
    "where", ["http://[", "http://[::1", "//", "\xff\xfe", "http://a:99999/", "http:///x", ""]
)
async def test_a_redirect_to_what_is_no_address_is_told_in_words(tmp_path: Path, where: str) -> None:
    def say(number: int, _headers: dict[str, str]) -> bytes:
        return f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")

    async with serving(Answers(say)) as port:
        with pytest.raises(Refusal) as refused:
            await fetched(spec(tmp_path, port))
    assert refused.value.code in ("dataset_unavailable", "address_not_allowed")


@pytest.mark.parametrize("where", ["headers", "body", "answers"])
async def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for(tmp_path: Path, where: str) -> None:
    """Each byte comes within the limit for silence, so only a limit for the whole ends it."""
    begin = {
        "headers": b"HTTP/1.1 200 OK\r\nX-Long: ",
        "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        "answers": b"",
    }[where]
    more = b"HTTP/1.1 100 Continue\r\n\r\n" if where == "answers" else b"x"

    def say(_number: int, _headers: dict[str, str]) -> list[bytes]:
        return [begin] + [more] * 300

    async with serving(Answers(say)) as port, asyncio.timeout(25):
        with pytest.raises(DatasetUnavailable, match="again and again"):
            await fetched(spec(tmp_path, port, silence_s=0.2))
