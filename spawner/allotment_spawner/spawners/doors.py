"""Where a started server opens: JupyterLab, Notebook, a terminal, or a repository pulled first."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlencode

from allotment_spawner.core.errors import BadOptions

__all__ = ["APPS", "branch_name", "door", "folder_of", "inner_path", "repository"]

APPS: Final = {"lab": "/lab", "notebook": "/tree", "terminal": "/terminals/1"}
"""What a person may open -> its path on the server."""

_LONGEST_URL = 300
_URL = re.compile(
    r"https://(?P<host>[A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?(?P<path>(?:/[A-Za-z0-9._~+-]+)+)/?"
)
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~+-]{0,99}")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,99}")
_LONGEST_PATH = 500
_DOT = re.compile(r"%2e", re.IGNORECASE)
_REPO_HELP = "Give the address that git clones without a password, such as https://github.com/OWNER/NAME."
_BRANCH_HELP = "Name a branch or tag of the repository, such as main, or leave it away."
_PATH_HELP = "Give a path below the server's own address, such as lab/tree/course/start.ipynb."


def repository(value: object) -> str:
    """`value` if it is an https address of a public repository. Raises `BadOptions`.

    A name or password in it would stand in logs and in the browser's history. Its last part becomes a
    folder of the home: one that begins with a dot could become somebody's configuration.
    """
    if not isinstance(value, str) or not value.startswith("https://"):
        raise BadOptions("A repository's address must begin with https://.", _REPO_HELP)
    if len(value) > _LONGEST_URL:
        raise BadOptions(f"A repository's address may have at most {_LONGEST_URL} characters.", _REPO_HELP)
    if "@" in value:
        raise BadOptions("A repository's address must not hold a name or a password.", _REPO_HELP)
    found = _URL.fullmatch(value)
    if found is None or {".", ".."} & set(found["path"].split("/")):
        raise BadOptions("This is not an address that a repository can have.", _REPO_HELP)
    if _FOLDER.fullmatch(folder_of(value)) is None:
        raise BadOptions("The repository's name cannot be that of a folder here.", _REPO_HELP)
    return value


def branch_name(value: object) -> str:
    """`value` if git takes it for a branch or tag and never for an option. Raises `BadOptions`."""
    if not isinstance(value, str) or not _BRANCH.fullmatch(value):
        raise BadOptions("This cannot be the name of a branch.", _BRANCH_HELP)
    parts = value.split("/")
    if ".." in value or any(not one or one.startswith(".") or one.endswith((".", ".lock")) for one in parts):
        raise BadOptions("This cannot be the name of a branch.", _BRANCH_HELP)
    return value


def inner_path(value: object) -> str:
    """`value` if it is a path on the person's own server, whatever else it holds. Raises `BadOptions`."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_PATH or not value.isprintable():
        raise BadOptions(f"A path to open is text of at most {_LONGEST_PATH} characters.", _PATH_HELP)
    # nbgitpuller's page goes there as it is written here: to browsers %2e is a dot, and # ends the path
    way = re.split("[/#]", _DOT.sub(".", value).split("?", 1)[0])
    if value.startswith("/") or "\\" in value or ":" in way[0] or {".", "..", ""} & set(way[:-1]):
        raise BadOptions("This path leads away from the server that is started.", _PATH_HELP)
    if way[-1] in (".", ".."):
        raise BadOptions("This path leads away from the server that is started.", _PATH_HELP)
    return value


def folder_of(repo: str) -> str:
    """The folder in the home that a repository is pulled into."""
    return repo.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")


def door(*, app: str | None, repo: str | None, branch: str | None, urlpath: str | None) -> str | None:
    """The path below the server's address to open first, encoded; None leaves it to the site.

    A repository is pulled by nbgitpuller, which then opens `urlpath`. All four were checked before.
    """
    if repo is None:
        return f"/{quote(urlpath, safe='/?=&')}" if urlpath else APPS.get(app or "")
    folder = folder_of(repo)
    opens = {"notebook": f"tree/{folder}", "terminal": "terminals/1"}.get(app or "", f"lab/tree/{folder}")
    asked = {"repo": repo, "branch": branch, "targetpath": folder, "urlpath": urlpath or opens}
    named = {key: value for key, value in asked.items() if value}
    return f"/git-pull?{urlencode(named, quote_via=quote, safe='')}"
