"""The folder verbs themselves: blocking, each may be repeated after a crash at any step."""

from __future__ import annotations

import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from allotment_spawner.core.errors import AgentUnavailable, BadOptions
from allotment_spawner.disk.base import Folder, Quota, RootName, RootState, ToolFailed, Usage
from allotment_spawner.disk.detect import quota_for
from allotment_spawner.disk.projects import ProjectIds
from allotment_spawner.disk.roots import TRASH, Root, check_name
from allotment_spawner.disk.tools import Run, run_tool
from allotment_spawner.disk.walk import Moved, measure, names_in, open_folder
from allotment_spawner.disk.wipe import wipe

__all__ = ["FolderKeeper"]

_log = logging.getLogger("allotment.disk")
_MEASURE_S = 40.0
_FIRST_UID = 1000
_MADE = 0o700
"""Of a folder that was just made, whatever its kind."""


class _TooLong(Exception):
    """Measuring took its time; the size is not known."""


class FolderKeeper:
    """Works below its roots only. `state_dir` holds the numbers of project quotas."""

    def __init__(
        self,
        *,
        roots: Mapping[RootName, Path],
        state_dir: Path,
        on_step: Callable[[str], None] = lambda _step: None,
        run: Run = run_tool,
    ) -> None:
        self._roots = {name: Root(name, path) for name, path in roots.items()}
        self._ids = ProjectIds(state_dir / "projects.json")
        self._on_step = on_step
        self._run = run

    def make(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder:
        """Make it, give it to its owner, limit it. One that exists keeps owner and mode."""
        privileged = os.geteuid() == 0
        if privileged and (uid < _FIRST_UID or gid == 0):
            raise BadOptions(f"No folder is made for user {uid}, group {gid}.", "Use an ordinary account.")
        parts = check_name(name)
        if not privileged and root == "homes":
            raise AgentUnavailable(
                "Allotment's agent is not root, so it cannot give homes to their people.",
                "Make the folder by hand, or start Allotment as root.",
            )
        with self._opened(root) as (base, top):
            quota = quota_for(base.path, ids=self._ids, run=self._run)
            created = self._make(base, top, parts, quota)
            self._on_step("folder.made")
            with _inside(top, parts) as folder:
                unfinished = _unfinished(folder)
                if privileged and (created or unfinished):
                    os.fchown(folder, uid, gid)
                    os.fchmod(folder, mode)
                elif not privileged and created:
                    # it cannot be given away; the root above is closed to everybody else
                    os.fchmod(folder, 0o1777)
                self._on_step("folder.owned")
                found = os.fstat(folder)
                enforced, note = _limit(quota, base.path.joinpath(*parts), folder, limit_bytes)
        self._on_step("folder.limited")
        return Folder(
            path=str(base.path.joinpath(*parts)),
            created=created,
            uid=found.st_uid,
            gid=found.st_gid,
            limit_bytes=limit_bytes,
            enforced=enforced,
            quota=quota.name,
            note=note,
        )

    def _make(self, base: Root, top: int, parts: tuple[str, ...], quota: Quota) -> bool:
        if len(parts) == 1:
            try:
                quota.make(base.path / parts[0])
            except FileExistsError:
                return False
            return True
        inside, created = os.dup(top), False
        try:
            for depth, part in enumerate(parts, 1):
                try:
                    os.mkdir(part, _MADE if depth == len(parts) else 0o755, dir_fd=inside)
                    created = True
                except FileExistsError:
                    created = False
                inner = open_folder(part, inside=inside)
                os.close(inside)
                inside = inner
        finally:
            os.close(inside)
        return created

    def remove(self, root: RootName, name: str) -> None:
        """Out of sight at once; `sweep` removes what was in it."""
        parts = check_name(name)
        with self._opened(root) as (base, top):
            if not base.wipes or len(parts) != 1:
                raise BadOptions(f"Folders of {root} are not removed by the agent.", "Remove it by hand.")
            if not _exists(top, name):
                return
            quota = quota_for(base.path, ids=self._ids, run=self._run)
            if quota.remove(base.path / name):
                return
            self._on_step("folder.unlimited")
            with suppress(FileNotFoundError):
                trash = f"{TRASH}/{name}.{secrets.token_hex(4)}"
                os.rename(name, trash, src_dir_fd=top, dst_dir_fd=top)
        self._on_step("folder.trashed")

    def sweep(self, *, between: Callable[[], None] = lambda: None) -> int:
        """Wipe what was removed; how many folders are left because something in them resists."""
        left = 0
        for base in self._roots.values():
            if not base.wipes:
                continue
            with self._opened(base.name) as (_, top):
                trash = open_folder(TRASH, inside=top)
                try:
                    left += sum(not _wiped(trash, name, between) for name in names_in(trash))
                finally:
                    os.close(trash)
                quota_for(base.path, ids=self._ids, run=self._run).tidy()
        return left

    def usage(self, root: RootName, name: str) -> Usage | None:
        """As the file system counts it; else scratch is measured, and homes are unknown."""
        parts = check_name(name)
        with self._opened(root) as (base, top):
            try:
                with _inside(top, parts) as folder:
                    quota = quota_for(base.path, ids=self._ids, run=self._run)
                    used, files, limit = quota.usage(base.path.joinpath(*parts), folder)
                    if base.wipes and (used is None or quota.watch):
                        used, files = _measured(folder)
                    return Usage(used, files, limit, enforced=limit is not None, watch=quota.watch)
            except FileNotFoundError:
                return None

    def names(self, root: RootName) -> list[str]:
        with self._opened(root) as (_, top):
            return sorted(name for name in names_in(top) if not name.startswith("."))

    def state(self, root: RootName) -> RootState:
        with self._opened(root) as (base, top):
            quota, leftovers = quota_for(base.path, ids=self._ids, run=self._run), 0
            if base.wipes:
                trash = open_folder(TRASH, inside=top)
                try:
                    leftovers = len(names_in(trash))
                finally:
                    os.close(trash)
            return RootState(str(base.path), quota.name, quota.note, leftovers)

    @contextmanager
    def _opened(self, root: RootName) -> Iterator[tuple[Root, int]]:
        base = self._roots.get(root)
        if base is None:
            raise BadOptions(f"The agent was started without a folder for {root}.", "Restart Allotment.")
        top = base.open()
        try:
            yield base, top
        except (OSError, ToolFailed) as error:
            raise AgentUnavailable(
                f"The folder in {base.path} cannot be used: {error}.",
                "Ask your operator to look at that disk; `allot doctor` names it.",
            ) from error
        finally:
            os.close(top)


def _unfinished(folder: int) -> bool:
    """Made by an agent that was killed before it gave it away. A folder that an operator made, to mount a
    home there, is no home while that is not mounted."""
    found = os.fstat(folder)
    ours = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == _MADE
    return ours and not names_in(folder)


@contextmanager
def _inside(top: int, parts: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of top/part/part, no link on the way."""
    descriptor = os.dup(top)
    try:
        for part in parts:
            inner = open_folder(part, inside=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _limit(quota: Quota, path: Path, folder: int, limit_bytes: int | None) -> tuple[bool, str | None]:
    try:
        return quota.limit(path, folder, limit_bytes), quota.note
    except ToolFailed as error:
        # a folder without a limit is better than none: it is measured then
        _log.warning("%s is not limited: %s", path, error)
        return False, str(error)


def _measured(folder: int) -> tuple[int | None, int | None]:
    ends = time.monotonic() + _MEASURE_S

    def between() -> None:
        if time.monotonic() > ends:
            raise _TooLong

    try:
        count = measure(folder, between=between)
    except (_TooLong, Moved, PermissionError):
        return None, None
    return count.used_bytes, count.files


def _exists(top: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=top, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _wiped(trash: int, name: str, between: Callable[[], None]) -> bool:
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=trash, follow_symlinks=False).st_mode):
            descriptor = open_folder(name, inside=trash)
            try:
                wipe(descriptor, between=between)
            finally:
                os.close(descriptor)
            os.rmdir(name, dir_fd=trash)
        else:
            os.unlink(name, dir_fd=trash)
    except FileNotFoundError:
        return True
    except OSError as error:
        _log.warning("%s cannot be wiped yet: %s", name, error)
        return False
    return True
