"""Repositories, branches and paths that a link may name, and the address that a server opens."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from allotment_spawner.core.errors import BadOptions
from allotment_spawner.spawners.doors import APPS, branch_name, door, folder_of, inner_path, repository
from hypothesis import given
from hypothesis import strategies as st

REPO = "https://git.example.org:8443/ann/course-1.git"


@pytest.mark.parametrize(
    "address", ["https://github.com/ann/course", REPO, "https://git.example.org/a/b/c_d/", "https://h/x~y+z"]
)
def test_addresses_of_repositories(address: str) -> None:
    assert repository(address) == address


@pytest.mark.parametrize(
    "address",
    [
        None,
        7,
        "",
        "http://github.com/ann/course",
        "git@github.com:ann/course",
        "ssh://git@github.com/ann/course",
        "file:///etc",
        "ext::sh -c touch% /tmp/x",
        "https://ann:secret@github.com/ann/course",
        "https://token@github.com/ann/course",
        "https://github.com",
        "https://github.com/",
        "https://github.com/ann/../../etc",
        "https://github.com/ann/.ssh",
        "https://github.com/ann/.git",
        "https://github.com/ann/--upload-pack=x",
        "https://github.com/ann/course?x=1",
        "https://github.com/ann/course#main",
        "https://github.com/ann/%2e%2e",
        "https://github.com/ann/co urse",
        "https://github.com/ann/{username}",
        "https://github.com\\@evil.example/x",
        "https://github.com/ann/cours\u0435",
        "https://github.com/ann/course\n",
        f"https://github.com/{'x' * 400}",
    ],
)
def test_addresses_that_are_refused(address: object) -> None:
    with pytest.raises(BadOptions) as refused:
        repository(address)
    assert "secret" not in refused.value.sentence
    assert refused.value.next_step


@pytest.mark.parametrize("name", ["main", "v1.2", "week/2", "a_b-c"])
def test_branches(name: str) -> None:
    assert branch_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-b", "--upload-pack=x", "a..b", "a//b", "a/", "a/.b", "a.lock", "a b", "a\n", "a~1", 7, "{x}"],
)
def test_names_that_are_no_branch(name: object) -> None:
    with pytest.raises(BadOptions):
        branch_name(name)


@pytest.mark.parametrize(
    "path", ["lab/tree/a b.ipynb", "tree/übung/1", "lab/tree/x?reset", "tree/x.md#top", "terminals/1", "lab/"]
)
def test_paths_to_open(path: str) -> None:
    assert inner_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc",
        "//evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "..",
        "../../hub/logout",
        "lab/../../hub",
        "lab//x",
        "lab\\..\\x",
        "%2e%2e/%2E%2e/hub/logout",
        "lab/.%2E",
        "lab#/../../x",
        "..#x",
        "a\nb",
        "x" * 501,
        ["lab"],
    ],
)
def test_paths_that_lead_away(path: object) -> None:
    with pytest.raises(BadOptions):
        inner_path(path)


def test_where_a_server_opens() -> None:
    nothing = {"repo": None, "branch": None, "urlpath": None}
    assert door(app=None, **nothing) is None
    assert [door(app=app, **nothing) for app in APPS] == ["/lab", "/tree", "/terminals/1"]
    assert door(app="lab", repo=None, branch=None, urlpath="lab/tree/{a} b") == "/lab/tree/%7Ba%7D%20b"


def test_a_repository_is_pulled_first() -> None:
    opened = door(app="notebook", repo=REPO, branch="week/2", urlpath=None)
    assert opened is not None
    parts = urlsplit(opened)
    assert parts.path == "/git-pull"
    assert parse_qs(parts.query) == {
        "repo": [REPO],
        "branch": ["week/2"],
        "targetpath": ["course-1"],
        "urlpath": ["tree/course-1"],
    }
    asked = door(app=None, repo="https://h/a/b/", branch=None, urlpath="lab/tree/b/{x}&y=1")
    assert asked is not None
    assert parse_qs(urlsplit(asked).query)["urlpath"] == ["lab/tree/b/{x}&y=1"]
    assert not set("{}<>\"' ") & set(asked)


@given(st.text(max_size=60))
def test_whatever_is_let_through_stays_on_the_server(text: str) -> None:
    try:
        path = inner_path(text)
    except BadOptions:
        return
    opened = door(app=None, repo=None, branch=None, urlpath=path)
    assert opened is not None
    parts = urlsplit(f"https://hub.example/user/ann{opened}")
    assert parts.netloc == "hub.example"
    assert parts.path.startswith("/user/ann/")
    assert not {".", ".."} & set(parts.path.split("/"))
    assert opened.isascii()
    assert "{" not in opened


@given(st.from_regex(r"https://[a-z.:@/%_.~+-]{1,40}", fullmatch=True))
def test_a_repository_s_folder_is_a_plain_name(address: str) -> None:
    try:
        repository(address)
    except BadOptions:
        return
    folder = folder_of(address)
    assert folder
    assert "/" not in folder
    assert not folder.startswith((".", "-"))
