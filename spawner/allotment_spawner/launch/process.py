"""What to make for a lease without containers: a gated local process and its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allotment_spawner.wire import Launch

__all__ = ["GATE_NAME", "GATE_OPEN", "gate_argv", "is_gate", "process_env"]

GATE_NAME = "allotment-gate"
GATE_OPEN = b"start\n"
"""What to write to the gate's standard input; end of file or anything else makes it exit 75."""

# The line read is compared, so that a stray newline opens nothing. Standard input is given up
# before exec: the workload must not share a pipe with the spawner.
_GATE_SCRIPT = 'IFS= read -r word && [ "$word" = start ] || exit 75; exec "$@" </dev/null'

_INHERITED = frozenset(
    {
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "SHELL",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "PIP_CERT",
        "NO_PROXY",
        "HTTP_PROXY",
        "HTTPS_PROXY",
    }
)


def process_env(
    launch: Launch,
    base_env: Mapping[str, str],
    *,
    user: str,
    server: str,
    extra_env: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The whole environment of a local workload.

    `base_env` is the hub's: only harmless variables of a fixed list pass (the hub's secrets do
    not). `extra_env` (JUPYTERHUB_*, HOME, USER) is added; neither can override what names the
    lease and its devices. CUDA_VISIBLE_DEVICES is empty for CPU flavors.
    """
    inherited = {key: value for key, value in base_env.items() if _may_inherit(key, value)}
    fixed = {
        "ALLOTMENT_INSTALLATION": launch.installation,
        "ALLOTMENT_USER": user,
        "ALLOTMENT_SERVER": server,
        "ALLOTMENT_DEVICES": ",".join(launch.devices),
        "CUDA_VISIBLE_DEVICES": ",".join(launch.devices),
        "NVIDIA_VISIBLE_DEVICES": ",".join(launch.devices) or "void",
    }
    return {**inherited, **(extra_env or {}), **launch.env, **fixed}


def gate_argv(argv: Sequence[str]) -> list[str]:
    """A command that waits for one line on standard input and then becomes `argv`.

    So the process exists, and bears its lease, before the broker is asked whether it may run.
    The words of `argv` are arguments, never shell text.
    """
    if not argv:
        raise ValueError("nothing to run")
    return ["/bin/sh", "-c", _GATE_SCRIPT, GATE_NAME, *argv]


def is_gate(cmdline: Sequence[str]) -> bool:
    """Whether this process (its argv) still waits at the gate."""
    return list(cmdline[1:4]) == ["-c", _GATE_SCRIPT, GATE_NAME]


def _may_inherit(key: str, value: str) -> bool:
    if key.startswith("LC_"):
        return True
    # a proxy's URL may hold a password
    return key.upper() in _INHERITED and not (key.upper().endswith("_PROXY") and "@" in value)
