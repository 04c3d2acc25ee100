"""Installed packages in real containers: they stay, apart from everybody else's, and never in the way."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.docker_daemon import DockerDaemon, wait_until
from allotment_testing.docker_image_bed import SERVE, ImageBed, image_bed
from allotment_testing.tiny_wheels import tiny_wheel

ROOT = "/home/jovyan/.allotment/packages/minimal/python3.11"
SITE = f"{ROOT}/lib/python3.11/site-packages"
ROUNDS = 3 if os.environ.get("ALLOTMENT_KILL_MATRIX") == "full" else 1
PIP = "pip install --no-index --find-links ~/wheels --disable-pip-version-check -q"


@pytest.fixture(scope="module")
def bed(daemon: DockerDaemon) -> Iterator[ImageBed]:
    with image_bed(daemon, "minimal") as made:
        yield made


class Person:
    """A container with the home of one person, who works in a terminal."""

    def __init__(self, bed: ImageBed, ref: str) -> None:
        self.bed, self.ref = bed, ref

    def sh(self, script: str, *, good: bool = True) -> str:
        code, text = self.bed.inside(self.ref, "bash", "-lc", script)
        assert (code == 0) is good, f"{script}\n{text}"
        return text.strip()

    def put(self, *files: Path, folder: str = "wheels") -> None:
        """Into a folder of the home, as the person's."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for file in files:
                entry = archive.gettarinfo(file, arcname=f"{folder}/{file.name}")
                entry.uid, entry.gid, entry.mode = 1000, 100, 0o755
                with file.open("rb") as opened:
                    archive.addfile(entry, opened)
        self.bed.client.put_archive(self.ref, "/home/jovyan", packed.getvalue())

    def clean_home(self) -> None:
        self.sh("rm -rf ~/.allotment ~/.local ~/wheels; mkdir -p ~/wheels ~/src")


@pytest.fixture(scope="module")
def containers(bed: ImageBed) -> tuple[str, str]:
    """Two sessions of one person at once: they share the home."""
    made = [
        bed.start(
            f"packages-{number}",
            ["sleep", "3600"],
            ALLOTMENT_ENVIRONMENT="minimal",
            ALLOTMENT_VERSION="ab" * 6,
        )
        for number in (1, 2)
    ]
    return made[0], made[1]


@pytest.fixture
def ada(bed: ImageBed, containers: tuple[str, str], tmp_path: Path) -> Person:
    person = Person(bed, containers[0])
    person.clean_home()
    wheels = [
        tiny_wheel(tmp_path, "alpha", scripts={"alpha": "alpha:main"}),
        tiny_wheel(tmp_path, "alpha", "2.0", scripts={"alpha": "alpha:main"}),
        tiny_wheel(tmp_path, "beta", requires=["alpha<2"]),
    ]
    person.put(*wheels)
    return person


def kernel_says(person: Person, code: str) -> str:
    """What a kernel prints, started as the server starts it: from an isolated process."""
    script = (
        "import sys, jupyter_client.manager as m\n"
        "k = m.KernelManager(kernel_name='python3', transport='ipc'); k.start_kernel(); c = k.client()\n"
        "c.start_channels(); c.wait_for_ready(timeout=60); out = []\n"
        "r = c.execute_interactive(sys.argv[1], timeout=60, output_hook=out.append)\n"
        "print(''.join(o['content'].get('text', '') for o in out))\n"
        "c.stop_channels(); k.shutdown_kernel(now=True); sys.exit(r['content']['status'] != 'ok')\n"
    )
    status, text = person.bed.inside(person.ref, "python3", "-I", "-c", script, code)
    assert status == 0, text
    return text


def test_everything_about_pip_works_in_kernel_and_terminal(ada: Person) -> None:
    pip = "%pip install --no-index --find-links /home/jovyan/wheels -q beta"
    said = kernel_says(ada, f"{pip}\nimport alpha, beta\nprint(alpha.__file__)\n!alpha")
    # in the kernel that installed it, without a restart
    assert f"{SITE}/alpha/__init__.py\n1.0" in said
    assert ada.sh("python3 -c 'import alpha; print(alpha.VERSION)'; alpha; command -v alpha") == (
        f"1.0\n1.0\n{ROOT}/bin/alpha"
    )
    assert "beta" in ada.sh("pip list --user 2>/dev/null")
    ada.sh("pip uninstall -y -q beta && ! python3 -c 'import beta' 2>/dev/null")
    ada.sh(f"{PIP} -U alpha && python3 -c 'import alpha; assert alpha.VERSION == \"2.0\"'")
    # what the image brings is shadowed, never changed
    assert "alpha" in ada.sh("pip freeze --user")
    assert ada.sh("ls -A ~/.local 2>&1", good=False).endswith("No such file or directory")


def test_they_are_there_in_the_next_session(ada: Person, bed: ImageBed, containers: tuple[str, str]) -> None:
    # its script too, in a terminal that was open before anything was installed
    assert ada.sh(f"{PIP} alpha && alpha") == "2.0"
    assert Person(bed, containers[1]).sh("python3 -c 'import alpha; print(alpha.VERSION)'") == "2.0"


def test_old_packages_in_dot_local_are_not_read(ada: Person) -> None:
    old = "~/.local/lib/python3.11/site-packages"
    ada.sh(f"mkdir -p {old} && echo 'import os; os._exit(9)' > {old}/evil.pth && touch {old}/gamma.py")
    assert ada.sh("python3 -c 'print(1)'; pip --version | cut -c1-3") == "1\npip"
    ada.sh("python3 -c 'import gamma'", good=False)


def test_other_pythons_are_left_alone(ada: Person) -> None:
    """Virtual environments, and a Python of another prefix, as conda's and uv's are."""
    ada.sh(f"{PIP} alpha")
    ada.sh("rm -rf ~/venv ~/other; python3 -m venv --without-pip ~/venv; mkdir -p ~/other/bin ~/other/lib")
    ada.sh("~/venv/bin/python -c 'import alpha'", good=False)
    ada.sh(
        "python3 -m venv --without-pip --system-site-packages ~/venv && ! ~/venv/bin/python -c 'import alpha'"
    )
    # the image's pip for the other environment, as `pip --python` runs it
    ada.sh("pip --python ~/venv/bin/python install -q --no-index --find-links ~/wheels alpha==1.0")
    assert ada.sh("~/venv/bin/python -c 'import alpha; print(alpha.VERSION)'; ~/venv/bin/alpha") == "1.0\n1.0"
    assert ada.sh("python3 -c 'import alpha; print(alpha.VERSION)'; alpha") == "2.0\n2.0"
    ada.sh("cp /usr/bin/python3.11 ~/other/bin/python && ln -s /usr/lib/python3.11 ~/other/lib/python3.11")
    assert ada.sh("~/other/bin/python -c 'import sys; print(sys.prefix)'") == "/home/jovyan/other"
    ada.sh("~/other/bin/python -c 'import alpha'", good=False)


BUILD_SYSTEM = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import zipfile
try:
    import alpha
    SAW = "the overlay"
except ImportError:
    SAW = "no overlay"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "delta-1.0-py3-none-any.whl", "delta-1.0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("delta.py", f"SAW = {SAW!r}")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: delta\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "delta.py,,\\n")
    return name
"""


def test_building_a_package_sees_no_overlay(ada: Person, tmp_path: Path) -> None:
    """pip builds in an environment of its own: no package of the person's gets into it."""
    (tmp_path / "pyproject.toml").write_text(BUILD_SYSTEM)
    (tmp_path / "backend.py").write_text(BACKEND)
    ada.put(tmp_path / "pyproject.toml", tmp_path / "backend.py", folder="src")
    ada.sh(f"{PIP} alpha && {PIP} ~/src")
    assert ada.sh("python3 -c 'import delta; print(delta.SAW)'") == "no overlay"


def test_two_sessions_install_at_once(
    ada: Person, bed: ImageBed, containers: tuple[str, str], tmp_path: Path
) -> None:
    """One after the other: what each one installs is whole."""
    names = [f"pack{number}" for number in range(4)]
    ada.put(*(tiny_wheel(tmp_path, name, files=many_files(name)) for name in names))
    errors: list[str] = []

    def install(ref: str) -> None:
        for _ in range(ROUNDS):
            code, text = bed.inside(ref, "bash", "-lc", f"{PIP} --force-reinstall {' '.join(names)}")
            if code:
                errors.append(text)

    threads = [threading.Thread(target=install, args=(ref,)) for ref in containers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert json.loads(ada.sh("allot env check --json"))["problems"] == []
    assert ada.sh(f"ls -d {SITE}/~* 2>/dev/null | wc -l") == "0"


def many_files(name: str) -> dict[str, str]:
    return {f"{name}/__init__.py": ""} | {f"{name}/m{number}.py": f"N = {number}\n" for number in range(100)}


def test_a_poisoned_overlay_harms_its_owners_kernels_only(ada: Person, bed: ImageBed, tmp_path: Path) -> None:
    """The server runs on, nobody else notices, and the way back works."""
    for name in ("sitecustomize.py", "usercustomize.py", "evil.pth"):
        (tmp_path / name).write_text("import os; os._exit(3)\n")
    for name in ("allot", "ls", "bash", "jupyter", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 9\n")
    ada.sh(f"{PIP} alpha")
    ada.put(*tmp_path.glob("*.p*"), folder=SITE.removeprefix("/home/jovyan/"))
    ada.put(
        *(one for one in tmp_path.iterdir() if not one.suffix),
        folder=ROOT.removeprefix("/home/jovyan/") + "/bin",
    )
    assert bed.inside(ada.ref, "python3", "-c", "print(1)")[0] == 3
    server = bed.start("poisoned", SERVE, ALLOTMENT_ENVIRONMENT="minimal")
    bed.answers(server)
    stranger = bed.start("stranger", ["sleep", "3600"], ALLOTMENT_ENVIRONMENT="minimal", HOME="/tmp")
    assert bed.inside(stranger, "python3", "-c", "print(1)") == (0, "1\n")
    status, text = bed.inside(server, "/usr/local/bin/allot", "env", "check")
    assert (status, "Python does not start with these packages" in text) == (1, True), text
    status, text = bed.inside(server, "/usr/local/bin/allot", "env", "aside", "--yes")
    assert status == 0, text
    assert bed.inside(ada.ref, "python3", "-c", "print(1)") == (0, "1\n")


def test_a_new_image_is_noticed_in_the_background(ada: Person, bed: ImageBed) -> None:
    """The image is another one than the packages were installed in, and one does not work in it."""
    ada.sh(f"{PIP} alpha && echo 'raise ImportError(\"libold.so.1\")' > {SITE}/alpha/__init__.py")
    ada.sh(f'sed -i \'s/"base": "/"base": "0/\' {ROOT}/made-for.json')
    server = bed.start("updated", SERVE, ALLOTMENT_ENVIRONMENT="minimal")
    bed.answers(server)

    def status() -> Any:
        script = "import json, allotment.packages as p; print(json.dumps(p.status()))"
        return json.loads(bed.inside(server, "python3", "-I", "-c", script)[1])

    wait_until(lambda: status()["state"] == "broken", limit_s=90, what="the overlay is found broken")
    assert "libold.so.1" in status()["sentence"]
    terminal = bed.inside(server, "bash", "-lc", "true")[1]
    assert "libold.so.1" in terminal
    assert "allot env clean" in terminal
    ada.sh("allot env clean --yes")
    assert status() == {"state": "none"}
    assert bed.inside(server, "bash", "-lc", "true")[1] == ""
