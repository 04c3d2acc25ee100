"""Columns of tables in a terminal whose content must never be cut or broken over two lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

__all__ = ["whole_column"]


def whole_column(table: Table, name: str, values: Sequence[str], *, right: bool = False) -> None:
    """Of an id that is pasted elsewhere, or a number that would read as another one. `values`: what will
    stand in it; other columns give way."""
    width = max(len(text) for text in (name, *values))
    if right:  # what overflows and is ignored is not aligned by rich
        table.add_column(name, no_wrap=True, min_width=width, justify="right")
    else:
        table.add_column(name, no_wrap=True, overflow="ignore", min_width=width)
