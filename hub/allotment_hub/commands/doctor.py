"""`allot doctor`: everything that could keep Allotment from working here, each with its remedy."""

from __future__ import annotations

import os
from dataclasses import asdict

import typer
from allotment.console import AsJson, DataDir, print_json, screen
from rich.console import Console

from allotment_hub.commands.installation import paths_of
from allotment_hub.config_loading import ConfigError, load_configuration
from allotment_hub.host.checkout import version
from allotment_hub.host.checks import Finding, machine_findings, rights_finding
from allotment_hub.host.control import running
from allotment_hub.host.data_checks import data_findings
from allotment_hub.host.disk_checks import floor_findings, quota_findings
from allotment_hub.host.docker_checks import docker_findings, firewall_findings
from allotment_hub.host.docker_host import DockerHost, DockerProblem
from allotment_hub.host.hardware import driver_gpus
from allotment_hub.host.layout import read_runtime, read_secret_text
from allotment_hub.host.ports import can_listen
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.specs import SERVICES
from allotment_hub.host.waiting import read_state, session_problem
from allotment_hub.paths import Paths
from allotment_hub.people.journal import Journal
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["register"]

_MARKS = {"ok": ("green", "ok"), "warning": ("yellow", "warning"), "error": ("red", "problem")}


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(doctor)


def doctor(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Look at this machine, its Docker and the installation. Exit 1 when something is a problem."""
    findings = examine(paths_of(data_dir))
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        _print(screen(), findings)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def examine(paths: Paths) -> list[Finding]:
    """All findings; nothing is changed and nothing raises."""
    findings = machine_findings(paths)
    site = _site(paths, findings)
    settings, runtime = HostSettings.load(paths.data), read_runtime(paths)
    findings.append(_gpus(runtime))
    findings += _leaving(paths)
    if settings is None or runtime is None:
        findings.append(Finding("services", "warning", "Allotment was not started yet.", "Run ./deploy/up."))
    else:
        findings += [*_rights(settings), *_services(paths, settings)]
        findings += quota_findings(site, paths, settings)
    findings += floor_findings(site, paths, settings)
    wants_docker = runtime is None or runtime.engine == "docker"
    engine = docker_findings(base_url=site.docker.socket, real_gpus=driver_gpus()[0] > 0)
    if not wants_docker:
        # It is not needed here: what is amiss with it is no problem.
        engine = [_soften(finding) for finding in engine]
    findings += engine
    if wants_docker:
        findings += data_findings(site, paths)
    if settings is not None and runtime is not None and runtime.engine == "docker":
        findings += _firewall(site, settings, runtime)
    return findings


def _site(paths: Paths, findings: list[Finding]) -> Site:
    if not paths.site.exists():
        return Site()
    try:
        site, _ = load_configuration(site=paths.site, catalog=paths.catalog)
    except ConfigError as error:
        findings += [Finding("configuration", "error", line, "Correct it.") for line in error.findings]
        return Site()
    findings.append(Finding("configuration", "ok", f"{paths.site.parent} is sound"))
    return site


def _leaving(paths: Paths) -> list[Finding]:
    """People whose leaving was cut short."""
    return [
        Finding(
            "people",
            "warning",
            f"{leaving.user} has not left whole (done: {', '.join(leaving.done) or 'nothing'}).",
            f"Finish it: allot people offboard {leaving.user}",
        )
        for leaving in Journal.unfinished(paths.offboard)
    ]


def _gpus(runtime: Runtime | None) -> Finding:
    count, problem = driver_gpus()
    if count:
        return Finding("gpus", "ok", f"{count} NVIDIA GPUs")
    if runtime is not None and runtime.gpus == "nvml":
        return Finding("gpus", "error", problem, "Install or repair NVIDIA's driver; nvidia-smi must work.")
    simulated = runtime is None or runtime.gpus.startswith("sim:")
    what = f"{problem} {'GPUs are simulated.' if simulated else 'Only CPU flavors can be used.'}"
    return Finding("gpus", "warning", what, "For real GPUs install NVIDIA's driver, then ./deploy/up again.")


def _rights(settings: HostSettings) -> list[Finding]:
    found = rights_finding(settings.user)
    return [] if found is None else [found]


def _services(paths: Paths, settings: HostSettings) -> list[Finding]:
    if not running(paths):
        found = []
        if can_listen(settings.bind, settings.port) is not None:
            what = f"Port {settings.port} on {settings.bind} is in use by another program."
            found.append(Finding("port", "error", what, "Stop it, or use another: ./deploy/up --port."))
        return [*found, Finding("services", "warning", "The services do not run.", "Run ./deploy/up.")]
    found = []
    for name in SERVICES:
        state = read_state(paths).get(name, {})
        if state.get("ready"):
            found.append(Finding(name, "ok", f"{name} runs (process {state.get('pid')})"))
        else:
            remedy = f"See {paths.logs / f'{name}.log'}."
            found.append(
                Finding(name, "error", f"{name} is not ready ({state.get('deaths', 0)} deaths).", remedy)
            )
    problem = session_problem(settings, token=read_secret_text(paths, "admin"))
    if problem:
        found.append(Finding("sessions", "error", problem, f"See the logs in {paths.logs}."))
    else:
        found.append(Finding("sessions", "ok", "a session could start now"))
    return found


def _firewall(site: Site, settings: HostSettings, runtime: Runtime) -> list[Finding]:
    host = DockerHost(
        settings=site.docker, installation=runtime.installation, version=version(), real_gpus=False
    )
    try:
        firewall, rules = host.firewall(ports=(settings.hub_port, settings.broker_port, settings.port))
    except DockerProblem:
        return []  # said already
    return firewall_findings(rules.commands(), applied=firewall.applied(rules) if os.geteuid() == 0 else None)


def _soften(finding: Finding) -> Finding:
    if finding.level == "error":
        return Finding(
            finding.name, "warning", finding.what, f"Only needed for Docker sessions. {finding.remedy}"
        )
    return finding


def _print(console: Console, findings: list[Finding]) -> None:
    for finding in findings:
        style, word = _MARKS[finding.level]
        console.print(f"{word:8}", style=style, end=" ")
        console.print(f"{finding.name}: {finding.what}", markup=False, soft_wrap=True)
        if finding.remedy and finding.level != "ok":
            console.print(f"         {finding.remedy}", markup=False, soft_wrap=True)
