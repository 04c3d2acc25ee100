"""From `pip install` in one person's session to an environment in another's: saved, approved, built."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from allotment.cli import build_app
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.installation import Installation, wait_until
from allotment_testing.tiny_wheels import tiny_wheel
from allotment_testing.workloads import Containers
from typer.testing import CliRunner


def started(installation: Installation, user: str, **options: str) -> str:
    """The lease of a session that runs."""
    body = {"user_options": {"environment": "minimal", "flavor": "cpu", **options}}
    answer = installation.hub("POST", f"/users/{user}/server", body)
    assert answer.status in (201, 202), answer.body.decode()

    def active() -> list[dict[str, Any]]:
        found = installation.broker(f"leases?user={user}&live=true").json()
        return [one for one in found if one["state"] == "active"]

    wait_until(active, what=f"{user}'s session runs", limit_s=120)
    return str(active()[0]["id"])


def put(engine: Any, container: str, file: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = archive.gettarinfo(file, arcname=file.name)
        entry.uid, entry.gid, entry.mode = 1000, 100, 0o644
        with file.open("rb") as opened:
            archive.addfile(entry, opened)
    engine.put_archive(container, "/home/jovyan", packed.getvalue())


def allot(installation: Installation, *argv: str) -> str:
    """As the operator at the machine."""
    done = CliRunner().invoke(build_app(), [*argv, "--data-dir", str(installation.data)])
    assert done.exit_code == 0, f"{argv}\n{done.output}"
    return done.output


def test_one_installs_another_starts(
    engine: Any, installation: Installation, containers: Containers, tmp_path: Path
) -> None:
    for name in ("ann", "ben"):
        assert installation.hub("POST", f"/users/{name}").status == 201
    wheel = tiny_wheel(tmp_path, "alpha", "1.5")
    lease = started(installation, "ann")
    put(engine, containers.name(lease), wheel)
    find = "--no-index --find-links /home/jovyan"
    containers.inside(lease, "bash", "-c", f"pip install -q {find} alpha && allot env save team")
    # without an operator's yes nothing is built
    refused = CliRunner().invoke(
        build_app(), ["images", "build", "team", "--data-dir", str(installation.data)]
    )
    assert (refused.exit_code, "No operator has approved" in refused.output) == (1, True), refused.output
    assert "alpha==1.5" in allot(installation, "env", "approve", "team", "--yes")
    options = [
        "--variant",
        "cpu",
        "--base",
        BASE_IMAGE,
        "--network",
        "host",
        "--no-audit",
        "--wheels",
        str(tmp_path),
    ]
    assert "is offered from now on" in allot(installation, "images", "build", "team", *options)
    said = containers.inside(
        started(installation, "ben", environment="team"),
        "python3",
        "-c",
        "import alpha; print(alpha.__file__)",
    )
    assert said.strip().startswith("/usr/local/lib/python3.11/dist-packages/alpha/")
