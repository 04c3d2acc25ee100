"""A fetch from an object store (moto's), through s3fs: objects, folders, keys, and what may not be asked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.data.runner import run_fetch
from allotment_hub.data.s3_source import S3Source
from allotment_hub.data.sources import Entry, Opened
from allotment_hub.data.spec import Manifest
from allotment_spawner.core.errors import AddressNotAllowed, DatasetUnavailable
from allotment_testing.fetch_spec import fetch_spec
from allotment_testing.object_store import ObjectStore, object_store

BODY = os.urandom(2_500_000)


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        running.put("open", iris=BODY, set__a=b"aa", set__deep__b=b"bb", set__deep__c=b"")
        yield running


async def fetched(tmp_path: Path, source: str, store: ObjectStore, **more: Any) -> Manifest:
    told: dict[str, Any] = {"allow_hosts": (store.host,), "s3_endpoint": store.endpoint}
    return await run_fetch(fetch_spec(tmp_path, source, **(told | more)), lambda _now: None)


async def test_one_object(tmp_path: Path, store: ObjectStore) -> None:
    sha256 = hashlib.sha256(BODY).hexdigest()
    manifest = await fetched(tmp_path, "s3://open/iris", store, checksum=sha256)
    assert manifest == Manifest(checksum=sha256, size_bytes=len(BODY), files=1)
    assert (tmp_path / "work/data/iris").read_bytes() == BODY


async def test_all_objects_below_a_prefix_with_keys_of_the_house(tmp_path: Path, store: ObjectStore) -> None:
    """Also with keys: they come from a file, and nothing else is looked at."""
    secret = tmp_path / "s3.json"
    secret.write_text(json.dumps({"key": "a-key", "secret": "a-secret"}))
    manifest = await fetched(tmp_path, "s3://open/set/", store, s3_secret=str(secret))
    assert (manifest.files, manifest.size_bytes) == (3, 4)
    data = tmp_path / "work/data"
    assert {str(one.relative_to(data)) for one in data.rglob("*") if one.is_file()} == {
        "a",
        "deep/b",
        "deep/c",
    }
    secret.write_text("{}")
    with pytest.raises(DatasetUnavailable, match="keys for the object store"):
        await fetched(tmp_path / "b", "s3://open/iris", store, s3_secret=str(secret))


async def test_what_is_not_there_is_said(tmp_path: Path, store: ObjectStore) -> None:
    for number, source in enumerate(("s3://open/none", "s3://nobody-has-this/x", "s3://open/none/")):
        with pytest.raises(DatasetUnavailable, match="does not have it"):
            await fetched(tmp_path / str(number), source, store)


async def test_a_store_in_the_house_must_be_allowed(tmp_path: Path, store: ObjectStore) -> None:
    with pytest.raises(AddressNotAllowed):
        await fetched(tmp_path, "s3://open/iris", store, allow_hosts=())


async def test_it_goes_on_where_it_was_unless_the_object_is_another_one(store: ObjectStore) -> None:
    store.put("changing", one=BODY)
    source = S3Source("s3://changing/one", file_name="one", endpoint=store.endpoint, secret=None)
    try:
        entry = await source.entries()
        assert isinstance(entry, Entry)
        first = await opened(source, entry, 0, None)
        assert (first.offset, first.size_bytes) == (0, len(BODY))
        rest = await opened(source, entry, 2_000_000, first.tag)
        assert (rest.offset, rest.size_bytes) == (2_000_000, len(BODY))
        store.put("changing", one=BODY[:1000])
        anew = await opened(source, entry, 500, first.tag)
        assert (anew.offset, anew.size_bytes) == (0, 1000)
    finally:
        await source.close()


async def opened(source: S3Source, entry: Entry, offset: int, tag: str | None) -> Opened:
    async with source.open(entry, offset=offset, tag=tag) as found:
        got = b"".join([chunk async for chunk in found.chunks])
        assert got == (BODY[found.offset :] if found.size_bytes == len(BODY) else BODY[:1000])
        return found
