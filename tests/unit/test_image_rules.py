"""What an image says of itself, which may go, and what a driver and cards can run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from allotment_hub.broker.services.image_book import ImageBook
from allotment_hub.broker.services.image_seeds import sown
from allotment_hub.broker.services.image_views import Register
from allotment_hub.broker.services.requirements import Card, Hardware, fitting, version_of
from allotment_hub.broker.store.images import Image
from allotment_hub.images.describe import FoundImage, described
from allotment_hub.images.machine import BuildLayer, MachineImage
from allotment_hub.images.plan import Known, State, old_layers, plan
from allotment_hub.images.registering import registration
from allotment_hub.runtime import EnvironmentImage, Runtime
from allotment_spawner.core.request import Candidate, Request, Want
from allotment_spawner.launch.names import is_kept_tag, kept_tag
from allotment_testing.decided import runtime_of

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


def image(digit: str, *, minutes: int = 0, **more: Any) -> Image:
    values: dict[str, Any] = {
        "environment": "pytorch", "reference": "allotment/pytorch:0.1.0-cuda", "source": None,
        "label": "0.1.0-cuda", "title": "PyTorch", "description": "", "packages": {}, "requires": {},
        "size_bytes": 1, "made_at": None, "added_at": NOON + timedelta(minutes=minutes), "state": "kept",
    }  # fmt: skip
    return Image(digest=digest(digit), **{**values, **more})


def runtime(seeds: dict[str, str], here: tuple[str, ...] | None = None) -> Runtime:
    environments = {
        name: EnvironmentImage(
            title="PyTorch", image="allotment/pytorch:0.1.0-cuda", digest=digest(one), label="0.1.0-cuda",
            available=True,
        )
        for name, one in seeds.items()
    }  # fmt: skip
    return runtime_of(environments=environments, images_here=here)


# -- what is offered ---------------------------------------------------------------------------


def book(*rows: Image) -> ImageBook:
    made = ImageBook()
    made.replace(sorted(rows, key=lambda row: row.added_at, reverse=True))
    return made


def test_the_newest_is_offered_unless_one_is_pinned() -> None:
    old, new = image("a"), image("b", minutes=1)
    assert book(old, new).offered("pytorch") == new
    pinned = image("a", pinned=True)
    assert book(pinned, new).offered("pytorch") == pinned


@pytest.mark.parametrize("state", [{"state": "retired"}, {"state": "removed"}, {"removing_at": NOON}])
def test_what_cannot_be_started_is_not_offered(state: dict[str, Any]) -> None:
    gone = image("b", minutes=1, pinned=True, **state)
    assert book(image("a"), gone).offered("pytorch") == image("a")
    assert book(image("a"), gone).successor(gone) == image("a")
    assert book(gone).offered("pytorch") is None


def test_what_replaces_it_may_be_named_and_must_be_startable() -> None:
    old, middle, new = image("a", replaced_by="b" * 12, state="retired"), image("b", minutes=1), image("c")
    new = image("c", minutes=2)
    assert book(old, middle, new).successor(old) == middle
    assert book(old, image("b", minutes=1, state="retired"), new).successor(old) == new


# -- seeds -------------------------------------------------------------------------------------


def test_a_new_image_of_up_is_sown_once() -> None:
    ((new, row),) = sown([], runtime({"pytorch": "a"}), NOON)
    assert (new, row.version, row.added_at, row.state) == (True, "a" * 12, NOON, "kept")
    assert sown([row], runtime({"pytorch": "a"}), NOON + timedelta(days=1)) == []


def test_a_start_of_up_does_not_undo_a_pull_a_pin_or_a_retirement() -> None:
    seeded = image("a", pinned=True)
    pulled = image("b", minutes=5, reference="registry.example:5000/pytorch:2", size_bytes=None)
    same = image("a", pinned=True, size_bytes=None)
    found = sown([pulled, seeded], runtime({"pytorch": "a"}), NOON + timedelta(days=1))
    assert found == [(False, same)]
    retired = image("a", state="retired", replaced_by="b" * 12, size_bytes=None)
    assert sown([pulled, retired], runtime({"pytorch": "a"}), NOON) == []


def test_a_name_that_moved_back_makes_its_image_the_newest_again() -> None:
    older, newer = image("a", size_bytes=None), image("b", minutes=5, size_bytes=None)
    later = NOON + timedelta(days=1)
    ((new, row),) = sown([newer, older], runtime({"pytorch": "a"}), later)
    assert (new, row.digest, row.added_at) == (False, digest("a"), later)


def test_what_is_on_no_machine_and_in_no_registry_is_removed() -> None:
    rows = [
        image("b", minutes=1),
        image("c", source=f"registry.example/pytorch@{digest('1')}"),
        image("d"),
        image("a", size_bytes=None),
    ]
    found = sown(rows, runtime({"pytorch": "a"}, here=(digest("a"), digest("d"))), NOON)
    assert [(row.digest, row.state) for _, row in found if row.state == "removed"] == [
        (digest("b"), "removed")
    ]
    unknown = sown(rows, runtime({"pytorch": "a"}, here=None), NOON)
    assert not [row for _, row in unknown if row.state == "removed"]


# -- labels ------------------------------------------------------------------------------------


INSPECTED = {
    "Id": digest("a"),
    "RepoTags": ["allotment/pytorch:0.1.0-cuda"],
    "RepoDigests": [f"pytorch@{digest('7')}", f"127.0.0.1:5000/pytorch@{digest('8')}"],
    "Size": 123,
    "Created": "2026-11-02T12:00:00.123456789Z",
    "Config": {
        "Labels": {
            "org.allotment.environment": "pytorch",
            "org.allotment.title": "PyTorch",
            "org.allotment.version": "0.1.0",
            "org.allotment.variant": "cuda",
            "org.allotment.packages": '{"torch": "2.13.0"}',
            "org.allotment.minimum_driver": "580.65.06",
        }
    },
}


def test_labels_are_read() -> None:
    found = described(INSPECTED, name="allotment/pytorch:0.1.0-cuda")
    assert (found.environment, found.title, found.label) == ("pytorch", "PyTorch", "0.1.0-cuda")
    assert found.packages == {"torch": "2.13.0"}
    assert found.requires == {"variant": "cuda", "minimum_driver": "580.65.06"}
    assert found.made_at == datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
    assert found.size_bytes == 123


def test_a_source_is_a_digest_in_a_registry() -> None:
    assert described(INSPECTED, name="x:1").source == f"127.0.0.1:5000/pytorch@{digest('8')}"
    only_here = {**INSPECTED, "RepoDigests": [f"allotment/pytorch@{digest('7')}"]}
    assert described(only_here, name="allotment/pytorch:0.1.0-cuda").source is None
    assert described({"Id": digest("a")}, name="x").source is None


@pytest.mark.parametrize(
    "labels",
    [
        None,
        {},
        {"org.allotment.packages": "[1"},
        {"org.allotment.packages": "[]"},
        {"org.allotment.packages": "[" * 100_000},
        {"org.allotment.environment": "../../tmp/x"},
        {"org.allotment.variant": "gpu", "org.allotment.minimum_driver": "9" * 5000},
        {"org.allotment.minimum_driver": "٥٨٠", "org.allotment.minimum_compute_capability": "8"},
    ],
)
def test_an_image_without_labels_of_ours_is_unknown(labels: dict[str, str] | None) -> None:
    found = described(
        {"Id": digest("a"), "Config": {"Labels": labels}, "Created": "0001-01-01T00:00:00Z"}, name="x"
    )
    assert (found.environment, found.packages, found.size_bytes, found.made_at) == ("", {}, None, None)
    assert found.requires == {}


@pytest.mark.parametrize(
    "made", ["1970-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00Z"]
)
def test_a_time_that_no_image_was_made_at_is_unknown(made: str) -> None:
    """Reproducible builds write the beginning of time."""
    found = described({"Id": digest("a"), "Created": made}, name="x")
    assert found.made_at is None
    Register.model_validate(registration(found, environment="mine", base=None))


def test_what_an_image_says_of_itself_is_cut_to_what_is_shown() -> None:
    packages = {f"{'ü' * 300}{one}\x1b[2J\u202e": "1" * 300 for one in range(2000)}
    labels = {"org.allotment.packages": json.dumps(packages), "org.allotment.title": "a\x9b2Jb\u202ec"}
    found = described({"Id": digest("a"), "Config": {"Labels": labels}}, name="x")
    assert found.title == "a 2Jb c"
    assert len(registered := json.dumps(registration(found, environment="mine", base=None))) < 60_000
    assert found.packages
    assert "\\u202e" not in registered


def test_a_registration_is_cut_to_what_the_broker_takes() -> None:
    wild = FoundImage(
        name="x" * 400, digest=digest("a"), packages={f"p{one}": "1\n2" for one in range(600)},
        title="a\x00b" + "t" * 400, description="d" * 5000, label="l" * 400, source="no digest",
        size_bytes=5, made_at=NOON, requires={"variant": "cpu"},
    )  # fmt: skip
    body = Register.model_validate(registration(wild, environment="mine", base="pytorch"))
    assert (len(body.packages), body.source, body.title[:3]) == (500, None, "a b")


# -- what goes ---------------------------------------------------------------------------------


def known(digit: str, state: State = "kept", **more: Any) -> Known:
    values: dict[str, Any] = {
        "environment": "pytorch", "label": "0.1", "reference": "allotment/pytorch:0.1", "pinned": False,
        "used_by": 0,
    }  # fmt: skip
    return Known(digest=digest(digit), state=state, **{**values, **more})


def here(*digits: str, containers: dict[str, tuple[str, ...]] | None = None) -> dict[str, MachineImage]:
    return {
        digest(one): MachineImage(
            FoundImage(name=one, digest=digest(one), packages={}, size_bytes=10),
            (),
            (containers or {}).get(one, ()),
        )
        for one in digits
    }


def test_old_and_retired_ones_go_and_the_newest_stay() -> None:
    rows = [known("a", "offered"), known("b"), known("c"), known("d", "retired")]
    verdict = plan(rows, here(*"abcd"), keep=2)
    assert [one.digest for one, _ in verdict.goes] == [digest("c"), digest("d")]
    assert [stay.why for stay in verdict.stays] == ["offered", "one of the newest 2"]
    assert verdict.bytes_freed == 20


@pytest.mark.parametrize("state", ["kept", "retired", "removing"])
def test_what_is_used_stays(state: State) -> None:
    newer = [known("a", "offered"), known("b")]
    assert plan([*newer, known("c", state, used_by=1)], here(*"abc"), keep=1).goes[1:] == ()
    held = here(*"abc", containers={"c": ("stopped",)})
    used = plan([*newer, known("c", state)], held, keep=1)
    assert digest("c") not in [one.digest for one, _ in used.goes]
    pinned = plan([*newer, known("c", "kept", pinned=True)], here(*"abc"), keep=1)
    assert digest("c") not in [one.digest for one, _ in pinned.goes]


def test_what_is_not_registered_is_never_looked_at() -> None:
    verdict = plan([known("a", "offered")], here(*"abz"), keep=1)
    assert (verdict.goes, verdict.lost) == ((), ())


def test_a_removal_that_was_killed_is_finished() -> None:
    rows = [known("a", "offered"), known("b", "removing"), known("c", "removing"), known("d", "removed")]
    verdict = plan(rows, here(*"abd"), keep=1)
    assert [one.digest for one, _ in verdict.goes] == [digest("b")]
    assert [one.digest for one in verdict.lost] == [digest("c")]


def test_layers_of_older_builds_go_and_those_of_this_version_stay() -> None:
    layers = [
        BuildLayer("1", ("allotment/pytorch-packages:0.1.0-cpu",), 5),
        BuildLayer("2", ("allotment/pytorch-packages:0.2.0-cpu",), 5),
        BuildLayer("3", (), 5),
        BuildLayer("4", ("mine/something:1",), 5),
        BuildLayer("5", ("allotment/pytorch-packages:0.1.0-cpu", "mine/pytorch-packages:1"), 5),
    ]
    assert [one.digest for one in old_layers(layers, prefix="allotment", version="0.2.0")] == ["1", "3"]


def test_tags_of_an_installation_are_told_from_others() -> None:
    repository, tag = kept_tag("0123abcd", "pytorch", digest("a"))
    assert (repository, tag) == ("allotment-0123abcd/pytorch", "a" * 12)
    assert is_kept_tag(f"{repository}:{tag}")
    assert not any(map(is_kept_tag, ("allotment/pytorch:0.1", "allotment-x/y:1", "0123abcd/pytorch:1")))


# -- driver and cards --------------------------------------------------------------------------

NEEDS = {"variant": "cuda", "minimum_driver": "580.65.06", "minimum_compute_capability": "8.0"}


def ask(*pools: str) -> Request:
    return Request((Candidate(frozenset(pools), Want("whole")),))


def test_an_old_driver_is_named_with_what_is_needed() -> None:
    old = Hardware("535.183.01", [Card("whole", "A100", "8.0")])
    said = fitting(NEEDS, ask("whole"), old, name="PyTorch 0.1.0-cuda")
    assert said == "PyTorch 0.1.0-cuda needs NVIDIA driver 580.65.06 or newer; this machine has 535.183.01."
    same = Hardware("580.65.06", [Card("whole", "A100", "8.0")])
    assert fitting(NEEDS, ask("whole"), same, name="x") == ask("whole")


def test_an_old_card_is_named_with_what_is_needed() -> None:
    old = Hardware("580.65.06", [Card("whole", "Tesla T4", "7.5")])
    said = fitting(NEEDS, ask("whole"), old, name="PyTorch")
    assert said == "PyTorch needs a GPU of compute capability 8.0 or newer; the Tesla T4 here has 7.5."


def test_only_pools_whose_cards_can_are_left() -> None:
    mixed = Hardware("580.65.06", [Card("old", "T4", "7.5"), Card("new", "A100", "8.0")])
    assert fitting(NEEDS, ask("old", "new"), mixed, name="x") == ask("new")


@pytest.mark.parametrize("driver", [None, "", "abc", "580.65.06-beta"])
def test_unknown_is_no_reason_to_refuse(driver: str | None) -> None:
    unknown = Hardware(driver, [Card("whole", "A100", None)])
    assert fitting(NEEDS, ask("whole"), unknown, name="x") == ask("whole")
    assert fitting(NEEDS, ask("whole"), Hardware("999", []), name="x") == ask("whole")


def test_cpu_builds_run_everywhere() -> None:
    ancient = Hardware("300.1", [Card("whole", "K80", "3.7")])
    assert fitting({**NEEDS, "variant": "cpu"}, ask("whole"), ancient, name="x") == ask("whole")
    assert fitting({}, ask("whole"), ancient, name="x") == ask("whole")


def test_versions_are_numbers() -> None:
    assert version_of("580.65.06") == (580, 65, 6)
    assert version_of("9.0") < version_of("10.0")  # type: ignore[operator]
