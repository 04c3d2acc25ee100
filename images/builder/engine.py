"""Programs and the docker client, as images/build uses them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from builder.errors import BuildError

__all__ = ["Engine", "find_docker", "quoted", "run"]


def run(argv: list[str], *, env: dict[str, str] | None = None, text: str | None = None) -> str:
    """Run, hand its output on, return standard output; BuildError when it fails."""
    result = subprocess.run(argv, env=env, input=text, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.stderr.write(result.stdout)
        raise BuildError(f"{' '.join(argv[:3])} … failed with status {result.returncode}.")
    return result.stdout


def quoted(text: str) -> str:
    """What the code of an image printed: set off from the build's own words, no command to a terminal."""
    lines = ("".join(one if one.isprintable() else "?" for one in line) for line in text.splitlines())
    return "".join(f"  {line}\n" for line in lines)


def find_docker() -> str:
    """A docker client that can build with BuildKit: up to 20.10 it is built in, later it wants buildx."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    clients = [found for folder in folders if (found := shutil.which("docker", path=folder))]
    for client in dict.fromkeys(clients):
        version = subprocess.run([client, "--version"], capture_output=True, text=True, check=False).stdout
        built_in = version.startswith(("Docker version 19.", "Docker version 20."))
        buildx = [client, "buildx", "version"]
        if built_in or subprocess.run(buildx, capture_output=True, check=False).returncode == 0:
            return client
    if clients:
        raise BuildError("This docker client has no buildx: install the package docker-buildx (or -plugin).")
    raise BuildError("There is no docker client on PATH: install Docker first.")


class Engine:
    """The engine that `docker` talks to. Every call raises BuildError when the command fails."""

    def __init__(self, *, docker: str, network: str, ca_bundle: Path | None, fresh: bool) -> None:
        self._docker = docker
        self._network = network
        self._ca_bundle = ca_bundle
        self._fresh = fresh

    def build(self, context: Path, *, tag: str, arguments: dict[str, str], labels: dict[str, str]) -> None:
        """docker build with BuildKit; its output goes to standard error as it comes."""
        argv = [self._docker, "build", "--tag", tag, "--network", self._network]
        for key, value in arguments.items():
            argv += ["--build-arg", f"{key}={value}"]
        for key, value in labels.items():
            argv += ["--label", f"{key}={value}"]
        if self._ca_bundle:
            argv += ["--secret", f"id=ca_bundle,src={self._ca_bundle}"]
        if self._fresh:
            argv.append("--no-cache")
        run([*argv, str(context)], env={**os.environ, "DOCKER_BUILDKIT": "1"})

    def inspect(self, image: str) -> dict | None:
        """What the engine says of the image; None where it has none of this name."""
        argv = [self._docker, "image", "inspect", image]
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        return json.loads(result.stdout)[0] if result.returncode == 0 else None

    def inside(self, tag: str, argv: list[str], *, text: str | None = None) -> str:
        """Run in a container as a session would: no network, no capabilities, the image's user."""
        box = [self._docker, "run", "--rm", "-i", "--network", "none", "--cap-drop", "ALL", "--init"]
        return run([*box, "--security-opt", "no-new-privileges", tag, *argv], text=text)
