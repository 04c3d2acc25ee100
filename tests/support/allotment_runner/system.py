"""System packages that some layers need, and whether an NVIDIA driver answers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

__all__ = ["NEEDS", "PACKAGES", "driver_answers", "ensure_packages", "missing_packages", "need_engine"]

SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/local/sbin"))


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name, path=SEARCH) is not None


def _postgres() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


PACKAGES: dict[str, Callable[[], bool]] = {
    "docker.io": _program("dockerd"),
    "debootstrap": _program("debootstrap"),
    "docker-registry": _program("docker-registry"),
    "btrfs-progs": _program("mkfs.btrfs"),
    "e2fsprogs": _program("mkfs.ext4"),
    "xfsprogs": _program("mkfs.xfs"),
    "chromium": _program("chromium"),
    "iproute2": _program("ip"),
    "iptables": _program("iptables"),
    "postgresql": _postgres,
    "tini": _program("tini"),
    "git": _program("git"),
    "procps": _program("ps"),
    "prometheus": _program("promtool"),
    "python3-venv": lambda: find_spec("ensurepip") is not None,
}
_DOCKER = frozenset({"docker.io", "debootstrap", "iproute2", "iptables", "tini"})
_DISKS = frozenset({"btrfs-progs", "e2fsprogs", "xfsprogs"})
NEEDS: dict[str, frozenset[str]] = {
    "house": frozenset({"git"}),
    "broker": frozenset({"prometheus"}),
    "contract": _DOCKER | _DISKS | {"postgresql"},
    "docker": _DOCKER | _DISKS | {"docker-registry"},
    "recovery": _DOCKER | _DISKS | {"procps"},
    "e2e": _DOCKER | {"chromium", "git"},
    "bench-spawn": _DOCKER,
    "bench-images": _DOCKER,
}


def missing_packages(layers: Iterable[str]) -> list[str]:
    """Debian packages that these layers need and that are not there."""
    wanted = {"python3-venv"} | {package for layer in layers for package in NEEDS.get(layer, ())}
    return sorted(package for package in wanted if not PACKAGES[package]())


def need_engine(layers: Iterable[str]) -> bool:
    """Whether any of these layers starts Docker engines of its own."""
    return any(NEEDS.get(layer, frozenset()) >= _DOCKER for layer in layers)


def ensure_packages(layers: Iterable[str]) -> None:
    """Install what is missing (root on Debian); otherwise end with the command that would."""
    missing = missing_packages(layers)
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(
            f"These tests need {', '.join(missing)}. Install them as root, for example with: "
            f"sudo apt-get install --no-install-recommends {' '.join(missing)}"
        )
    print(f"installing {', '.join(missing)} …", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def driver_answers() -> bool:
    """Whether NVML loads and initialises: then the tests marked `gpu` run too."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return False
        library.nvmlShutdown()
    except (OSError, AttributeError):
        return False
    return True
