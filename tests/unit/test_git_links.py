"""Where a git link may put its files."""

from __future__ import annotations

import pytest
from allotment.jupyter.git_links import why_not, why_not_open, why_not_repo

REPO = "https://git.example.org/ann/course"


@pytest.mark.parametrize("target", [None, "course", "courses/2026/one", "a.b", "course.git"])
def test_folders_that_people_see(target: str | None) -> None:
    assert why_not(REPO, target) is None
    assert why_not(f"{REPO}/", target) is None


def test_the_home_itself_is_no_folder_to_fill() -> None:
    assert why_not(REPO, "") is not None


@pytest.mark.parametrize(
    "repo",
    [REPO, f"{REPO}/", "http://h/a", "git@github.com:ann/course.git", "ssh://git@h/a", "/data/course/a.git"],
)
def test_addresses_of_repositories(repo: str) -> None:
    assert why_not_repo(repo) is None


@pytest.mark.parametrize(
    "repo", ["javascript:alert(1)", "java\tscript:alert(1)", "JavaScript://x/%0aalert(1)", "data:text/html,x",
             'https://h/"><script>', "https://h/a b", "ext::sh -c id", "--upload-pack=id", ""]
)  # fmt: skip
def test_what_is_no_address_of_a_repository(repo: str) -> None:
    assert why_not_repo(repo) is not None


@pytest.mark.parametrize("path", ["", ".", "lab/tree/course/a..b.ipynb", "rstudio/?x=../y", "tree/a%20b"])
def test_where_a_link_may_lead(path: str) -> None:
    assert why_not_open(path) is None


@pytest.mark.parametrize("path", ["../../hub/logout", "%2E%2e/.%2e/hub/logout", "a/..", "..\\x", ".\t./x"])
def test_where_a_link_must_not_lead(path: str) -> None:
    assert why_not_open(path) is not None


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
