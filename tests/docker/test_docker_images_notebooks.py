"""Tours and recipes run in their images, on a CPU, without a network; each image holds just its lock."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_image_bed import SERVE, STRANGER, ImageBed, image_bed
from allotment_testing.docker_image_set import ENVIRONMENTS, notebooks_of
from allotment_testing.docker_images import image_tag
from allotment_testing.docker_testbed import running_docker

SHARED = "/usr/local/share/allotment"
PACKAGES = "org.allotment.packages"
DIST_PACKAGES = "/usr/local/lib/python3.11/dist-packages"
RUN = """\
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
nbclient.NotebookClient(book, timeout=240, kernel_name="python3").execute()
text = "".join(one.get("text", "") for cell in book.cells for one in cell.get("outputs", ()))
print(text)
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerDaemon]:
    with running_docker(*ENVIRONMENTS) as daemon:
        yield daemon


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def bed(request: pytest.FixtureRequest, daemon: DockerDaemon) -> Iterator[ImageBed]:
    with image_bed(daemon, request.param) as bed:
        yield bed


@pytest.fixture(scope="module")
def idle(bed: ImageBed) -> str:
    """A container of the image in which nothing runs yet."""
    return bed.start("idle", ["sleep", "3600"], ALLOTMENT_ENVIRONMENT=bed.environment)


def test_every_notebook_of_the_image_runs(bed: ImageBed, idle: str) -> None:
    wanted = notebooks_of(bed.environment)
    assert wanted
    for name in wanted:
        code, text = bed.inside(idle, "python3", "-c", RUN, f"{SHARED}/{name}")
        assert code == 0, f"{name}: {text[-3000:]}"
        if name.startswith("tour"):
            assert json.loads(bed.inside(idle, "cat", f"{SHARED}/environment.json")[1])["title"] in text


def test_the_image_holds_what_its_lock_says_and_nothing_else(bed: ImageBed, idle: str) -> None:
    """So two builds of one lock hold the same packages."""
    _, text = bed.inside(idle, "python3", "-I", "-m", "pip", "freeze", "--all", "--path", DIST_PACKAGES)
    held = {
        line.partition("==")[0].lower().replace("_", "-"): line.partition("==")[2] for line in text.split()
    }
    _, lock = bed.inside(idle, "cat", f"{SHARED}/requirements.lock")
    wanted = dict(line.split(" ")[0].split("==") for line in lock.splitlines() if "==" in line)
    held.pop("allotment", None)
    held = {name: version for name, version in held.items() if version}
    assert {name.replace(".", "-"): version for name, version in held.items()} == {
        name.replace(".", "-"): version for name, version in wanted.items()
    }


def packages_of(bed: ImageBed) -> dict[str, str]:
    """Package -> version, as people are shown them."""
    shown = json.loads(bed.client.inspect_image(image_tag(bed.environment))["Config"]["Labels"][PACKAGES])
    return {str(name): str(version) for name, version in shown.items()}


def test_the_bill_lists_packages_versions_and_licences(bed: ImageBed, idle: str) -> None:
    bill = json.loads(bed.inside(idle, "cat", f"{SHARED}/sbom.cdx.json")[1])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    versions = {
        one["name"]: one["version"] for one in bill["components"] if one["purl"].startswith("pkg:pypi/")
    }
    shown = packages_of(bed)
    assert bed.inside(idle, "python3", "-V")[1].strip() == f"Python {shown.pop('python')}"
    for name, version in shown.items():
        assert versions[name] == version
    debian = [one for one in bill["components"] if one["purl"].startswith("pkg:deb/debian/")]
    assert any(one["name"] == "git" for one in debian)
    table = bed.inside(idle, "cat", f"{SHARED}/licences.csv")[1].splitlines()
    assert len(table) == len(bill["components"]) + 1
    assert any(line.startswith("pypi,jupyterlab,") and "BSD" in line for line in table)
    unknown = [line for line in table if line.startswith("pypi,") and line.endswith(",unknown")]
    assert len(unknown) < 5, unknown


def test_the_labels_say_what_a_driver_must_be_only_where_it_matters(bed: ImageBed) -> None:
    labels = bed.client.inspect_image(image_tag(bed.environment))["Config"]["Labels"]
    assert labels["org.allotment.environment"] == bed.environment
    assert labels["org.allotment.variant"] == "cpu"
    assert "org.allotment.minimum_driver" not in labels
    assert len(labels["org.allotment.lock"]) == 64
    assert labels["org.allotment.made_at"].endswith("+00:00")


def test_tensorboard_opens_to_its_owner_alone(bed: ImageBed) -> None:
    """Where the image has it: started by the first who asks, seen by nobody else."""
    ref = bed.start("board", SERVE)
    _, lock = bed.inside(ref, "cat", f"{SHARED}/requirements.lock")
    wanted = ["tensorboard"] if "\ntensorboard==" in lock else []
    bed.answers(ref)
    offered = json.loads(bed.ask(ref, "server-proxy/servers-info"))["server_processes"]
    assert [one["name"] for one in offered] == wanted
    if wanted:
        assert bed.status(ref, "tensorboard/", token=STRANGER) == 403
        assert "<title>TensorBoard</title>" in bed.ask(ref, "tensorboard/")
