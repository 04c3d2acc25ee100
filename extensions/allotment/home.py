"""A home that is full or cannot lock files: the session starts all the same, and writes elsewhere."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # this runs before the notebook server: nothing is imported that it does not need
    from collections.abc import MutableMapping

__all__ = ["FULL", "NO_LOCKS", "locks_work", "make_room", "set_umask", "spare_locks", "takes_writes"]

FULL = "ALLOTMENT_HOME_FULL"
NO_LOCKS = "ALLOTMENT_HOME_WITHOUT_LOCKS"
"""A folder for IPython's history; the images' own IPython configuration reads it."""
LOCK_WAIT_S = 3.0
UMASK = "ALLOTMENT_UMASK"
PROBE_BYTES = 256 * 1024
"""A notebook, a history and a signature; less than this is as good as nothing."""
SENTENCE = (
    "Your home is full. This session keeps history, trust and layout only while it runs: delete files in a "
    "terminal, then stop and start it again."
)


def make_room(env: MutableMapping[str, str]) -> bool:
    """Change `env`, of a server that is about to start, if its home takes no more; whether it was so.

    IPython's and Jupyter's own folders move to memory (the container's runtime directory), so that kernels,
    notebooks and terminals work and things can be deleted. What lies in the home is still read: settings,
    kernels, configuration.
    """
    home = env.get("HOME", "")
    if not home or takes_writes(home):
        return False
    aside, config = _aside(env), Path(home) / ".jupyter"
    env["IPYTHONDIR"] = str(aside / "ipython")
    env["JUPYTER_CONFIG_DIR"] = str(aside / "config")
    env["JUPYTER_DATA_DIR"] = str(aside / "data")
    env["XDG_CACHE_HOME"] = str(aside / "cache")
    env["JUPYTER_CONFIG_PATH"] = _joined(env.get("JUPYTER_CONFIG_PATH"), config)
    env["JUPYTER_PATH"] = _joined(env.get("JUPYTER_PATH"), Path(home) / ".local" / "share" / "jupyter")
    settings = config / "lab" / "user-settings"
    if settings.is_dir():
        env["JUPYTERLAB_SETTINGS_DIR"] = str(settings)
    env[FULL] = SENTENCE
    return True


def takes_writes(home: str) -> bool:
    """Whether some hundred kilobytes and a new file fit. Tried, because no question tells of every quota."""
    try:
        with tempfile.TemporaryFile(dir=home, prefix=".allotment-room-") as probe:
            probe.write(b"\0" * PROBE_BYTES)
            probe.flush()
            # some file systems, NFS first, tell of a quota only now
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True


def spare_locks(env: MutableMapping[str, str]) -> list[str]:
    """More arguments for the server whose home cannot lock files (a file server without its lock service):
    SQLite would fail or wait for ever there, so history and trust are kept in memory."""
    home = env.get("HOME", "")
    if not home or FULL in env or locks_work(home):
        return []
    aside = _aside(env)
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    env[NO_LOCKS] = str(aside)
    return [f"--NotebookNotary.db_file={aside / 'nbsignatures.db'}"]


def locks_work(home: str, wait_s: float = LOCK_WAIT_S) -> bool:
    """Tried in a thread: on a file server whose lock service is away the call may never return."""
    found: list[bool] = []
    trying = threading.Thread(target=lambda: found.append(_lock(home)), daemon=True)
    trying.start()
    trying.join(wait_s)
    return bool(found) and found[0]


def _lock(home: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=home, prefix=".allotment-lock-") as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _aside(env: MutableMapping[str, str]) -> Path:
    return Path(env.get("JUPYTER_RUNTIME_DIR") or tempfile.gettempdir()).parent / "home"


def set_umask(env: MutableMapping[str, str]) -> None:
    """As the hub wants it for files that groups share; what is no octal number changes nothing."""
    try:
        wanted = int(env.get(UMASK, ""), 8)
    except ValueError:
        return
    if 0 <= wanted <= 0o077:
        os.umask(wanted)


def _joined(before: str | None, more: Path) -> str:
    return os.pathsep.join([part for part in (before, str(more)) if part])
