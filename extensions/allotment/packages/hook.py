"""Runs at the start of the image's own Python: puts the overlay where ~/.local would be.

The image's `allotment-packages.pth` calls `switch_on`. Virtual environments, conda's and uv's Pythons do
not read that file; `python -I`, which runs the notebook server, and `python -s` get no overlay.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig

from allotment.packages.layout import Overlay, overlay_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # not even typing is imported: this runs at every start of Python
    from collections.abc import MutableMapping, Sequence

__all__ = ["Command", "command_of", "switch_on"]

_WITH_VALUE = frozenset("WX")
_WRITES = frozenset({"install", "uninstall"})


class Command:
    """What an interpreter was started for: its option letters, the module or script, and the rest."""

    __slots__ = ("arguments", "module", "options", "script")

    def __init__(self, options: str, module: str, script: str, arguments: Sequence[str]) -> None:
        self.options = options
        self.module = module
        self.script = script
        self.arguments = arguments

    @property
    def pip_writes(self) -> bool:
        """Whether this is a pip that installs or removes something."""
        name = os.path.basename(self.script)
        if name in {"__main__.py", ""}:
            name = os.path.basename(os.path.dirname(self.script))
        script = name == "pip" or (name.startswith("pip") and name[3:].replace(".", "").isdigit())
        pip = script or self.module.partition(".")[0] == "pip"
        return pip and any(one in _WRITES for one in self.arguments)


def command_of(argv: Sequence[str]) -> Command:
    """Read an interpreter's command line, as `sys.orig_argv` has it."""
    options, index = "", 1
    while index < len(argv):
        word = argv[index]
        index += 1
        if word == "-" or not word.startswith("-"):
            return Command(options, "", word, argv[index:])
        if word.startswith("--"):
            index += word == "--check-hash-based-pycs"
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter in "cm":
                value = word[position:] or (argv[index] if index < len(argv) else "")
                rest = argv[index:] if word[position:] else argv[index + 1 :]
                return Command(options, value if letter == "m" else "", "", rest)
            options += letter
            if letter in _WITH_VALUE:
                index += position == len(word)
                break
    return Command(options, "", "", ())


def switch_on(prefix: str) -> None:
    """Use this session's overlay, where there is one to use. Never raises: Python must start.

    `prefix` is that of the image's own Python: Debian's look into the same folders wherever they are copied.
    """
    flags = sys.flags
    if flags.isolated or flags.ignore_environment or not sys.prefix == sys.base_prefix == prefix:
        return
    command = command_of(sys.orig_argv)
    overlay = overlay_of(os.environ, sys.version_info[:2])
    if "s" in command.options or overlay is None:
        return
    try:
        # there before the first install: Python remembers of a missing folder that it is missing
        os.makedirs(overlay.site_packages, mode=0o700, exist_ok=True)
    except OSError:
        # a full or read-only home: nothing can be installed, everything else works
        if not os.path.isdir(overlay.site_packages):
            return
    if command.pip_writes:
        _hold(overlay)
    _use(overlay, os.environ)


def _hold(overlay: Overlay) -> None:
    """One pip at a time; it notes for which image the overlay was begun, and that it is at work."""
    from allotment.packages.lock import LockUnavailable, hold_until_exit  # noqa: PLC0415 - only for pip
    from allotment.packages.marker import begin  # noqa: PLC0415

    try:
        if hold_until_exit(overlay.lock, os.environ):
            begin(overlay)
    except LockUnavailable as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)  # an exception would only be printed, and pip would go on
    except OSError as error:
        sys.stderr.write(f"Allotment could not prepare {overlay.root}: {error}\n")


def _use(overlay: Overlay, environ: MutableMapping[str, str]) -> None:
    """As `site` does with the user's folder: before the system's packages, .pth files read."""
    # pip, setuptools and `python -m site` ask these
    site.USER_BASE = overlay.root
    site.USER_SITE = overlay.site_packages
    site.ENABLE_USER_SITE = True
    setattr(sysconfig, "_getuserbase", lambda: overlay.root)  # noqa: B010 - private, so mypy knows it not
    before = list(sys.path)
    site.addsitedir(overlay.site_packages)
    added = [one for one in sys.path if one not in before]
    system = [before.index(one) for one in site.getsitepackages() if one in before]
    at = min(system, default=len(before))
    sys.path[:] = before[:at] + added + before[at:]
    path = environ.get("PATH", os.defpath)
    if overlay.scripts not in path.split(os.pathsep):
        environ["PATH"] = overlay.scripts + os.pathsep + path
