"""A real Prometheus scrapes a broker at work: promtool, every query of the dashboard, every alert rule."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from allotment_hub.site import MetricSettings, Site
from allotment_spawner.core.samples import WorkloadSample
from allotment_spawner.engines.base import Workload
from allotment_spawner.gpu.simulator.state import SimWork
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api, until
from allotment_testing.prometheus_server import PrometheusServer, configured, prometheus_server

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "allotment.json"
READ_METRICS = "read:metrics"
GIB = 2**30
# What Grafana puts in for its own variables and ours.
VARIABLES = {"$__rate_interval": "30s", "$__range": "1h", "$job": ".*", "$flavor": ".*"}
NOTHING_TO_SHOW = ("allotment_gpu_clock_reason", "allotment_collector_missed_total")
"""Without trouble there are no series of these: a clock that is held down, rounds without an answer."""


@dataclass
class SamplerThatAdvances:
    """Every look finds each session a little further on."""

    looks: int = 0

    async def sample(self, workloads: Sequence[Workload]) -> Mapping[str, WorkloadSample]:
        self.looks += 1
        return {one.lease: self._of(one.lease) for one in workloads if one.lease is not None}

    def _of(self, lease: str) -> WorkloadSample:
        grown = self.looks * 2**20
        return WorkloadSample(
            lease=lease,
            cpu_s=0.5 * self.looks,
            memory_used_bytes=GIB,
            memory_limit_bytes=4 * GIB,
            disk_read_bytes=grown,
            disk_write_bytes=grown,
            network_rx_bytes=grown,
            network_tx_bytes=grown,
            processes=7,
        )


async def at_work(api: BrokerApi) -> None:
    """Sessions on a slice and a card that are busy, one that waits, one that is over, one refused."""
    api.hub.add_user("ann")
    api.hub.add_user("ben")
    over = await api.session("ann", server="over")
    await api.session("ann", flavor="gpu-10gb")
    await api.session("ben", flavor="gpu-full")
    await api.lease("ann", server="waits", flavor="gpu-full")
    async with api.client(HUB_TOKEN) as hub:
        await hub.delete(f"leases/{over}?reason=stopped")
        body = {"user": "ben", "server": "x", "environment": "minimal", "flavor": "staff"}
        assert (await hub.post("leases", json=body, headers={"Idempotency-Key": "a"})).status_code == 403
    for gpu in (await api.agent.inventory()).gpus:
        device = next((piece.uuid for piece in gpu.slices if piece.uuid), None) if gpu.mig else gpu.uuid
        assert device is not None
        api.agent.control.load(device, used_bytes=4 * GIB, work=SimWork(sm_percent=70, power_w=250))


@dataclass
class Watched:
    api: BrokerApi
    prometheus: PrometheusServer
    page: str


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    """From its first scrape on there is also trouble: errors of a card, so that growth can be seen."""
    async with AsyncExitStack() as open_:
        made = broker_api(
            tmp_path / "data", site=Site(metrics=MetricSettings(every_s=1)), sampler=SamplerThatAdvances()
        )
        api = await open_.enter_async_context(made)
        url = await open_.enter_async_context(api.served())
        await at_work(api)
        token = api.hub.add_token("ann", READ_METRICS)
        server = prometheus_server(tmp_path / "prometheus", target=url, token=token)
        prometheus = await open_.enter_async_context(server)
        await prometheus.until("count_over_time(up[1m]) >= 2")
        cards = (await api.agent.inventory()).gpus
        api.agent.control.ecc(cards[0].uuid, corrected=3, uncorrected=1)
        api.agent.control.fault(cards[0].uuid, 31)
        await prometheus.until("increase(allotment_gpu_xid_errors_total[1m]) > 0")
        await prometheus.until("count_over_time(up[1m]) >= 6")
        async with api.client(token) as client:
            page = (await client.get("http://broker/services/allotment/metrics")).text
        yield Watched(api, prometheus, page)


def promtool(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def expressions(dashboard: Any) -> Iterator[tuple[str, str]]:
    """(panel, query) with Grafana's variables put in."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, (panel["title"], expression)
            yield panel["title"], expression


async def test_everything_that_is_asked_is_there(watched: Watched) -> None:
    said = await asyncio.to_thread(promtool, "check", "metrics", stdin=watched.page)
    assert said == ""  # nothing against Prometheus' conventions
    await _dashboard(watched.prometheus)
    await _rules(watched)
    _names(watched)
    (up,) = await watched.prometheus.query("up")
    assert up["value"][1] == "1"
    energy = await watched.prometheus.query("increase(allotment_gpu_energy_joules_total[1m]) > 0")
    assert len(energy) == 2
    busy = await watched.prometheus.query('allotment_gpu_sm_utilization_ratio{flavor="gpu-full"}')
    assert [float(one["value"][1]) for one in busy] == [0.7]
    used = await watched.prometheus.query("allotment_session_cpu_used_cores > 0")
    assert len(used) == 2


async def _dashboard(prometheus: PrometheusServer) -> None:
    """Every query finds something now."""
    dashboard = json.loads(DASHBOARD.read_text())
    empty = []
    for panel, expression in expressions(dashboard):
        found = await prometheus.query(expression)
        if not found and not any(name in expression for name in NOTHING_TO_SHOW):
            empty.append((panel, expression))
    assert empty == []


async def _rules(watched: Watched) -> None:
    """Prometheus took every rule, and evaluates each without an error; what is wrong fires."""
    await watched.prometheus.until('ALERTS{alertname="AllotmentGpuXid", alertstate="firing"}')
    groups = (await watched.prometheus.get("rules"))["groups"]
    found = {rule["name"]: (rule["health"], rule["state"]) for group in groups for rule in group["rules"]}
    written = [
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    assert sorted(found) == sorted(written)
    assert {name for name, (health, _) in found.items() if health != "ok"} == set()
    assert found["AllotmentGpuMemoryErrors"][1] == "firing"
    assert found["AllotmentDown"][1] == "inactive"


def _names(watched: Watched) -> None:
    """Also what finds nothing without trouble is there: a mistyped name would never find anything."""
    there = set(re.findall(r"^# TYPE (\S+)", watched.page, flags=re.MULTILINE))
    asked = " ".join(expression for _, expression in expressions(json.loads(DASHBOARD.read_text())))
    asked += RULES.read_text()
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\ballotment_\w+", asked)}
    assert names - there == set()
    assert watched.api.hub.users["ann"].name not in watched.page.split()


def test_the_dashboard_can_be_imported() -> None:
    """No two panels at one place or with one number, and every query asks the Prometheus that is chosen."""
    dashboard = json.loads(DASHBOARD.read_text())
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken.keys(), panel["title"]
        taken |= dict.fromkeys(cells, panel["title"])
        for target in panel.get("targets", ()):
            assert (
                target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            )
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert [one["name"] for one in dashboard["templating"]["list"]] == ["datasource", "job", "flavor"]
    assert "id" not in dashboard


def test_the_rules_fire_when_they_should() -> None:
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(ROOT / "tests" / "data" / "alerts.test.yaml"))
    tested = set(re.findall(r"alertname: (\w+)", (ROOT / "tests" / "data" / "alerts.test.yaml").read_text()))
    rules = [
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    assert set(rules) - tested == set()


def test_the_configuration_is_one(tmp_path: Path) -> None:
    promtool("check", "config", str(configured(tmp_path, target="http://127.0.0.1:8000/", token="x")))


async def test_what_cannot_answer_is_seen(tmp_path: Path) -> None:
    """An agent that is silent: no values of before, and the metric that says so."""
    async with broker_api(tmp_path, site=Site(metrics=MetricSettings(every_s=1))) as api:
        token = api.hub.add_token(api.hub.add_user("ann").name, READ_METRICS)
        await api.session("ann", flavor="gpu-full")
        api.agent.stop_answering()
        await until(lambda: api.broker.monitoring.collector.missed["agent"] > 0)  # type: ignore[attr-defined]
        async with api.client(token) as client, asyncio.timeout(15):
            page = ""
            while "allotment_agent_up 0.0" not in page:
                page = (await client.get("http://broker/services/allotment/metrics")).text
    assert 'allotment_collector_missed_total{source="agent"}' in page
    assert "\nallotment_gpu_sm_utilization_ratio{" not in page
    # nor what could start or can be used: nobody knows
    for name in ("allotment_flavor_free", "allotment_flavor_capacity", "allotment_gpu_healthy"):
        assert f"\n{name}{{" not in page
