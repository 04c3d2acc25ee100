"""The file of samples on a real disk: rolled up whatever interrupts, pruned, set aside when it is broken."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from allotment_hub.broker.metrics.fields import WORKLOAD
from allotment_hub.broker.metrics.keeper import FileKeeper
from allotment_hub.broker.metrics.layout import HOURS, MINUTES, Shelf, key_of, open_file
from allotment_hub.broker.metrics.reading import Reader
from allotment_hub.broker.metrics.recording import Recorded
from allotment_hub.broker.metrics.writing import Writer
from allotment_hub.site import MetricSettings
from allotment_testing.sample_makers import BEGAN, a_device, a_lease, a_round

T0 = BEGAN.timestamp()
"""A full hour; the day has 12 more."""
NOTHING: list[int | None] = [None] * (len(WORKLOAD) - 1)


def cores(code: int | None, lease: str = "lease-1") -> list[Recorded]:
    return [("workload", lease, [code, *NOTHING])]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker" / "metrics.sqlite"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    with closing(open_file(path)) as connection:
        yield Writer(connection)


def roll(writer: Writer, now_s: float) -> None:
    while writer.roll_minute(now_s) or writer.roll_block(MINUTES, now_s) or writer.roll_block(HOURS, now_s):
        continue


def windows(path: Path, from_s: float, to_s: float, step_s: int, lease: str = "lease-1") -> dict[int, object]:
    """Seconds after T0 -> (seconds known, mean, maximum) of the first figure."""
    with Reader.of(path) as reader:
        assert reader is not None
        found = reader.windows("workload", lease, T0 + from_s, T0 + to_s, step_s)
    first = {number * step_s - int(T0): cells[0] for number, cells in found.items()}
    return {at: cell and (cell.known_s, cell.mean, cell.top) for at, cell in first.items()}


def test_rounds_are_read_before_and_after_they_are_rolled_up(writer: Writer, path: Path) -> None:
    for second in range(0, 90, 5):
        writer.add(T0 + second, 5, cores(second))
    with Reader.of(path) as reader:
        assert reader is not None
        before = reader.samples("workload", "lease-1", T0, T0 + 90)
        roll(writer, T0 + 90)
        after = reader.samples("workload", "lease-1", T0, T0 + 90)
        assert reader.samples("workload", "lease-1", T0 + 10, T0 + 20) == after[2:4]
        assert reader.samples("workload", "of nobody", T0, T0 + 90) == []
    assert before == after
    assert [(one.at_s - T0, one.each_s, one.codes[0]) for one in after] == [
        (s, 5, s) for s in range(0, 90, 5)
    ]
    # the minute that is not over stands only in its rounds
    assert windows(path, 0, 120, 60) == {0: (60, pytest.approx(0.275, abs=0.006), 0.55)}


def test_what_is_rolled_up_while_it_is_read_is_neither_missing_nor_doubled(
    writer: Writer, path: Path
) -> None:
    for second in range(0, 60, 5):
        writer.add(T0 + second, 5, cores(second))
    with Reader.of(path) as reader:
        assert reader is not None
        begun: list[str] = []

        def meanwhile(statement: str) -> None:
            begun.append(statement)
            if "FROM rounds" in statement:
                writer.roll_minute(T0 + 60)

        reader._connection.set_trace_callback(meanwhile)
        found = reader.samples("workload", "lease-1", T0, T0 + 60)
    assert [one.at_s - T0 for one in found] == list(range(0, 60, 5))
    assert any("FROM rounds" in statement for statement in begun)


def test_a_minute_in_which_the_interval_was_changed_weighs_each_sample_by_its_own(
    writer: Writer, path: Path
) -> None:
    for second in (0, 10):
        writer.add(T0 + second, 10, cores(400))
    for second in range(20, 60):
        writer.add(T0 + second, 1, cores(100))
    roll(writer, T0 + 60)
    assert windows(path, 0, 60, 60) == {0: (60, 2, 4)}


def test_two_years_are_read_block_by_block_and_not_minute_by_minute(writer: Writer, path: Path) -> None:
    year = 365 * 86400
    for second in (0, 5, 2 * year - 120, 2 * year - 60):
        writer.add(T0 + second, 5, cores(100))
        roll(writer, T0 + second)
    looks: list[str] = []
    with Reader.of(path) as reader:
        assert reader is not None
        reader._connection.set_trace_callback(looks.append)
        found = reader.windows("workload", "lease-1", T0, T0 + 2 * year, 86400)
    assert [cells[0] and cells[0].known_s for cells in found.values()] == [10, 5]
    assert len(looks) < 2 * 365 * 25 + 100


def test_nobody_else_may_read_what_lies_beside_the_file(writer: Writer, path: Path) -> None:
    path.parent.chmod(0o755)
    writer.add(T0, 5, cores(1))
    assert {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {
        "metrics.sqlite": 0o600,
        "metrics.sqlite-wal": 0o600,
        "metrics.sqlite-shm": 0o600,
    }


def test_two_days_become_minutes_hours_and_days(writer: Writer, path: Path) -> None:
    """Against means and maxima of the codes themselves; one hour in which the broker was away."""
    codes = {minute: (minute * 7919) % 400 for minute in range(2 * 24 * 60) if not 600 <= minute < 660}
    for minute, code in codes.items():
        writer.add(T0 + 60 * minute, 60, cores(code))
        if minute % 7 == 0:
            roll(writer, T0 + 60 * minute)
    roll(writer, T0 + 48 * 3600)
    by_minute = windows(path, 0, 48 * 3600, 60)
    assert by_minute == {
        60 * m: (60, pytest.approx(c / 100), pytest.approx(c / 100)) for m, c in codes.items()
    }
    by_hour = windows(path, 0, 48 * 3600, 3600)
    assert set(by_hour) == {3600 * hour for hour in range(48) if hour != 10}
    for begin, cell in by_hour.items():
        inside = [codes[minute] / 100 for minute in range(begin // 60, begin // 60 + 60)]
        assert cell == (3600, pytest.approx(sum(inside) / 60, abs=0.006), pytest.approx(max(inside)))
    day = windows(path, 12 * 3600, 36 * 3600, 86400)
    assert day[12 * 3600] == (86400, pytest.approx(2, abs=0.1), pytest.approx(3.99, abs=0.011))
    with closing(sqlite3.connect(path)) as connection:
        shelves = [row[0] for row in connection.execute("SELECT DISTINCT key >> 60 FROM blocks ORDER BY 1")]
    # what is not fresh any more is packed, except for the hours of the day that is not over
    assert shelves == [Shelf.RAW, Shelf.MINUTES, Shelf.HOURS, Shelf.FRESH_HOURS]


class Died(Exception):
    """A process that was killed here."""


class Machine:
    """One file that process after process works on; each dies at every so many steps."""

    def __init__(self, path: Path, *, dies_each: int | None) -> None:
        self._path = path
        self._dies_each = dies_each
        self.steps = 0
        self._start()

    def _start(self) -> None:
        self._connection = open_file(self._path)
        self._writer = Writer(self._connection, on_step=self._step)

    def _step(self, _name: str) -> None:
        self.steps += 1
        if self._dies_each is not None and self.steps % self._dies_each == 0:
            raise Died

    def does(self, work: Callable[[Writer], None]) -> None:
        for _ in range(200):
            try:
                return work(self._writer)
            except Died:
                self._connection.close()
                self._start()
        raise AssertionError("never done")

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("dies_each", [3, 4, 7])
def test_whatever_is_interrupted_the_file_says_the_same(tmp_path: Path, dies_each: int) -> None:
    smooth, bumpy = tmp_path / "smooth.sqlite", tmp_path / "bumpy.sqlite"
    machines = (Machine(smooth, dies_each=None), Machine(bumpy, dies_each=dies_each))
    for minute in (*range(65), 1500, 1501):
        rows = [*cores(minute % 50), *cores(7, "lease-2")]
        for machine in machines:
            machine.does(partial(Writer.add, at_s=T0 + 60 * minute, each_s=60, rows=rows))
            machine.does(partial(roll, now_s=T0 + 60 * minute))
    for machine in machines:
        machine.close()
    assert machines[1].steps > 100
    for step_s in (60, 3600):
        for lease in ("lease-1", "lease-2"):
            assert windows(bumpy, 0, 100_000, step_s, lease) == windows(smooth, 0, 100_000, step_s, lease)
    for path in (smooth, bumpy):
        with Reader.of(path) as reader:
            assert reader is not None
            total = reader.total("workload", "lease-1")
        assert total is not None
        assert total.cells[0] is not None
        assert (total.cells[0].known_s, total.cells[0].top) == (66 * 60, 0.49)


def test_a_clock_that_is_set_back_doubles_nothing(writer: Writer, path: Path) -> None:
    for second in range(0, 180, 5):
        writer.add(T0 + second, 5, cores(100))
        roll(writer, T0 + second)
    for second in range(60, 180, 5):
        writer.add(T0 + second, 5, cores(200))
        roll(writer, T0 + second)
    roll(writer, T0 + 10_000)
    assert windows(path, 0, 180, 60) == {0: (60, 1, 1), 60: (60, 2, 2), 120: (60, 2, 2)}
    assert windows(path, 0, 3600, 3600) == {0: (180, pytest.approx(5 / 3, abs=0.006), 2)}


def test_a_clock_that_leapt_forward_for_a_moment_keeps_nothing_from_being_stored(
    writer: Writer, path: Path
) -> None:
    year = 365 * 86400
    for second in (0, 5, year, year + 5, 10, 15, 60, 65):
        writer.add(T0 + second, 5, cores(100))
        roll(writer, T0 + second)
    roll(writer, T0 + 4000)
    assert windows(path, 0, 120, 60) == {0: (20, 1, 1), 60: (10, 1, 1)}
    with closing(sqlite3.connect(path)) as connection:
        shelves = [row[0] for row in connection.execute("SELECT key >> 60 FROM blocks ORDER BY 1")]
    # those of the leap stand neither in the way nor alone
    assert shelves.count(Shelf.FRESH_MINUTES) == 0
    assert shelves.count(Shelf.MINUTES) == 2


def settings(**changes: float) -> MetricSettings:
    return MetricSettings.model_validate({"every_s": 60, **changes})


async def kept(path: Path, afters: Sequence[float], chosen: MetricSettings) -> list[str | None]:
    """One keeper for these rounds; waits for each, as a slow clock does."""
    keeper = FileKeeper(path=path, settings=chosen)
    lease = a_lease(devices=[a_device(1)])
    said = []
    for after_s in afters:
        said.append(keeper.keep(a_round(after_s), [lease]))
        await keeper.idle()
    await keeper.close()
    return said


async def test_what_is_old_goes_level_by_level(path: Path) -> None:
    chosen = settings(keep_raw_h=0.1, keep_minutes_days=1, keep_hours_days=2)
    await kept(path, [60 * minute for minute in range(60)], chosen)
    for day in (1, 2, 3):
        await kept(path, [86400 * day + 60 * minute for minute in range(130)], chosen)
    assert windows(path, 0, 86400, 60) == {}
    assert windows(path, 0, 86400, 3600) == {}
    assert len(windows(path, 2 * 86400, 3 * 86400, 3600)) >= 1
    assert len(windows(path, 3 * 86400, 3 * 86400 + 7800, 60)) == 129
    with Reader.of(path) as reader:
        assert reader is not None
        raw = reader.samples("workload", "lease-1", T0, T0 + 4 * 86400)
    assert 5 <= len(raw) <= 20


@pytest.mark.parametrize("every_s", [90, 300])
async def test_what_is_old_goes_also_where_rounds_are_further_apart_than_a_minute(
    path: Path, every_s: int
) -> None:
    chosen = settings(every_s=every_s, keep_raw_h=0.1)
    await kept(path, range(0, 7200, every_s), chosen)
    with Reader.of(path) as reader:
        assert reader is not None
        raw = reader.samples("workload", "lease-1", T0, T0 + 7200)
    assert raw
    assert min(one.at_s for one in raw) >= T0 + 7200 - 360 - 2 * every_s - 60


async def test_a_session_that_is_long_over_is_forgotten_and_one_that_is_not_keeps_its_total(
    path: Path,
) -> None:
    chosen = settings(keep_minutes_days=1, keep_hours_days=1)
    await kept(path, [0, 60, 120], chosen)
    with Reader.of(path) as reader:
        assert reader is not None
        assert reader.total("workload", "lease-1") is not None
    keeper = FileKeeper(path=path, settings=chosen)
    for minute in range(40):
        assert keeper.keep(a_round(3 * 86400 + 60 * minute, cores=None, gpu=False), []) is None
        await keeper.idle()
    await keeper.close()
    with Reader.of(path) as reader:
        assert reader is not None
        assert reader.total("workload", "lease-1") is None
        assert reader.total("device", "lease-1/0") is None


async def test_nothing_is_pruned_by_a_clock_that_only_leapt(path: Path) -> None:
    chosen = settings(keep_raw_h=1, keep_minutes_days=1, keep_hours_days=2)
    await kept(path, [60 * minute for minute in range(70)], chosen)
    keeper = FileKeeper(path=path, settings=chosen)
    year = 365 * 86400
    for after_s in [year + 60 * minute for minute in range(10)] + [
        4200 + 60 * minute for minute in range(50)
    ]:
        keeper.keep(a_round(after_s), [a_lease()])
        await keeper.idle()
    await keeper.close()
    assert len(windows(path, 0, 3600, 60)) == 60


@pytest.mark.parametrize("damage", ["garbage", "cut", "empty table", "newer"])
async def test_a_broken_file_is_set_aside_and_a_new_one_begun(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await kept(path, [0, 60], settings())
    if damage == "garbage":
        path.write_bytes(b"no database" * 1000)
    elif damage == "cut":
        data = path.read_bytes()
        path.write_bytes(data[:16384] + b"\xff" * 40_000)
    else:
        sql = "DROP TABLE rounds" if damage == "empty table" else "PRAGMA user_version = 99"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(sql)
    said = await kept(path, [120, 180, 240, 300], settings())
    assert path.with_name("metrics.sqlite.broken").exists()
    assert said[-1] is None
    assert "set aside" in caplog.text
    assert 180 in windows(path, 0, 400, 60)


@pytest.mark.parametrize("way", ["deleted", "replaced by an older one"])
async def test_a_file_that_is_taken_away_under_the_broker_is_begun_anew(path: Path, way: str) -> None:
    await kept(path, range(0, 120, 60), settings())
    older = path.read_bytes()
    keeper = FileKeeper(path=path, settings=settings())
    lease = a_lease(devices=[a_device(1)])
    for after_s in range(120, 600, 60):
        if after_s == 360:
            path.unlink()
            if way != "deleted":
                path.write_bytes(older)
        assert keeper.keep(a_round(after_s), [lease]) is None
        await keeper.idle()
    await keeper.close()
    with Reader.of(path) as reader:
        assert reader is not None
        found = reader.samples("workload", "lease-1", T0, T0 + 600)
    later = [360, 420, 480, 540]
    assert [one.at_s - T0 for one in found] == (later if way == "deleted" else [0, 60, *later])


async def test_one_broken_block_costs_only_itself(path: Path) -> None:
    await kept(path, [60 * minute for minute in range(130)], settings())
    with closing(sqlite3.connect(path)) as connection, connection:
        begin = key_of(Shelf.MINUTES, int(T0) // 3600)
        connection.execute(
            "UPDATE blocks SET packed = x'0102' WHERE key >= ? AND key < ?",
            (begin, key_of(Shelf.MINUTES, int(T0) // 3600 + 1)),
        )
    assert set(windows(path, 0, 7200, 60)) == {60 * minute for minute in range(60, 120)}
    assert set(windows(path, 0, 7200, 3600)) == {0, 3600}


async def test_a_full_disk_breaks_nothing_and_what_was_taken_down_is_rolled_up_later(path: Path) -> None:
    with closing(open_file(path)) as connection:
        [pages] = connection.execute("PRAGMA page_count").fetchone()
    keeper = FileKeeper(path=path, settings=settings(), limit_pages=pages)
    lease = a_lease(devices=[a_device(1)])
    said = []
    for minute in range(200):
        said.append(keeper.keep(a_round(60 * minute), [lease]))
        await keeper.idle()
    await keeper.close()
    assert "full" in (said[-1] or "")
    assert not path.with_name("metrics.sqlite.broken").exists()
    # with room again, what was kept is still there, and new rounds are kept
    assert (await kept(path, [60 * minute for minute in range(200, 210)], settings()))[-1] is None
    found = windows(path, 0, 60 * 210, 60)
    assert {0, 60 * 100, 60 * 205} <= set(found)


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "broker").write_text("not a folder")
    said = await kept(tmp_path / "broker" / "metrics.sqlite", [0, 60], settings())
    assert said[0] is None
    assert "cannot be written" in (said[1] or "")
