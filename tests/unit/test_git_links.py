"""Where a git link may put its files."""

from __future__ import annotations

import pytest
from allotment.jupyter.git_links import why_not

REPO = "https://git.example.org/ann/course"


@pytest.mark.parametrize("target", [None, "course", "courses/2026/one", "a.b", "course.git"])
def test_folders_that_people_see(target: str | None) -> None:
    assert why_not(REPO, target) is None
    assert why_not(f"{REPO}/", target) is None


@pytest.mark.parametrize(
    "target",
    [
        ".ssh",
        ".ipython/profile_default/startup",
        "a/.jupyter",
        "..",
        "../x",
        "a/../../x",
        "/etc",
        "//x",
        "a\\..\\x",
    ],
)
def test_folders_that_a_link_must_not_fill(target: str) -> None:
    assert why_not(REPO, target) is not None


def test_a_repository_that_is_named_like_a_hidden_folder() -> None:
    assert why_not("https://git.example.org/ann/.ssh", None) is not None
    assert why_not("https://git.example.org/ann/.ssh/", "") is not None
    assert why_not("https://git.example.org/ann/.ssh", "keys") is None
