"""Is an overlay whole, and does it go with this image? `python -I -m allotment.packages.check` notes it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from allotment.packages.imports import plain_environment, python_starts, try_imports
from allotment.packages.layout import Overlay, overlay_of
from allotment.packages.lock import LockUnavailable, locked
from allotment.packages.marker import base_fingerprint, mark, overlay_fingerprint, write_json
from allotment.packages.report import describe

__all__ = ["check_and_note", "installed", "main", "problems_of"]

_SKIPPED = frozenset(
    {"test", "tests", "testing", "docs", "doc", "examples", "benchmarks", "conftest", "setup"}
)
_MOST_FILES = 200_000


def installed(overlay: Overlay) -> list[Distribution]:
    """The packages in the overlay, by name; half-removed ones (`~name`) have no name and are left out."""
    folder = Path(overlay.site_packages)
    found = distributions(path=[str(folder)]) if folder.is_dir() else ()
    named = [one for one in found if one.metadata and one.metadata["Name"]]
    return sorted(named, key=lambda one: str(one.metadata["Name"]).lower())


def check_and_note(overlay: Overlay, environ: Mapping[str, str]) -> list[str]:
    """The problems, in words, noted beside the overlay; when there are none it counts as made for this image.

    Waits for a pip that is at work; raises `LockUnavailable` when that takes too long.
    """
    with locked(overlay.lock, limit_s=300):
        return _check_and_note(overlay, environ)


def _check_and_note(overlay: Overlay, environ: Mapping[str, str]) -> list[str]:
    # of before: what somebody changes meanwhile is not what was checked
    base, seen = base_fingerprint(), overlay_fingerprint(overlay)
    problems = problems_of(overlay, environ)
    try:
        _note(overlay, base, seen, problems)
    except OSError as error:
        # in a full home the answer is told all the same, only not remembered
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
    return problems


def problems_of(overlay: Overlay, environ: Mapping[str, str]) -> list[str]:
    """What is wrong, a sentence each, worst first; runs code of the overlay in processes of its own."""
    environ = plain_environment(environ)
    why = python_starts(environ)
    if why is not None:
        return [f"Python does not start with these packages: {why}."]
    found = installed(overlay)
    problems = [sentence for one in found if (sentence := _incomplete(one))]
    with_overlay, without = _pip_check(environ, []), _pip_check(environ, ["-s"])
    problems += [line for line in with_overlay if line not in without]
    owners = {name: str(one.metadata["Name"]) for one in found for name in _modules(one)}
    failed = try_imports(list(owners), environ)
    problems += [f"{owners[name]}: {name} cannot be imported ({words})." for name, words in failed.items()]
    return problems


def _incomplete(one: Distribution) -> str | None:
    files = one.files
    if files is None:
        return f"{one.metadata['Name']} is not installed completely: its list of files is missing."
    missing = 0
    for file in files[:_MOST_FILES]:
        # byte code is made when it is needed
        if file.suffix != ".pyc" and not os.path.lexists(str(file.locate())):
            missing += 1
    if not missing:
        return None
    return f"{one.metadata['Name']} is not installed completely: {missing} of its files are missing."


def _pip_check(environ: Mapping[str, str], options: list[str]) -> list[str]:
    argv = [sys.executable, *options, "-m", "pip", "check", "--disable-pip-version-check"]
    try:
        result = subprocess.run(
            argv, env=dict(environ), cwd="/", capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return []
    lines = [line.strip() for line in result.stdout.splitlines()]
    return [line for line in lines if " requires " in line or " has requirement " in line]


def _modules(one: Distribution) -> Iterator[str]:
    """Names that importing this package means: its folders and modules, private ones and tests left out."""
    names = set()
    for file in one.files or ():
        first = file.parts[0] if file.parts else ""
        name = first.partition(".")[0]
        module = len(file.parts) == 1 and file.suffix in {".py", ".so"}
        package = len(file.parts) == 2 and file.name == "__init__.py"
        if (module or package) and name.isidentifier() and not name.startswith("_") and name not in _SKIPPED:
            names.add(name)
    return iter(sorted(names))


def _note(overlay: Overlay, base: str, seen: str, problems: list[str]) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_json(overlay.checked, {"base": base, "overlay": seen, "problems": problems, "checked_at": moment})
    Path(overlay.unfinished).unlink(missing_ok=True)
    if problems:
        Path(overlay.warning).write_text(warning_of(overlay, problems), encoding="utf-8")
        return
    Path(overlay.warning).unlink(missing_ok=True)
    mark(overlay, anew=True)


def warning_of(overlay: Overlay, problems: list[str]) -> str:
    """What a terminal says when it opens."""
    shown = [f"  {sentence}" for sentence in problems[:5]]
    if len(problems) > len(shown):
        shown.append(f"  … and {len(problems) - len(shown)} more: allot env check")
    head = f"Packages that you installed in {overlay.environment} do not work with its present version:"
    foot = "Move them aside (allot env aside), start clean (allot env clean), or install them again with pip."
    return "\n".join([head, *shown, foot]) + "\n"


def main() -> int:
    """Exit 0 when all is well or there is nothing, 1 with problems, 2 when it could not be told.

    Of many that were begun at once, the first one checks; the others find it done.
    """
    overlay = overlay_of(os.environ, sys.version_info[:2])
    if overlay is None:
        return 0
    try:
        with locked(overlay.lock, limit_s=600):
            if describe(overlay)["state"] == "unchecked":
                _check_and_note(overlay, os.environ)
        return 1 if describe(overlay)["state"] == "broken" else 0
    except LockUnavailable:
        return 2


if __name__ == "__main__":
    sys.exit(main())
