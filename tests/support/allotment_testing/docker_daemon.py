"""A real dockerd of the tests' own: own socket, data, runtime folder, pid file and cgroup."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

__all__ = ["DockerDaemon", "wait_until"]

_CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{short}/containerd.sock"
"""
_HOOK_DIR = Path(__file__).parent / "bin"


def wait_until(condition: Callable[[], bool], *, limit_s: float, what: str, every_s: float = 0.05) -> None:
    """Return once `condition()` holds; AssertionError naming `what` after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(every_s)


class DockerDaemon:
    """One dockerd below `folder` (data/, exec/, docker.sock, dockerd.log). Runs in the caller's network.

    `networking` False: no bridge and no firewall rules (for building images in the host's network).
    With the stand-in NVIDIA hook on its PATH unless `nvidia` is False.
    """

    def __init__(
        self,
        folder: Path,
        *,
        networking: bool = True,
        live_restore: bool = False,
        nvidia: bool = True,
        tcp_port: int | None = None,
    ) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        # a link to the folder: a socket's path may have no more than 104 characters
        self._short = Path("/run") / f"allot-{hashlib.sha256(bytes(folder)).hexdigest()[:12]}"
        # from the folder's name, so that what a killed test run left can be found again
        self.name = f"allotment-test-{folder.name}"
        self._networking = networking
        self.live_restore = live_restore
        self._nvidia = nvidia
        self._tcp_port = tcp_port
        self._process: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"unix://{self._short / 'docker.sock'}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def client(self, timeout_s: float = 60) -> Any:
        """A docker-py APIClient; close it."""
        return docker.APIClient(base_url=self.base_url, timeout=timeout_s)

    def start(self) -> None:
        """Start (again) and return once it answers; RuntimeError with the log's end when it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._short.unlink(missing_ok=True)
        self._short.symlink_to(self.folder.absolute())
        # after a kill -9 the old pid file may name somebody else by now, and stops the start
        self.folder.joinpath("dockerd.pid").unlink(missing_ok=True)
        # else it would read the machine's own /etc/docker/daemon.json
        self.folder.joinpath("daemon.json").write_text("{}\n")
        environment = dict(os.environ)
        if self._nvidia:
            environment["PATH"] = f"{_HOOK_DIR}:{environment.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        try:
            self._start_containerd()
            self._process = self._run(self._argv(), environment)
            wait_until(self._answers, limit_s=60, what="dockerd answers")
        except AssertionError as error:
            self.kill()
            self._end_containerd()
            tail = (self.folder / "dockerd.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"dockerd did not start:\n{tail}") from error

    def kill(self) -> None:
        """kill -9 of dockerd; with live_restore the containers go on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """An orderly end; without live_restore the containers end too."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        self._end_containerd()
        if not self.live_restore:
            # nothing is left that speaks to it; a start makes the link again
            self._short.unlink(missing_ok=True)

    def _end_containerd(self) -> None:
        if self._containerd is not None:
            self._containerd.terminate()
            self._containerd.wait(30)

    def remove(self) -> None:
        """End everything of this daemon and delete its folder, also where it can be started no more."""
        try:
            if self._process is not None:
                if self._process.poll() is not None:
                    self.start()
                self._remove_containers()
                self.terminate()
        finally:
            self._kill_leftovers()
            self._unmount()
            shutil.rmtree(self.folder, ignore_errors=True)
            self._short.unlink(missing_ok=True)

    def _start_containerd(self) -> None:
        """Beside dockerd, as a system's service manager does it: it outlives a kill of dockerd.

        Returns once it listens: dockerd gives up after ten seconds, which a busy machine may take.
        """
        if self._containerd is not None and self._containerd.poll() is None:
            return
        config = self.folder / "containerd.toml"
        config.write_text(_CONTAINERD.format(folder=self.folder, short=self._short))
        self._containerd = self._run(["containerd", "--config", str(config)], dict(os.environ))
        wait_until(self._containerd_listens, limit_s=60, what="containerd listens")

    def _containerd_listens(self) -> bool:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as knock:
            return knock.connect_ex(str(self._short / "containerd.sock")) == 0

    def _run(self, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / "dockerd.log").open("ab") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def _argv(self) -> list[str]:
        argv = [
            "dockerd",
            f"--host={self.base_url}",
            f"--data-root={self.folder / 'data'}",
            f"--exec-root={self._short / 'exec'}",
            f"--pidfile={self.folder / 'dockerd.pid'}",
            f"--containerd={self._short / 'containerd.sock'}",
            f"--containerd-namespace={self.name}",
            f"--containerd-plugins-namespace={self.name}-plugins",
            f"--cgroup-parent=/{self.name}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--storage-driver=overlay2",
            f"--config-file={self.folder / 'daemon.json'}",
            "--shutdown-timeout=2",
        ]
        if self.live_restore:
            argv.append("--live-restore")
        if self._tcp_port is not None:
            argv.append(f"--host=tcp://0.0.0.0:{self._tcp_port}")
        if not self._networking:
            argv += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        return argv

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "dockerd ended"
        if not self.socket.exists():
            return False
        # a fixed version: with "auto" a refused connection would leave its socket open
        with contextlib.closing(docker.APIClient(self.base_url, version="1.41", timeout=5)) as client:
            try:
                return bool(client.ping())
            except (DockerException, RequestException):
                return False

    def _remove_containers(self) -> None:
        with contextlib.closing(self.client()) as client:
            for entry in client.containers(all=True):
                with contextlib.suppress(DockerException):
                    client.remove_container(entry["Id"], force=True, v=True)

    def _kill_leftovers(self) -> None:
        """Shims and containers that outlived a killed daemon, found by our own folder and cgroup."""
        marks = (f"/{self.name}".encode(), f"{self.folder}/".encode(), f"{self._short}/".encode())
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    told = (entry / "cgroup").read_bytes() + (entry / "cmdline").read_bytes()
                    if any(mark in told for mark in marks):
                        os.kill(int(entry.name), signal.SIGKILL)

    def _unmount(self) -> None:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
