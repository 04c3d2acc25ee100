"""A report as a file to keep: written whole first, so that nobody ever holds half of one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, Literal, cast
from zoneinfo import ZoneInfo

from allotment_spawner.core.errors import DiskFull
from starlette.responses import StreamingResponse

from allotment_hub.broker.services.usage import Ask, Usage
from allotment_hub.broker.services.usage_files import (
    ENTRY_COLUMNS,
    CsvFile,
    ParquetFile,
    UsageFile,
    entry_cells,
    row_cells,
    row_columns,
)

__all__ = ["MEDIA", "download"]

MEDIA: Final = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_IN_MEMORY_BYTES: Final = 4 * 2**20
_PIECE_BYTES: Final = 2**18


async def download(usage: Usage, ask: Ask, kind: Literal["csv", "parquet"]) -> StreamingResponse:
    """The rows where the report is grouped, else every entry."""
    target = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed when it has been sent
    try:
        with _room():
            await _write(usage, ask, kind, cast(BinaryIO, target))
        size = target.tell()
        target.seek(0)
    except BaseException:
        target.close()
        raise
    zone = ZoneInfo(usage.zone)
    first = ask.wanted.since.astimezone(zone).date()
    last = (ask.wanted.until - timedelta(microseconds=1)).astimezone(zone).date()
    return StreamingResponse(
        _pieces(cast(BinaryIO, target)),
        media_type=MEDIA[kind],
        headers={
            "Content-Disposition": f'attachment; filename="usage-{first}-to-{last}.{kind}"',
            "Content-Length": str(size),
        },
    )


def _pieces(target: BinaryIO) -> Iterator[bytes]:
    """Closed also when who asked is gone before the end."""
    with target:
        while piece := target.read(_PIECE_BYTES):
            yield piece


async def _write(usage: Usage, ask: Ask, kind: Literal["csv", "parquet"], target: BinaryIO) -> None:
    columns = row_columns(ask.group_by) if ask.group_by else ENTRY_COLUMNS
    maker: type[CsvFile | ParquetFile] = CsvFile if kind == "csv" else ParquetFile
    file: UsageFile = await asyncio.to_thread(maker, target, columns)
    if ask.group_by:
        await asyncio.to_thread(file.add, row_cells(await usage.report(ask, limit=1)))
    else:
        async for page in usage.pages(ask):
            await asyncio.to_thread(file.add, [entry_cells(entry) for entry in page])
    await asyncio.to_thread(file.close)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(
            "There is no room for this file on the broker's machine.", "Ask for fewer days, or for JSON."
        ) from error
