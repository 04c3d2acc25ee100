"""What was done of one person's leaving, so that a run that was killed is finished by the next."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from allotment_spawner.launch.names import safe_name

from allotment_hub.host.errors import HostError
from allotment_hub.host.files import private_folder, write_private

__all__ = ["Journal", "Leaving", "Packed"]


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive that was read back: its file, and what it holds. `sha256` is of the tar inside."""

    path: str
    sha256: str
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """What was asked for, and how far it is. `packed` names the archive once it is whole and checked."""

    user: str
    archive: bool
    hand_over: str | None
    erase: bool
    began_at: str
    done: tuple[str, ...] = ()
    packed: Packed | None = None

    @property
    def ends_home(self) -> bool:
        """Whether the home is not to stay."""
        return self.archive or self.erase or self.hand_over is not None

    @property
    def needs_pack(self) -> bool:
        return self.archive or self.hand_over is not None

    @property
    def stamp(self) -> str:
        """When it began, as part of file names: the same in each try."""
        return datetime.fromisoformat(self.began_at).astimezone(UTC).strftime("%Y%m%d-%H%M%S")

    def with_done(self, step: str) -> Self:
        return replace(self, done=(*self.done, step))

    def with_packed(self, packed: Packed) -> Self:
        return replace(self, packed=packed)

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        packed = values.pop("packed")
        return cls(
            **{**values, "done": tuple(values["done"])}, packed=None if packed is None else Packed(**packed)
        )


@dataclass(frozen=True, slots=True)
class Journal:
    """One file a person below `folder`; gone when all is done."""

    folder: Path
    user: str

    @property
    def path(self) -> Path:
        return self.folder / f"{safe_name(self.user)}.json"

    def load(self) -> Leaving | None:
        """None when nothing is unfinished; `HostError` when it cannot be read."""
        try:
            return Leaving.from_json(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise HostError(
                f"{self.path} cannot be read ({error}); it tells how far an earlier run came. Look at it, "
                "and remove it to begin anew."
            ) from None

    @staticmethod
    def unfinished(folder: Path) -> list[Leaving]:
        """All of them; what cannot be read or listed is left out."""
        found = []
        with suppress(OSError):
            for file in sorted(folder.glob("*.json")):
                with suppress(OSError, ValueError, TypeError, KeyError):
                    found.append(Leaving.from_json(file.read_text(encoding="utf-8")))
        return found

    def save(self, leaving: Leaving) -> None:
        private_folder(self.folder)
        write_private(self.path, json.dumps(asdict(leaving), indent=1) + "\n")

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
