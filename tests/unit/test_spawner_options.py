"""user_options from anybody: strict reading, forms, what is remembered."""

from __future__ import annotations

from typing import Any

import pytest
from allotment_spawner.core.errors import BadOptions
from allotment_spawner.spawners.options import Choice, choice_of, options_of_form, remembered
from hypothesis import given
from hypothesis import strategies as st

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(ANY)
def test_anything_is_a_choice_or_a_refusal_of_one_short_ascii_sentence(options: Any) -> None:
    sentence = ""
    try:
        choice = choice_of(options)
        assert all(isinstance(value, str) for value in choice.options().values())
    except BadOptions as refusal:
        sentence = refusal.sentence
    assert len(sentence) < 150
    assert sentence.replace("…", "").isascii()
    assert isinstance(remembered(options), Choice)


@given(st.dictionaries(st.sampled_from(["environment", "flavor"]), ANY, min_size=1))
def test_only_plain_words_pass(options: dict[str, Any]) -> None:
    try:
        choice = choice_of(options)
    except BadOptions:
        return
    for key, value in choice.options().items():
        assert value == options[key]
        assert value.isascii()
        assert set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")


def test_named_and_missing_options() -> None:
    assert choice_of({"environment": "minimal", "flavor": "gpu-10gb"}) == Choice("minimal", "gpu-10gb")
    assert choice_of({}) == Choice()
    assert choice_of({"flavor": None, "environment": "minimal"}) == Choice("minimal", None)
    with pytest.raises(BadOptions, match="no option called 'image'"):
        choice_of({"image": "evil"})
    assert choice_of({"image": "x", "flavor": "cpu"}, also=frozenset({"image"})).flavor == "cpu"


def test_a_form_gives_lists() -> None:
    form = {"environment": ["minimal"], "flavor": ["cpu"], "_xsrf": ["secret"], "note": [""]}
    assert options_of_form(form) == {"environment": "minimal", "flavor": "cpu"}
    assert options_of_form({"flavor": ["cpu", "gpu-full"]}) == {"flavor": ["cpu", "gpu-full"]}
    with pytest.raises(BadOptions):
        choice_of(options_of_form({"flavor": ["cpu", "gpu-full"]}))
