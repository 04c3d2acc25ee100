"""`deploy/up` and `deploy/down` before anything is installed: one sentence, exit 2."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The parts of a fresh checkout that are needed before the installation."""
    for name in (
        "deploy/up",
        "deploy/down",
        "deploy/bootstrap.py",
        "deploy/requirements.lock",
        "spawner/VERSION",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("spawner", "hub", "extensions"):
        (tmp_path / name).mkdir(exist_ok=True)
        shutil.copy(ROOT / name / "pyproject.toml", tmp_path / name / "pyproject.toml")
    shutil.copytree(ROOT / "hub" / "allotment_hub" / "host", tmp_path / "hub" / "allotment_hub" / "host")
    shutil.copy(ROOT / "hub" / "allotment_hub" / "__init__.py", tmp_path / "hub" / "allotment_hub")
    return tmp_path


def load(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "bootstrap_under_test", checkout / "deploy" / "bootstrap.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(checkout: Path, script: str, *argv: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {"PATH": path or "/usr/bin:/bin", "HOME": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    if path is None:
        env["ALLOTMENT_PYTHON"] = shutil.which("python3.11") or "python3"
    return subprocess.run(
        [str(checkout / "deploy" / script), *argv], env=env, capture_output=True, text=True, check=False
    )


def test_bad_options_are_refused_before_a_minute_of_installation(checkout: Path) -> None:
    done = run(checkout, "up", "--port", "70000")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "up: --port must be between 1 and 65535, not 70000.\n"
    assert not (checkout / ".venv").exists()


def test_without_a_python_that_is_new_enough(checkout: Path) -> None:
    tools = checkout / "tools"
    tools.mkdir()
    (tools / "dirname").symlink_to(shutil.which("dirname") or "/usr/bin/dirname")
    done = run(checkout, "up", path=str(tools))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer is needed" in done.stderr


def test_a_python_without_venv_is_one_sentence(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap = load(checkout)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        bootstrap.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else found(name)
    )
    with pytest.raises(
        bootstrap.Problem, match=r"lacks ensurepip; install it .*apt install python3"
    ) as error:
        bootstrap.install()
    assert "\n" not in str(error.value)
    assert not (checkout / ".venv").exists()


def test_what_is_installed_is_not_installed_again(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap = load(checkout)
    done: list[str] = []
    monkeypatch.setattr(bootstrap, "_make_environment", lambda: _pretend(checkout))
    monkeypatch.setattr(bootstrap, "_pip_install", lambda: done.append("pip"))
    bootstrap.install()
    bootstrap.install()
    assert done == ["pip"]
    (checkout / "spawner" / "VERSION").write_text("9.9.9\n", encoding="utf-8")
    bootstrap.install()
    assert done == ["pip", "pip"]


def test_down_without_an_installation_is_one_sentence(checkout: Path) -> None:
    done = run(checkout, "down")
    assert done.returncode == 2
    assert "nothing is installed in this checkout" in done.stderr


def _pretend(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.touch(mode=0o755)


def test_a_full_disk_is_one_sentence(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap = load(checkout)

    def no_room() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    said = io.StringIO()
    monkeypatch.setattr(bootstrap, "install", no_room)
    monkeypatch.setattr(bootstrap, "_check_options", lambda _argv: None)
    with contextlib.redirect_stderr(said):
        assert bootstrap.main() == 2
    assert said.getvalue() == "up: No space left on device: /somewhere\n"


def test_down_on_half_an_installation_is_one_sentence(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    done = run(checkout, "down")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "./deploy/up completes it" in done.stderr


def test_what_pip_missed_is_named(checkout: Path) -> None:
    bootstrap = load(checkout)
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        "#!/bin/sh\necho '      ERROR: No matching distribution found for hatchling'\n"
        "echo 'note: This error originates from a subprocess.'\nexit 1\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    with pytest.raises(bootstrap.Problem, match=r"No matching distribution found for hatchling\)"):
        bootstrap._pip_install()
