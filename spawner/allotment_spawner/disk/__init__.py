"""Folders of people and sessions on this machine's disks: made, limited, measured and wiped.

The agent serves them as verbs (`make_folder`, `remove_folder`, `folder_usage`, `list_folders`), because
owners and quotas need root. It works only below the roots that it was started with (`--folders`):
`scratch`, whose folders it may also remove, and `homes`. To prepare a home with a path template:

    await agent.make_folder("homes", name, uid=uid, gid=gid, mode=0o700, limit_bytes=limit)

where `name` is the path below the root (`roots.split_template`). An existing folder keeps its owner and
mode; only its limit is set. The reply says whether the file system enforces that limit.
"""

from __future__ import annotations

__all__: list[str] = []
