"""The images that tests run: built once with the real images/build, kept in a cache outside the tree."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from allotment_testing.docker_daemon import DockerDaemon

__all__ = ["BASE_IMAGE", "CA_BUNDLE", "cache_folder", "clone_images", "ensure_images", "image_tag"]

BASE_IMAGE = "debian:bookworm-slim"
ROOT = Path(__file__).resolve().parents[3]
TORCH = "torch==2.13.0"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def cache_folder() -> Path:
    """Kept between runs; ALLOTMENT_TEST_CACHE, else ~/.cache/allotment-tests."""
    return Path(os.environ.get("ALLOTMENT_TEST_CACHE") or Path.home() / ".cache" / "allotment-tests")


def image_tag(environment: str) -> str:
    """The tag that ensure_images gives, e.g. allotment/minimal:0.1.0-cpu."""
    version = (ROOT / "spawner" / "VERSION").read_text().strip()
    return f"allotment/{environment}:{version}-cpu"


def ensure_images(*environments: str) -> None:
    """Build what is missing or out of date; quick when nothing changed. Needs a network and root.

    Call it outside private_network().
    """
    with _locked(fcntl.LOCK_EX):
        done = cache_folder() / "built"
        done.mkdir(exist_ok=True)
        prints = {one: _fingerprint(one) for one in environments}
        missing = [one for one in environments if _read(done / one) != prints[one]]
        if not missing:
            return
        daemon = DockerDaemon(_builder(), networking=False)
        daemon.start()
        try:
            _import_base(daemon)
            _build(daemon, missing)
        finally:
            daemon.terminate()
        for one in missing:
            (done / one).write_text(prints[one])


def clone_images(folder: Path) -> Path:
    """Lay the built images into `folder`/data, at once and without taking space; returns `folder`.

    Layers are never written by an engine, so they are linked; its databases are copied.
    """
    target = folder / "data" / "overlay2"
    source = _builder() / "data" / "overlay2"
    with _locked(fcntl.LOCK_SH):
        target.mkdir(parents=True)
        shutil.copytree(_builder() / "data" / "image", folder / "data" / "image")
        shutil.copytree(source / "l", target / "l", symlinks=True)
        for layer in source.iterdir():
            # besides layers: short names (l) and a device node that the engine makes itself
            if layer.is_dir() and layer.name != "l":
                (target / layer.name).symlink_to(layer)
    return folder


@contextlib.contextmanager
def _locked(kind: int) -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, kind)
        yield


def _builder() -> Path:
    return cache_folder() / "builder"


def _read(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


def _fingerprint(environment: str) -> str:
    """Of everything that this environment's image is made of."""
    images = ROOT / "images"
    sources = [images / name for name in ("build", "builder", "finish", "packages")]
    sources += [images / name for name in _chain(environment)]
    sources += [ROOT / "extensions", ROOT / "spawner" / "VERSION"]
    found = (each for source in sources for each in ([source] if source.is_file() else source.rglob("*")))
    total = hashlib.sha256()
    for file in sorted(one for one in found if one.is_file() and not _made(one)):
        total.update(f"{file.relative_to(ROOT)}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _made(file: Path) -> bool:
    """Whether running or installing left it in the tree."""
    return any(part == "__pycache__" or part.endswith(".egg-info") for part in file.parts)


def _chain(environment: str) -> list[str]:
    """The environment and what it is built upon."""
    text = (ROOT / "images" / environment / "environment.yaml").read_text()
    bases = [line.removeprefix("base: ").strip() for line in text.splitlines() if line.startswith("base: ")]
    return [environment, *(name for base in bases for name in _chain(base))]


def _import_base(daemon: DockerDaemon) -> None:
    """debian:bookworm-slim without a registry: debootstrap from the mirror that this machine uses."""
    with contextlib.closing(daemon.client(timeout_s=300)) as client:
        if client.images(BASE_IMAGE):
            return
        archive = cache_folder() / "bookworm.tar"
        if not archive.exists():
            _debootstrap(archive)
        client.import_image(src=str(archive), repository="debian", tag="bookworm-slim")


def _debootstrap(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        root = Path(scratch) / "root"
        argv = ["debootstrap", "--variant=minbase", "bookworm", str(root), _mirror()]
        subprocess.run(argv, check=True, capture_output=True)
        for trash in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
            shutil.rmtree(root / trash, ignore_errors=True)
        (root / "var/cache/apt/archives/partial").mkdir(parents=True)
        part = archive.with_suffix(".part")
        subprocess.run(["tar", "-C", str(root), "-cf", str(part), "."], check=True)
        part.rename(archive)


def _mirror() -> str:
    form = "$(REPO_URI) $(RELEASE)"
    argv = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    for line in told.splitlines():
        uri, _, release = line.partition(" ")
        if release == "bookworm":
            return uri
    raise RuntimeError("this machine's apt sources name no bookworm mirror")


def _build(daemon: DockerDaemon, environments: list[str]) -> None:
    argv = [sys.executable, str(ROOT / "images" / "build"), *environments, "--variant", "cpu"]
    # the network that tests may use holds packages, no advisories
    argv += ["--no-audit"]
    argv += ["--base", BASE_IMAGE, "--network", "host"]
    if CA_BUNDLE.exists():
        argv += ["--ca-bundle", str(CA_BUNDLE)]
    if any("pytorch" in _chain(one) for one in environments):
        argv += ["--wheels", str(_torch_wheel())]
    log = cache_folder() / "images.log"
    with log.open("w") as out:
        environment = {**os.environ, "DOCKER_HOST": daemon.base_url}
        result = subprocess.run(argv, env=environment, stdout=out, stderr=out, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"images/build failed:\n{log.read_text(errors='replace')[-4000:]}")


def _torch_wheel() -> Path:
    """A folder with the CPU wheel, as pip finds it."""
    folder = cache_folder() / "wheels"
    if not list(folder.glob("torch-*.whl")):
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), TORCH]
        subprocess.run(argv, check=True)
    return folder


if __name__ == "__main__":
    ensure_images(*sys.argv[1:])
