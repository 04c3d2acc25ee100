"""A process that packs a home and kills itself with SIGKILL in the middle of reading."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import docker

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from allotment_testing.homes_box import HomesBox

__all__ = ["main"]


def main(base_url: str, image: str, folder: str, user: str) -> None:
    client = docker.APIClient(base_url=base_url, timeout=60)
    box = HomesBox(client=client, base_url=base_url, image=image, folder=Path(folder))
    box.accounts.names.add(user)

    def dies(taken: int) -> None:
        if taken > 1_000_000:
            os.kill(os.getpid(), signal.SIGKILL)

    box.offboarding(user, progress=dies).run(box.leaving(user, archive=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
