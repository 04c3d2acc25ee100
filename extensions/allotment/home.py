"""A home that is full: the session starts all the same, with what must be written put elsewhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # this runs before the notebook server: nothing is imported that it does not need
    from collections.abc import MutableMapping

__all__ = ["FULL", "make_room", "set_umask", "takes_writes"]

FULL = "ALLOTMENT_HOME_FULL"
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
    runtime = Path(env.get("JUPYTER_RUNTIME_DIR") or tempfile.gettempdir())
    aside, config = runtime.parent / "home", Path(home) / ".jupyter"
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
