"""What `allot doctor` looks at in Docker: live-restore, NVIDIA's toolkit, cgroups, firewall."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docker.errors import DockerException
from requests.exceptions import RequestException

from allotment_hub.host.checks import Finding
from allotment_hub.host.docker_client import docker_client

__all__ = ["docker_findings", "firewall_findings", "judge_engine", "judge_toolkit", "toolkit_version"]

OLDEST_TOOLKIT = (1, 20)
TOOLKIT_CONFIG = Path("/etc/nvidia-container-runtime/config.toml")
UNPRIVILEGED = "accept-nvidia-visible-devices-envvar-when-unprivileged"
LIVE_RESTORE = 'put {"live-restore": true} into /etc/docker/daemon.json, then: systemctl reload docker'


def docker_findings(*, base_url: str, real_gpus: bool) -> list[Finding]:
    """Everything about the engine; one error when it does not answer."""
    try:
        with docker_client(base_url) as client:
            info, version = client.info(), client.version()
    except (DockerException, RequestException):
        remedy = "Start it: systemctl start docker; or name its socket as docker.socket in site.yaml."
        return [Finding("docker", "error", f"Docker does not answer at {base_url}.", remedy)]
    found = judge_engine(info, str(version.get("Version", "unknown")))
    if real_gpus:
        config = TOOLKIT_CONFIG.read_text(encoding="utf-8") if TOOLKIT_CONFIG.exists() else ""
        found += judge_toolkit(toolkit_version(), config, str(info.get("DefaultRuntime", "")))
    return found


def judge_engine(info: Mapping[str, Any], version: str) -> list[Finding]:
    """From `docker info`."""
    found = [Finding("docker", "ok", f"Docker {version} answers")]
    if info.get("LiveRestoreEnabled"):
        found.append(Finding("live-restore", "ok", "sessions outlive a restart of Docker"))
    else:
        what = "A restart of Docker ends all sessions (live-restore is off)."
        found.append(Finding("live-restore", "warning", what, f"To change that, {LIVE_RESTORE}."))
    driver, generation = info.get("CgroupDriver", "unknown"), info.get("CgroupVersion", "1")
    if str(generation) == "2" and driver != "systemd" and Path("/run/systemd/system").exists():
        found.append(
            Finding(
                "cgroups",
                "warning",
                f"Docker's cgroup driver is {driver} under systemd; a daemon-reload can take GPUs away.",
                'Put {"exec-opts": ["native.cgroupdriver=systemd"]} into /etc/docker/daemon.json.',
            )
        )
    elif driver == "none":
        what = "Docker cannot limit memory and CPU (no cgroups)."
        found.append(Finding("cgroups", "error", what, "Run Docker as root, with cgroups mounted."))
    else:
        found.append(Finding("cgroups", "ok", f"cgroup driver {driver}, version {generation}"))
    for key, name in (("MemoryLimit", "memory"), ("PidsLimit", "process")):
        if info.get(key) is False:
            what = f"Docker cannot set {name} limits on this kernel."
            found.append(Finding("limits", "warning", what, "Boot with cgroup_enable=memory."))
    return found


def judge_toolkit(version: str | None, config: str, default_runtime: str) -> list[Finding]:
    """From the NVIDIA Container Toolkit's version and its config.toml (empty when there is none)."""
    if version is None:
        what = "The NVIDIA Container Toolkit is not installed: containers cannot get a GPU."
        return [Finding("toolkit", "error", what, "Install nvidia-container-toolkit 1.20 or newer.")]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    found = []
    if numbers < OLDEST_TOOLKIT:
        what = f"The NVIDIA Container Toolkit is {version}; 1.20 or newer closes known escapes."
        found.append(Finding("toolkit", "warning", what, "Update the package nvidia-container-toolkit."))
    else:
        found.append(Finding("toolkit", "ok", f"NVIDIA Container Toolkit {version}"))
    found.append(_unprivileged(config))
    if default_runtime == "nvidia":
        what = "nvidia is Docker's default runtime: every container can ask for every GPU."
        remedy = 'Remove "default-runtime" from /etc/docker/daemon.json and restart Docker.'
        found.append(Finding("runtime", "error", what, remedy))
    return found


def _unprivileged(config: str) -> Finding:
    try:
        allowed = tomllib.loads(config).get(UNPRIVILEGED, True)
    except tomllib.TOMLDecodeError:
        allowed = True
    if allowed is False:
        return Finding("unprivileged", "ok", "containers cannot take GPUs by an environment variable")
    return Finding(
        "unprivileged",
        "error",
        "Any container can take any GPU by setting NVIDIA_VISIBLE_DEVICES.",
        f"Run: nvidia-ctk config --in-place --set {UNPRIVILEGED}=false",
    )


def toolkit_version() -> str | None:
    """Of `nvidia-ctk`; None when it is not installed or does not run."""
    program = shutil.which("nvidia-ctk")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "--version"], check=False, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\d+\.\d+(?:\.\d+)?", done.stdout)
    return found.group(0) if found else None


def firewall_findings(commands: list[str], *, applied: bool | None) -> list[Finding]:
    """`applied` is None where this account cannot see it; `commands` would install the rules."""
    if applied:
        return [Finding("firewall", "ok", "containers reach only our ports on this host")]
    what = (
        "Only root can see whether containers are kept from this host's ports and the metadata address."
        if applied is None
        else "Containers can reach this host's other ports and the cloud's metadata address."
    )
    remedy = "As root run ./deploy/up, or:\n    " + "\n    ".join(commands)
    return [Finding("firewall", "warning", what, remedy)]
