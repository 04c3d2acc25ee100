"""Known vulnerabilities of an environment's packages, asked with pip-audit."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from builder.environments import named_versions
from builder.errors import BuildError

__all__ = ["Allowed", "Finding", "NotAudited", "audit", "read_allowed", "report"]


class NotAudited(Exception):
    """Nothing is known: the advisory service could not be asked. One sentence with the reason."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A known vulnerability that an operator accepts, and why; not after `until`."""

    id: str
    reason: str
    until: dt.date | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One vulnerability of one package; `ids` are all its names, `fixed_in` the versions without it."""

    package: str
    version: str
    ids: tuple[str, ...]
    fixed_in: tuple[str, ...]


def read_allowed(file: Path, *, today: dt.date) -> dict[str, Allowed]:
    """images/audit-allow.yaml: id -> entry, those still valid; BuildError for an entry without a reason."""
    import yaml  # noqa: PLC0415 - not there before use_own_tools

    found = {}
    for entry in (yaml.safe_load(file.read_text()) or []) if file.is_file() else []:
        if not isinstance(entry, dict) or not entry.get("id") or not str(entry.get("reason") or "").strip():
            raise BuildError(f"{file}: every entry needs an id and a reason; found {entry!r}.")
        until = entry.get("until")
        if until is not None and not isinstance(until, dt.date):
            raise BuildError(f"{file}: until of {entry['id']} is no date like 2027-01-31.")
        if until is None or until >= today:
            found[entry["id"]] = Allowed(id=entry["id"], reason=entry["reason"], until=until)
    return found


def audit(lock: str, *, service: list[str]) -> tuple[list[Finding], int]:
    """(findings, packages asked about). `service` are pip-audit's options that name the advisory service.

    Raises NotAudited when the service did not answer: no findings then means nothing.
    """
    with tempfile.TemporaryDirectory(prefix="allotment-audit-") as folder:
        wanted = Path(folder) / "requirements.txt"
        # "+cpu" is a build of our own: advisories know public versions
        pins = {name: version.partition("+")[0] for name, version in named_versions(lock).items()}
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))
        argv = [sys.executable, "-m", "pip_audit", "-r", str(wanted), "--no-deps", "--disable-pip"]
        argv += [
            "--format",
            "json",
            "--desc",
            "off",
            "--aliases",
            "on",
            "--progress-spinner",
            "off",
            *service,
        ]
        argv += ["--cache-dir", str(Path(folder) / "cache")]
        try:
            result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
        except subprocess.TimeoutExpired:
            raise NotAudited("the advisory service did not answer within 900 s") from None
    try:
        told = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = result.stderr.strip().splitlines()
        raise NotAudited(said[-1] if said else f"pip-audit ended with status {result.returncode}") from None
    asked = [one for one in told if "skip_reason" not in one]
    if not asked and pins:
        raise NotAudited("the advisory service knows none of these packages")
    return [_finding(one, vuln) for one in asked for vuln in one["vulns"]], len(asked)


def _finding(package: dict, vuln: dict) -> Finding:
    return Finding(
        package=package["name"],
        version=package["version"],
        ids=(vuln["id"], *vuln.get("aliases", ())),
        fixed_in=tuple(vuln.get("fix_versions", ())),
    )


def report(name: str, findings: list[Finding], asked: int, allowed: dict[str, Allowed]) -> list[str]:
    """Lines to print; BuildError naming every finding that nobody accepted."""
    lines, refused = [], []
    for one in findings:
        accepted = next((allowed[id_] for id_ in one.ids if id_ in allowed), None)
        fix = f"fixed in {', '.join(one.fixed_in)}" if one.fixed_in else "no fixed version yet"
        text = f"{one.package} {one.version}: {one.ids[0]} ({fix})"
        if accepted:
            lines.append(f"  accepted: {text}: {accepted.reason}")
        else:
            refused.append(f"  {text}")
    if refused:
        raise BuildError(
            "\n".join(
                [
                    f"{name} has packages with known vulnerabilities:",
                    *refused,
                    "Write new locks with images/lock, or accept one in images/audit-allow.yaml.",
                ]
            )
        )
    found = f"{len(findings)} known vulnerabilities, all accepted" if findings else "no known vulnerabilities"
    return [f"{name}: {asked} packages audited, {found}", *lines]
