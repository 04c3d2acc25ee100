"""Names that tie what we make to an installation, a lease and a person."""

from __future__ import annotations

import hashlib
import string

__all__ = [
    "LABEL_DEVICES",
    "LABEL_INSTALLATION",
    "LABEL_LEASE",
    "LABEL_SERVER",
    "LABEL_USER",
    "container_name",
    "home_volume_name",
    "is_kept_tag",
    "kept_tag",
    "lease_of_name",
    "safe_name",
    "version_of",
]

LABEL_INSTALLATION = "allotment.installation"
LABEL_USER = "allotment.user"
LABEL_SERVER = "allotment.server"
LABEL_DEVICES = "allotment.devices"
LABEL_LEASE = "allotment.lease"

_LONGEST = 100
"""Characters of a safe name: two of them and a prefix are one file name (255 bytes)."""
_DIGEST = 32
_VERSION_DIGITS = 12
_MARK = 8
"""Hex digits of an installation's id."""

_PLAIN = frozenset(string.ascii_lowercase + string.digits + "-")


def container_name(installation: str, lease: str) -> str:
    """The name that ties a container to its lease."""
    return f"allotment-{installation}-{lease}"


def lease_of_name(name: str, installation: str) -> str | None:
    """The lease that a container's name (with or without Docker's leading slash) states.

    None when the name is not one of this installation's: such a container is never acted upon.
    """
    prefix = f"allotment-{installation}-"
    bare = name.removeprefix("/")
    lease = bare.removeprefix(prefix)
    return lease if bare.startswith(prefix) and lease else None


def safe_name(user: str) -> str:
    """A person's name as one path part or volume name; different names stay different.

    a-z, 0-9 and inner hyphens stay; every other byte becomes `_xx`. So "..", "/" and capitals
    (a disk may ignore case) can neither leave a folder nor meet another person's. What becomes too
    long for a file name ends in `__` (found in no other name) and a digest of the whole.
    """
    out = "".join(
        character if character in _PLAIN else "".join(f"_{byte:02x}" for byte in character.encode())
        for character in user
    )
    out = "_2d" + out[1:] if out.startswith("-") else out
    if len(out) <= _LONGEST:
        return out
    digest = hashlib.sha256(user.encode()).hexdigest()[:_DIGEST]
    return f"{out[: _LONGEST - _DIGEST - 2]}__{digest}"


def version_of(digest: str) -> str:
    """What people name an image by: the first 12 hex digits of its content id."""
    return digest.removeprefix("sha256:")[:_VERSION_DIGITS]


def kept_tag(installation: str, environment: str, digest: str) -> tuple[str, str]:
    """(repository, tag) that an installation gives each image it knows: a newer build of the same name
    leaves the older one without any, and pruning then takes it; and another installation on the same
    engine sees that it is needed."""
    return f"allotment-{installation}/{environment}", version_of(digest)


def is_kept_tag(name: str) -> bool:
    """Whether some installation gave this tag."""
    head, _, _ = name.partition("/")
    mark = head.removeprefix("allotment-")
    return head != mark and len(mark) == _MARK and all(one in string.hexdigits for one in mark)


def home_volume_name(installation: str, user: str) -> str:
    """The named volume that holds this person's home."""
    return f"allotment-{installation}-home-{safe_name(user)}"
