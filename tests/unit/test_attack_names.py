"""Names that are long, foreign, or made to collide: files and volumes of people stay apart and possible."""

from __future__ import annotations

import pytest
from allotment_spawner.launch.names import home_volume_name, safe_name
from allotment_spawner.spawners.local import log_name
from hypothesis import given
from hypothesis import strategies as st

LONGEST = 255
"""What a file system takes as one name, in bytes."""


@pytest.mark.parametrize("character", ["a", ".", "ж", "日", "🙂", "Ä"])
@pytest.mark.parametrize("length", [60, 255])
def test_the_longest_name_is_still_a_file_name(character: str, length: int) -> None:
    name = character * length
    assert len(home_volume_name("0123abcd", name)) <= LONGEST
    assert len(f"{log_name(name, name)}.1") <= LONGEST


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_shortened_names_stay_apart(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.parametrize("length", [40, 80, 200])
def test_long_names_that_differ_at_the_end_stay_apart(length: int) -> None:
    first, second = "é" * length + "a", "é" * length + "b"
    assert safe_name(first) != safe_name(second)
    assert not {safe_name(safe_name(first)), first} & {safe_name(first)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("a--b", "")),
        (("a-", "b"), ("a", "-b")),
        (("a", "log"), ("a", "")),
        (("a.b@c", ""), ("a_2eb_40c", "")),
        (("a", "1"), ("a", "log.1")),
    ],
)
def test_logs_of_different_servers_are_different_files(one: tuple[str, str], other: tuple[str, str]) -> None:
    files = [{log_name(*pair), f"{log_name(*pair)}.1"} for pair in (one, other)]
    assert not files[0] & files[1]
