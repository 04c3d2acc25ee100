"""The stock JupyterLab client, as npm has it, signs in, starts a server on a slice and runs a cell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from allotment_hub.host.node import find_node
from allotment_testing.installation import Installation

CODE = "import os; print(os.environ['ALLOTMENT_DEVICES'])"


def test_a_cell_prints_the_leased_device(installation: Installation) -> None:
    connection = installation.connection
    script = Path(__file__).parent / "stock_client.mjs"
    done = subprocess.run(
        [find_node().node, str(script), connection.hub_url, connection.user, "gpu-10gb", CODE],
        env=os.environ | {"PASSWORD": connection.user_password},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = installation.broker("leases?live=true")
    (lease,) = answer.json()
    assert lease["user"] == connection.user
    assert [device["uuid"] for device in lease["devices"]] == [done.stdout.splitlines()[-1]]
