"""A real session whose GPU fails: the time is free, the person is told, and the entries say what is left."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from allotment.cli import build_app
from allotment_testing.installation import Installation, wait_until
from typer.testing import CliRunner

RATE = Decimal("0.40")


def lease(installation: Installation) -> dict[str, Any]:
    found: dict[str, Any] = installation.broker("leases?user=demo&server=&limit=1").json()[0]
    return found


def allot(installation: Installation, *words: str) -> None:
    done = CliRunner().invoke(build_app(), [*words, "--data-dir", str(installation.data)])
    assert done.exit_code == 0, done.output


def notices(installation: Installation, lease_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = installation.broker(f"leases/{lease_id}/notices").json()
    return found


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [(["sim", "fault", "0", "--xid", "48"], []), (["sim", "hang", "0"], ["sim", "unhang", "0"])],
    ids=["an Xid error", "a call that hangs"],
)
def test_the_time_of_a_failed_gpu_is_free(running: Installation, breaks: list[str], mends: list[str]) -> None:
    running.start_session("demo")
    mine = lease(running)
    assert Decimal(mine["price_per_hour"]) == RATE
    wait_until(lambda: Decimal(lease(running)["cost"]) >= Decimal("0.0003"), what="it costs")
    allot(running, *breaks)
    wait_until(lambda: notices(running, mine["id"]), what="the person is told")
    assert "not billed" in notices(running, mine["id"])[0]["sentence"]
    stands = lease(running)["cost"]
    running.restart("broker")
    broken = datetime.now().astimezone()
    wait_until(lambda: (datetime.now().astimezone() - broken).seconds >= 3, what="time passes")
    assert lease(running)["cost"] == stands, "also for a broker that was started meanwhile"
    if mends:
        allot(running, *mends)
    allot(running, "heal", "0")
    wait_until(lambda: lease(running)["cost"] != stands, what="it costs again")
    assert running.hub("DELETE", "/users/demo/server").status in (202, 204)
    wait_until(lambda: lease(running)["state"] == "ended", what="the session is over")
    over = lease(running)
    report = running.broker("usage?user=demo").json()
    [entry] = [one for one in report["entries"] if one["lease"] == mine["id"]]
    began, ended = (datetime.fromisoformat(over[name]) for name in ("active_at", "stopped_at"))
    free = Decimal((ended - began).total_seconds()) - Decimal(entry["seconds"])
    assert free >= 3, "the outage"
    assert entry["kind"] == "usage"
    assert (
        Decimal(entry["amount"]) == Decimal(over["cost"]) == round(RATE * Decimal(entry["seconds"]) / 3600, 6)
    )
