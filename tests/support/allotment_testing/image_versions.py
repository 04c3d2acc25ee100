"""Further images for tests, made in a moment: an image with another layer, or one of almost nothing."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from typing import Any

__all__ = ["add_version", "small_image"]


def add_version(client: Any, base: str, tag: str, *, version: str, extra_bytes: int = 0) -> str:
    """`base` with a layer of `extra_bytes` that does not compress, as version `version`; its content id."""
    made = client.create_container(base)
    try:
        if extra_bytes:
            client.put_archive(made["Id"], "/opt", _archive("extra", os.urandom(extra_bytes)))
        repository, _, name = tag.rpartition(":")
        labels = {"org.allotment.version": version}
        found = client.commit(made["Id"], repository=repository, tag=name, conf={"Labels": labels})
    finally:
        client.remove_container(made["Id"], force=True)
    return str(client.inspect_image(found["Id"])["Id"])


def small_image(client: Any, tag: str, *, environment: str, labels: Mapping[str, str] | None = None) -> str:
    """An image that says it is `environment` and cannot run; its content id."""
    repository, _, name = tag.rpartition(":")
    told = {"org.allotment.environment": environment, "org.allotment.variant": "cpu", **(labels or {})}
    changes = [f"LABEL {key}={value}" for key, value in told.items()]
    data = _archive("unique", os.urandom(64)).getvalue()
    client.import_image_from_data(data, repository=repository, tag=name, changes=changes)
    return str(client.inspect_image(tag)["Id"])


def _archive(name: str, content: bytes) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    out.seek(0)
    return out
