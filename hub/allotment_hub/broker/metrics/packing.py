"""Rows of whole numbers as few bytes: columns of differences, squeezed; None is kept apart from 0."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

__all__ = ["Unreadable", "pack", "unpack"]

_ABSENT: Final = 0
_CONSTANT: Final = 1
_CHANGING: Final = 2
_PLAIN: Final = 0
_SQUEEZED: Final = 1
_MOST_ROWS: Final = 100_000


class Unreadable(ValueError):
    """These bytes are not what `pack` made."""


Row = Sequence[int | None]


def pack(rows: Sequence[Row]) -> bytes:
    """Rows of one length, at least one, each led by its own number (such as the minute of the hour)."""
    out = bytearray()
    _put(out, len(rows))
    _put(out, len(rows[0]))
    for column in zip(*rows, strict=True):
        _pack_column(out, column)
    squeezed = zlib.compress(bytes(out), 9)
    if len(squeezed) < len(out):
        return bytes([_SQUEEZED]) + squeezed
    return bytes([_PLAIN]) + zlib.adler32(out).to_bytes(4, "big") + out


def unpack(packed: bytes) -> list[tuple[int | None, ...]]:
    """The rows; `Unreadable` when a byte has changed."""
    data = _opened(packed)
    try:
        count, at = _take(data, 0)
        width, at = _take(data, at)
        if not 0 < count <= _MOST_ROWS or not 0 < width <= _MOST_ROWS:
            raise Unreadable("sizes out of range")
        columns = []
        for _ in range(width):
            column, at = _unpack_column(data, at, count)
            columns.append(column)
    except IndexError as error:
        raise Unreadable("it ends too early") from error
    return list(zip(*columns, strict=True))


def _opened(packed: bytes) -> bytes:
    if packed[:1] == bytes([_SQUEEZED]):
        try:
            return zlib.decompress(packed[1:])
        except zlib.error as error:
            raise Unreadable(str(error)) from error
    data = packed[5:]
    if packed[:1] != bytes([_PLAIN]) or zlib.adler32(data).to_bytes(4, "big") != packed[1:5]:
        raise Unreadable("a byte has changed")
    return data


def _pack_column(out: bytearray, column: Row) -> None:
    first = column[0]
    if column.count(first) == len(column):
        if first is None:
            out.append(_ABSENT)
        else:
            out.append(_CONSTANT)
            _put(out, _folded(first))
        return
    out.append(_CHANGING)
    last = 0
    for value in column:
        if value is None:
            out.append(0)
        else:
            _put(out, _folded(value - last) + 1)
            last = value


def _unpack_column(data: bytes, at: int, count: int) -> tuple[list[int | None], int]:
    shape = data[at]
    at += 1
    if shape == _ABSENT:
        return [None] * count, at
    if shape == _CONSTANT:
        folded, at = _take(data, at)
        return [_unfolded(folded)] * count, at
    if shape != _CHANGING:
        raise Unreadable("no such shape of column")
    column: list[int | None] = []
    last = 0
    for _ in range(count):
        code, at = _take(data, at)
        if code == 0:
            column.append(None)
        else:
            last += _unfolded(code - 1)
            column.append(last)
    return column, at


def _folded(value: int) -> int:
    """Small in both directions becomes small: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def _unfolded(code: int) -> int:
    return -((code + 1) >> 1) if code & 1 else code >> 1


def _put(out: bytearray, number: int) -> None:
    """Seven bits a byte, the lowest first."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _take(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
