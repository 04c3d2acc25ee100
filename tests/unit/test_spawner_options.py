"""user_options from anybody: strict reading, forms, what is remembered."""

from __future__ import annotations

from typing import Any

import pytest
from allotment_spawner.core.errors import BadOptions
from allotment_spawner.spawners.options import (
    KEYS,
    Choice,
    choice_of,
    choice_of_link,
    options_of_form,
    remembered,
)
from hypothesis import given
from hypothesis import strategies as st

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.one_of(ANY, st.dictionaries(st.sampled_from(KEYS), ANY)))
def test_anything_is_a_choice_or_a_refusal_of_one_short_ascii_sentence(options: Any) -> None:
    sentence = ""
    try:
        choice = choice_of(options)
        assert choice_of(choice.options()) == choice
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
        assert isinstance(value, str)
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


def test_all_that_can_be_chosen() -> None:
    options = {
        "environment": "pytorch",
        "flavor": "gpu-10gb",
        "version": "0123456789ab",
        "datasets": ["mnist", "cifar", "mnist"],
        "charge_to": "Physics, 2nd year/ä",
        "app": "notebook",
        "repo": "https://github.com/ann/course",
        "branch": "week/2",
        "urlpath": "lab/tree/course/start here.ipynb",
    }
    choice = choice_of(options)
    assert choice.datasets == ("mnist", "cifar")
    assert choice.options() == {**options, "datasets": ["mnist", "cifar"]}
    assert choice.wants() == {
        "environment": "pytorch",
        "flavor": "gpu-10gb",
        "version": "0123456789ab",
        "datasets": ["mnist", "cifar"],
        "charge_to": "Physics, 2nd year/ä",
    }
    assert choice.lasting() == Choice(
        "pytorch", "gpu-10gb", "0123456789ab", ("mnist", "cifar"), "Physics, 2nd year/ä", "notebook"
    )
    assert choice_of({"datasets": "mnist"}).datasets == ("mnist",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "0123456789AB"}, "is not a version"),
        ({"version": "0123456789ab\n"}, "is not a version"),
        ({"datasets": {"mnist": True}}, "must be a list of names"),
        ({"datasets": ["../etc"]}, "cannot be the name of a dataset"),
        ({"datasets": [str(number) for number in range(51)]}, "at most 50 datasets"),
        ({"charge_to": ["a", "b"]}, "cannot be the name of a group"),
        ({"charge_to": "a\nb"}, "cannot be the name of a group"),
        ({"charge_to": "\ud800"}, "cannot be the name of a group"),
        ({"charge_to": "a" * 256}, "cannot be the name of a group"),
        ({"app": "rstudio"}, "is nothing to open"),
        ({"app": ["lab"]}, "is nothing to open"),
        ({"branch": "main"}, "no repository"),
    ],
)
def test_what_cannot_be_chosen(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOptions, match=said):
        choice_of(options)


def test_the_version_of_the_chosen_environment_counts() -> None:
    form = {"environment": ["b"], "version-a": ["0" * 12], "version-b": ["1" * 12], "version-c": [""]}
    assert options_of_form(form) == {"environment": "b", "version": "1" * 12}
    assert options_of_form({**form, "environment": ["c"]}) == {"environment": "c"}


def test_a_link_gives_what_is_good_in_it_and_says_what_is_not() -> None:
    query: dict[str, object] = {
        "opt-environment": ["pytorch"],
        "opt-flavor": ["../cpu"],
        "opt-repo": ["https://github.com/ann/course"],
        "opt-branch": ["dev"],
        "flavor": ["gpu-full"],
        "next": ["/hub/home"],
    }
    choice, wrong = choice_of_link(query)
    assert choice == Choice("pytorch", repo="https://github.com/ann/course", branch="dev")
    assert wrong is not None
    assert "cannot be the name of a flavor" in wrong.sentence
    assert choice_of_link({"opt-image": ["evil"], "opt-app": ["lab"]})[0] == Choice(app="lab")
    assert choice_of_link({"opt-": ["x"]})[1] is not None
    assert choice_of_link({}) == (Choice(), None)


@given(st.dictionaries(st.sampled_from([*(f"opt-{key}" for key in KEYS), "opt-x"]), st.lists(st.text())))
def test_no_link_raises(query: dict[str, object]) -> None:
    choice, _ = choice_of_link(query)
    assert choice_of(choice.options()) == choice
