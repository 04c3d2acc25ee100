"""GET leases/{id}/metrics: whose, at which resolution, with gaps as null."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_hub.broker.metrics.keeper import FileKeeper
from allotment_hub.broker.metrics.series import Series
from allotment_hub.broker.services.sample_views import LeaseMetrics
from allotment_hub.site import MetricSettings, Site
from allotment_spawner.core.errors import BadOptions
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from allotment_testing.manual_clock import ManualClock
from allotment_testing.sample_makers import BEGAN, a_device, a_lease, a_round, a_view

PIECE = 3 * 2**30


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path, site=Site(metrics=MetricSettings(every_s=300))) as made:
        for name in ("ann", "ben"):
            made.hub.add_user(name)
        made.hub.add_user("olga", groups=("allotment-operators",))
        yield made


async def asked(api: BrokerApi, who: str, lease: str, **parameters: str) -> httpx.Response:
    async with api.client(api.hub.add_token(who, ACCESS)) as client:
        return await client.get(f"leases/{lease}/metrics", params=parameters)


async def test_its_owner_and_operators_see_it_and_for_others_it_does_not_exist(api: BrokerApi) -> None:
    lease = await api.session("ann", flavor="gpu-10gb")
    [device] = (await api.broker.leases.get(lease)).lease.devices
    api.agent.control.load(device.uuid, used_bytes=PIECE)
    metrics = api.broker.metrics  # type: ignore[attr-defined]
    for _ in range(2):
        await metrics.collector.once()
    await metrics.keeper.idle()
    mine = await asked(api, "ann", lease)
    assert mine.status_code == 200, mine.text
    assert mine.json() == (await asked(api, "olga", lease, to=mine.json()["to"])).json()
    assert (mine.json()["level"], mine.json()["lease"]) == ("raw", lease)
    [shown] = mine.json()["devices"]
    assert shown["figures"]["memory_used_bytes"]["mean"][-1] >= PIECE
    # an A100 does not tell how busy a slice is
    assert set(shown["figures"]["sm_percent"]["mean"]) == {None}
    assert set(shown["figures"]["sm_percent"]["missing"]) == {1.0}
    assert shown["card"]["power_w"]["mean"][-1] > 0
    assert set(mine.json()["workload"]["cpu_cores_used"]["mean"]) == {None}
    for other in (await asked(api, "ben", lease), await asked(api, "ann", "no-such-lease")):
        assert (other.status_code, other.json()["code"]) == (404, "no_such_lease")


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"from": "2026-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z"}, 422),
        ({"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z", "step": "60"}, 422),
        ({"from": "2026-01-01"}, 422),
        ({"step": "0"}, 422),
        ({"step": "99999999"}, 422),
        ({"from": "0001-01-01T00:00:00+14:00", "to": "9999-12-31T23:59:59-12:00", "step": "2678400"}, 200),
    ],
)
async def test_times_and_steps_are_bounded(api: BrokerApi, parameters: dict[str, str], status: int) -> None:
    lease = await api.session("ann")
    answer = await asked(api, "ann", lease, **parameters)
    assert answer.status_code == status, answer.text


class Kept:
    """A file that was written round by round, and the session that it is about."""

    def __init__(self, path: Path, **settings: float) -> None:
        self.path = path / "metrics.sqlite"
        self.settings = MetricSettings.model_validate({"every_s": 20, **settings})
        self.clock = ManualClock()
        self.lease = a_lease(devices=[a_device(1)])
        self.series = Series(path=self.path, settings=self.settings, clock=self._now)
        self.now_s = 0.0

    def _now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.now_s)

    async def rounds(self, from_s: int, to_s: int, **given: Any) -> None:
        keeper = FileKeeper(path=self.path, settings=self.settings)
        for after_s in range(from_s, to_s, int(self.settings.every_s)):
            keeper.keep(a_round(after_s, **given), [self.lease])
            await keeper.idle()
        await keeper.close()
        self.now_s = to_s

    async def of(self, *, stopped_s: float | None = None, **asked: Any) -> LeaseMetrics:
        stopped = None if stopped_s is None else BEGAN + timedelta(seconds=stopped_s)
        view = a_view(self.lease, stopped_at=stopped)
        return await self.series.of(view, **{"since": None, "until": None, "step_s": None, **asked})


async def test_a_broker_that_was_away_leaves_a_gap_of_nulls(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.rounds(0, 120)
    await kept.rounds(240, 360, cores=0.5)
    raw = await kept.of()
    assert raw.level == "raw"
    cores = raw.workload["cpu_cores_used"]
    assert cores.mean == [*[1.5] * 6, None, *[0.5] * 6]
    assert cores.missing == [*[0.0] * 6, 1.0, *[0.0] * 6]
    assert raw.at[6] == BEGAN + timedelta(seconds=120)
    by_minute = await kept.of(step_s=60)
    assert by_minute.workload["cpu_cores_used"].mean == [1.5, 1.5, None, None, 0.5, None]
    # the last minute is rolled up once it is over
    assert by_minute.workload["cpu_cores_used"].missing == [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    by_five = await kept.of(step_s=300, stopped_s=300)
    assert by_five.workload["cpu_cores_used"].missing == [pytest.approx(0.4)]
    assert by_five.workload["cpu_cores_used"].max == [1.5]
    assert by_five.devices[0].figures["energy_j"].sum == [None]
    kept.series.close()


async def test_an_agent_that_was_away_is_a_gap_of_the_devices_alone(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.rounds(0, 60)
    await kept.rounds(60, 120, gpu=False)
    await kept.rounds(120, 200)
    found = await kept.of(step_s=60)
    assert found.workload["cpu_cores_used"].mean == [1.5, 1.5, 1.5, None]
    assert found.devices[0].figures["sm_percent"].mean == [40.0, None, 40.0, None]
    card = found.devices[0].card
    assert card is not None
    assert card["power_w"].mean == [100.0, None, 100.0, None]
    # what the counter says of the first minute without its first sample, which had none before it
    assert card["energy_j"].sum == [4000.0, None, 4000.0, None]


async def test_what_a_session_had_is_kept_after_its_end(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.rounds(0, 600)
    await kept.rounds(600, 1200, cores=3.5, sm=80.0)
    await kept.rounds(1200, 1300, cores=None, gpu=False)
    found = await kept.of(stopped_s=1200)
    overall = found.overall["cpu_cores_used"]
    assert (overall.known_s, overall.mean, overall.max) == (1200, 2.5, 3.5)
    sm = found.devices[0].overall["sm_percent"]
    assert (sm.known_s, sm.mean, sm.max) == (1200, 60.0, 80.0)
    assert found.devices[0].overall["memory_used_bytes"].max == PIECE
    assert found.to == BEGAN + timedelta(seconds=1200)
    kept.series.close()


async def test_a_card_goes_on_for_others_and_that_is_not_shown(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.rounds(0, 600)
    until = BEGAN + timedelta(seconds=600)
    for step_s in (1, 60):
        found = await kept.of(stopped_s=300, until=until, step_s=step_s)
        card = found.devices[0].card
        assert card is not None
        shown = [
            at for at, power in zip(found.at, card["power_w"].mean or [], strict=True) if power is not None
        ]
        assert max(shown) < BEGAN + timedelta(seconds=300)
    kept.series.close()


@pytest.mark.parametrize("every_s", [60, 90, 300])
async def test_samples_that_stand_for_more_than_a_minute_leave_no_gap_behind(
    tmp_path: Path, every_s: int
) -> None:
    kept = Kept(tmp_path, every_s=every_s)
    await kept.rounds(0, 7200)
    found = await kept.of(step_s=3600, stopped_s=3600)
    assert found.workload["cpu_cores_used"].missing == [0.0]
    assert found.workload["cpu_cores_used"].mean == [1.5]
    assert found.overall["cpu_cores_used"].known_s >= 7200 - 2 * every_s
    kept.series.close()


async def test_a_clock_that_was_set_back_to_before_the_session_is_no_mistake_of_who_asks(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.rounds(0, 120)
    kept.now_s = -3600
    for step_s in (None, 60):
        assert (await kept.of(step_s=step_s)).overall["cpu_cores_used"].mean == 1.5
    kept.series.close()


@pytest.mark.parametrize("hours_only", [False, True])
async def test_a_window_that_begins_before_the_session_holds_nothing_that_its_card_did_for_others(
    tmp_path: Path, hours_only: bool
) -> None:
    kept = Kept(tmp_path)
    kept.lease = a_lease(devices=[a_device(1)], active_at=BEGAN + timedelta(minutes=50, seconds=30))
    await kept.rounds(0, 8000)
    if hours_only:
        with closing(sqlite3.connect(kept.path)) as connection:
            connection.execute("DELETE FROM blocks WHERE key >> 60 IN (1, 3)")
            connection.commit()
    card = (await kept.of(step_s=3600, stopped_s=70 * 60)).devices[0].card
    assert card is not None
    # 100 W: nine full minutes before the hour, and ten after it
    assert card["energy_j"].sum == ([None, None] if hours_only else [54_000.0, 60_000.0])
    assert card["energy_j"].missing == ([1, 1] if hours_only else [pytest.approx(0.053, abs=1e-3), 0])
    kept.series.close()


async def test_the_resolution_suits_the_length_and_what_is_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.now_s = 400 * 86400
    now = kept._now()

    async def chosen(back: timedelta, length: timedelta) -> tuple[str, float, int]:
        found = await kept.of(since=now - back, until=now - back + length)
        return found.level, found.step_s, len(found.at)

    hour, day = timedelta(hours=1), timedelta(days=1)
    assert await chosen(hour, hour) == ("raw", 20, 0)
    assert await chosen(2 * hour, 2 * hour) == ("minute", 60, 120)
    assert (await chosen(day, day))[:2] == ("minute", 300)
    assert (await chosen(7 * day, 7 * day))[:2] == ("hour", 3600)
    assert (await chosen(100 * day, hour))[:2] == ("hour", 3600)
    assert (await chosen(400 * day, 400 * day))[:2] == ("hour", 86400)
    with pytest.raises(BadOptions):
        await kept.of(since=now - 30 * day, until=now, step_s=60)
    kept.series.close()


async def test_a_file_that_cannot_be_read_is_all_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path)
    kept.path.write_bytes(b"no database" * 5000)
    kept.now_s = 300
    found = await kept.of(step_s=60)
    assert found.workload["cpu_cores_used"].mean == [None] * 5
    assert "could not be read" in caplog.text
    assert datetime.now(UTC) > found.to
    kept.series.close()
