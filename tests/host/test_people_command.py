"""`allot people` and `allot doctor` against a running installation."""

from __future__ import annotations

import json

import httpx
import pytest
from allotment.cli import build_app
from allotment_hub.people.journal import Journal, Leaving
from allotment_testing.installation import Installation
from typer.testing import CliRunner, Result


def allot(installation: Installation, *words: str) -> Result:
    return CliRunner().invoke(build_app(), [*words, "--data-dir", str(installation.data)])


def signs_in(installation: Installation, name: str, password: str) -> bool:
    with httpx.Client(base_url=installation.connection.hub_url) as browser:
        browser.get("/hub/login")
        xsrf = next(cookie.value for cookie in browser.cookies.jar if cookie.name == "_xsrf")
        form = {"username": name, "password": password, "_xsrf": xsrf or ""}
        return browser.post("/hub/login", data=form).status_code == 302


def test_add_list_remove(running: Installation) -> None:
    added = allot(running, "people", "add", "ada", "emmy", "--operator")
    assert added.exit_code == 0, added.output
    passwords = dict(line.split() for line in added.stdout.splitlines())
    assert sorted(passwords) == ["ada", "emmy"]
    assert signs_in(running, "ada", passwords["ada"])
    listed = json.loads(allot(running, "people", "list", "--json").stdout)["people"]
    assert {person["name"]: person["operator"] for person in listed} == {
        "ada": True,
        "admin": True,
        "demo": False,
        "emmy": True,
    }
    assert "ada" in allot(running, "people", "list").stdout
    removed = allot(running, "people", "remove", "ada", "--yes")
    assert removed.exit_code == 0, removed.output
    assert not signs_in(running, "ada", passwords["ada"])
    assert signs_in(running, "emmy", passwords["emmy"])


def test_a_new_password_only_when_asked(running: Installation) -> None:
    first = allot(running, "people", "add", "grace").stdout.split()[1]
    again = allot(running, "people", "add", "grace")
    assert again.exit_code == 2
    assert "grace exists already" in again.output
    assert signs_in(running, "grace", first)
    second = allot(running, "people", "add", "grace", "--new-password").stdout.split()[1]
    assert signs_in(running, "grace", second)
    assert not signs_in(running, "grace", first)
    assert "starts sessions for admin, demo only" in again_for(running, "grace").stderr


def again_for(running: Installation, name: str) -> Result:
    return allot(running, "people", "add", name, "--new-password")


def test_connection_json_keeps_the_passwords_of_its_accounts(running: Installation) -> None:
    done = again_for(running, running.connection.user)
    assert done.stdout.split()[1] == running.connection.user_password
    assert signs_in(running, running.connection.user, running.connection.user_password)
    assert "only" not in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("add", "../x"), "cannot be a name"),
        (("add", "Ada"), "cannot be a name"),
        (("remove", "nobody", "--yes"), "There is no account nobody"),
        (("remove", "admin", "--yes"), "admin stays"),
    ],
)
def test_refused(running: Installation, words: tuple[str, ...], sentence: str) -> None:
    done = allot(running, "people", *words)
    assert done.exit_code == 2
    assert sentence in done.output


def test_who_leaves_keeps_a_home_unless_told_otherwise(running: Installation) -> None:
    password = allot(running, "people", "add", "olive").stdout.split()[1]
    asked = CliRunner().invoke(
        build_app(), ["people", "offboard", "olive", "--data-dir", str(running.data)], input="n\n"
    )
    assert (asked.exit_code, signs_in(running, "olive", password)) == (2, True)
    assert "The home stays as it is." in asked.output
    done = allot(running, "people", "offboard", "olive", "--yes")
    assert done.exit_code == 0, done.output
    assert not signs_in(running, "olive", password)
    assert list(running.paths.offboard.glob("*.json")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nobody",), "There is no account nobody"),
        (("admin",), "admin stays"),
        (("demo", "--archive"), "plain folders of your own account"),
        (("demo", "--archive", "--erase"), "--erase keeps nothing"),
        (("demo", "--hand-over", "demo"), "no other account demo"),
        (("demo", "--hand-over", "nobody"), "no other account nobody"),
    ],
)
def test_offboarding_refused(running: Installation, words: tuple[str, ...], sentence: str) -> None:
    done = allot(running, "people", "offboard", *words, "--yes")
    assert done.exit_code == 2
    assert sentence in done.output
    assert "demo" in allot(running, "people", "list").stdout


def test_an_unfinished_offboarding_is_finished_as_it_was_begun(running: Installation) -> None:
    journal = Journal(folder=running.paths.offboard, user="gone")
    began = "2026-01-01T08:00:00+00:00"
    journal.save(
        Leaving("gone", archive=False, hand_over=None, erase=True, began_at=began, done=("account",))
    )
    other = allot(running, "people", "offboard", "gone", "--archive", "--yes")
    assert other.exit_code == 2
    assert "is not finished and did something else" in other.output
    assert journal.load() is not None
    another = allot(running, "people", "add", "gone")
    assert another.exit_code == 2
    assert "The home of an earlier gone is not seen to yet" in another.output
    doctor = allot(running, "doctor")
    assert "gone has not left whole (done: account)" in doctor.output
    journal.path.write_text("{", encoding="utf-8")
    broken = allot(running, "people", "offboard", "gone", "--yes")
    assert broken.exit_code == 2
    assert "remove it to begin anew" in broken.output
    journal.close()


def test_people_make_no_accounts_for_others(running: Installation) -> None:
    """The account route asks for admin:users; a person's own token lacks it."""
    token = running.hub("POST", "/users/demo/tokens", {"note": "test"}).json()["token"]
    body = {"password": "long-enough-1"}
    assert running.hub("PUT", "/allotment/accounts/mallory", body, token=token).status == 403
    assert running.hub("PUT", "/allotment/accounts/admin", body, token=token).status == 403


def test_doctor_sees_every_service(running: Installation) -> None:
    found = json.loads(allot(running, "doctor", "--json").stdout)["findings"]
    levels = {finding["name"]: finding["level"] for finding in found}
    assert [levels[name] for name in ("proxy", "agent", "broker", "hub", "sessions")] == ["ok"] * 5
    assert all(finding["remedy"] for finding in found if finding["level"] != "ok")


def test_no_installation_is_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("none")
    done = CliRunner().invoke(build_app(), ["people", "list", "--data-dir", str(empty)])
    assert done.exit_code == 2
    assert "holds no Allotment" in done.output
