"""Makes this checkout's own environment and hands over to `allotment_hub.host.up`; standard library only."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

__all__ = ["Problem", "main"]

CHECKOUT = Path(__file__).resolve().parents[1]
VENV = CHECKOUT / ".venv"
LOCK = CHECKOUT / "deploy" / "requirements.lock"
PROJECTS = ("spawner", "hub", "extensions")
STAMP = VENV / ".allotment-stamp"
NEEDED_BYTES = 2 << 30


class Problem(Exception):
    """One sentence with the remedy."""


def main() -> int:
    """2 after one sentence; else the process becomes `up`."""
    try:
        _check_options(sys.argv[1:])
        install()
    except Problem as problem:
        print(f"up: {problem}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written
        what = f": {error.filename}" if error.filename else ""
        print(f"up: {error.strerror or error}{what}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("up: interrupted; run it again to go on", file=sys.stderr)
        return 2
    python = str(VENV / "bin" / "python")
    return os.execv(python, [python, "-m", "allotment_hub.host.up", *sys.argv[1:]])  # noqa: S606


def _check_options(argv: list[str]) -> None:
    """Refuse bad options before a minute of installation, with the code that will read them."""
    sys.path.insert(0, str(CHECKOUT / "hub"))
    from allotment_hub.host.errors import HostError  # noqa: PLC0415 - found only now
    from allotment_hub.host.options import parse_up  # noqa: PLC0415

    try:
        parse_up(argv)
    except HostError as error:
        raise Problem(str(error)) from None


def install() -> None:
    """Nothing when what is installed fits the checkout; one at a time."""
    wanted = stamp()
    if _installed() == wanted:
        return
    _check_room()
    with _one_at_a_time():
        if _installed() == wanted:
            return
        _make_environment()
        update = STAMP.exists()
        STAMP.unlink(missing_ok=True)
        print("· Updating" if update else "· Installing (a minute or two, once)", flush=True)
        _pip_install()
        STAMP.write_text(wanted, encoding="ascii")


def stamp() -> str:
    """Changes with what must be installed: pinned packages, the projects' own files, the place, Python."""
    digest = hashlib.sha256(f"{CHECKOUT} {sys.version_info[:2]}".encode())
    for path in (
        LOCK,
        CHECKOUT / "spawner" / "VERSION",
        *(CHECKOUT / name / "pyproject.toml" for name in PROJECTS),
        # pip copies these: they lie where JupyterLab looks, not in the package
        *sorted((CHECKOUT / "extensions" / "allotment" / "labextension").rglob("*.js*")),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _installed() -> str | None:
    usable = os.access(VENV / "bin" / "python", os.X_OK)
    return STAMP.read_text(encoding="ascii") if usable and STAMP.exists() else None


def _check_room() -> None:
    if not os.access(CHECKOUT, os.W_OK):
        raise Problem(f"{CHECKOUT} cannot be written; run ./deploy/up as the owner of the checkout.")
    free = shutil.disk_usage(CHECKOUT).free
    if free < NEEDED_BYTES:
        raise Problem(f"There is too little room in {CHECKOUT}: {free >> 20} MiB free, 2 GiB are needed.")


class _one_at_a_time:  # noqa: N801 - used like a function
    def __enter__(self) -> None:
        self._file = (CHECKOUT / "deploy" / ".install-lock").open("w", encoding="ascii")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _make_environment() -> None:
    """A virtual environment of this Python; a broken or outdated one is made anew."""
    if _works():
        return
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        minor = f"python3.{sys.version_info[1]}-venv"
        raise Problem(
            f"This Python lacks {' and '.join(missing)}; install it (Debian and Ubuntu: apt install {minor}) "
            "or name another Python: ALLOTMENT_PYTHON=/path/to/python ./deploy/up."
        )
    shutil.rmtree(VENV, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(VENV)], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Problem(f"No virtual environment could be made in {VENV}: {_last(done.stdout + done.stderr)}")


def _works() -> bool:
    try:
        done = subprocess.run(
            [str(VENV / "bin" / "python"), "-c", "import pip, sys; print(sys.version_info[:2])"],
            check=False,
            capture_output=True,
            text=True,
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == str(sys.version_info[:2])


def _pip_install() -> None:
    """All three in one command: pip must never look for one of them on an index."""
    command = [
        str(VENV / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += ["--constraint", str(LOCK)]
    for name in PROJECTS:
        command += ["--editable", str(CHECKOUT / name)]
    log = VENV / "install.log"
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: deque[str] = deque(maxlen=200)
    reader = threading.Thread(target=_show, args=(child, lines, log), daemon=True)
    reader.start()
    try:
        code = child.wait()
    except BaseException:
        child.terminate()
        raise
    reader.join(5)
    if code != 0:
        errors = [line.strip() for line in lines if line.strip().startswith("ERROR")]
        why = (errors[0].removeprefix("ERROR: ") if errors else _last("\n".join(lines))).strip().rstrip(".")
        raise Problem(
            f"pip could not install the packages ({why}); does the package index answer? More in {log}."
        )


def _show(child: subprocess.Popen[str], lines: deque[str], log: Path) -> None:
    """Tell every few seconds what pip is at, so that nobody takes it for stuck."""
    told = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        for line in child.stdout or ():
            file.write(line)
            lines.append(line.rstrip())
            words = line.split()
            if words[:1] in (["Collecting"], ["Downloading"]) and time.monotonic() - told > 4:
                told = time.monotonic()
                print(f"·   {re.split('[<>=~!;[]', words[1], maxsplit=1)[0]}", flush=True)
            elif words[:2] == ["Installing", "collected"]:
                print("·   putting the packages in place", flush=True)
    if child.stdout is not None:
        child.stdout.close()


def _last(text: str) -> str:
    found = [line.strip() for line in text.splitlines() if line.strip()]
    return found[-1] if found else "no reason given"


if __name__ == "__main__":
    sys.exit(main())
