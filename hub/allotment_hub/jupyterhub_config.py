"""The file that `jupyterhub -f` reads; the data directory comes from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from allotment_hub.configure import configure
from allotment_hub.paths import Paths

__all__: list[str] = []

configure(
    get_config(),  # type: ignore[name-defined]  # noqa: F821 - given by traitlets when it runs this file
    paths=Paths(data=Path(os.environ["ALLOTMENT_DATA"])),
)
