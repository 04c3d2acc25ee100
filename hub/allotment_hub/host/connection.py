"""connection.json: how people and scripts reach this installation."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from allotment_hub.host.files import write_private

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
        write_private(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Connection | None:
        """None when there is none, or it cannot be read as one."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None
