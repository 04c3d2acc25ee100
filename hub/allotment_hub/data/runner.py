"""Starts a fetch as a process of its own, listens to it, and ends it when nobody waits any more."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from allotment_spawner.core.errors import DatasetUnavailable, refusal_from_code

from allotment_hub.data.spec import Done, FetchSpec, Manifest, Progress, Refused, read_message

__all__ = ["run_fetch"]

_log = logging.getLogger(__name__)
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CA_BUNDLE")
_NOTHING_ELSE = {
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_LINE_BYTES = 64 * 1024
_TOLD_BYTES = 2000


async def run_fetch(spec: FetchSpec, on_progress: Callable[[Progress], None]) -> Manifest:
    """What was fetched. Raises the `Refusal` that the process told; cancelling ends the process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        "allotment_hub.data.fetch",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
        limit=_LINE_BYTES,
    )
    complaints = asyncio.ensure_future(_tail(process))
    try:
        answer = await _listen(process, spec, on_progress)
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        said = await complaints
    if isinstance(answer, Done):
        return answer.manifest
    if isinstance(answer, Refused):
        raise refusal_from_code(answer.code, answer.sentence, answer.next_step)
    _log.error("a fetch ended without a word", extra={"code": process.returncode, "said": said})
    raise DatasetUnavailable(
        "Bringing the data here broke off.",
        "Try again; tell an operator if it stays: the broker's log says why.",
    )


async def _listen(
    process: asyncio.subprocess.Process, spec: FetchSpec, on_progress: Callable[[Progress], None]
) -> Done | Refused | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(spec.model_dump_json().encode())
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return None
    async for line in process.stdout:
        try:
            message = read_message(line)
        except ValueError:
            continue  # a library's own print
        if not isinstance(message, Progress):
            return message
        on_progress(message)
    return None


async def _tail(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(4096):
        kept = (kept + chunk)[-_TOLD_BYTES:]
    return kept.decode(errors="replace")


def _environment() -> dict[str, str]:
    """Nothing of ours: no proxy, no keys of a cloud, nothing that a library would find by itself."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _NOTHING_ELSE
