"""connection.json: how people and scripts reach this installation."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from allotment_hub.host.files import rewrite, write_private
from allotment_hub.host.ownership import give_file

__all__ = ["Connection", "make_password"]

_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def make_password() -> str:
    """Four groups of four letters and digits that cannot be mistaken for each other; 80 bits."""
    groups = ("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(4))
    return "-".join(groups)


@dataclass(frozen=True, slots=True)
class Connection:
    """`hub_url` is what browsers open, without a trailing slash; the hub's API is below `/hub/api`."""

    hub_url: str
    broker_url: str
    admin_user: str
    admin_password: str
    user: str
    user_password: str
    admin_token: str

    def save(self, path: Path) -> None:
        """It stays the file of the account that it was given to, whether root or that account saves it."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        owner = path.lstat() if path.exists() else None
        try:
            write_private(path, text)
        except PermissionError:
            if owner is None or owner.st_uid != os.geteuid():
                raise
            rewrite(path, text)  # the folder is root's, the file is ours
            return
        if owner is not None and os.geteuid() == 0:
            give_file(path, uid=owner.st_uid, gid=owner.st_gid)

    @classmethod
    def load(cls, path: Path) -> Connection | None:
        """None when there is none, or it cannot be read as one."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None
