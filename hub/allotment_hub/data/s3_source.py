"""An object, or all objects below a prefix, from S3 through s3fs."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from allotment_spawner.core.errors import DatasetUnavailable
from botocore.exceptions import BotoCoreError, ClientError
from s3fs import S3FileSystem

from allotment_hub.data.sources import CHUNK_BYTES, Entry, Opened, Transient, gone
from allotment_hub.data.tree import checked

__all__ = ["S3Source"]

_CHANGED = frozenset({"PreconditionFailed", "412", "InvalidRange", "416"})
_NEVER = frozenset({"NoSuchKey", "NoSuchBucket", "404", "AccessDenied", "403", "InvalidAccessKeyId"})
_NEVER |= frozenset({"SignatureDoesNotMatch", "401", "PermanentRedirect", "InvalidBucketName"})


class S3Source:
    """`secret` names {"key", "secret", "region"?}; without it (and nothing else is looked at) anonymous."""

    def __init__(
        self, url: str, *, file_name: str, endpoint: str | None, secret: str | None, silence_s: float = 60.0
    ) -> None:
        self._url = url
        self._name = file_name
        options: dict[str, Any] = {"anon": True}
        client: dict[str, Any] = {}
        if secret is not None and Path(secret).exists():
            told = _secret(Path(secret))
            options = {"key": told["key"], "secret": told["secret"]}
            if "region" in told:
                client["region_name"] = told["region"]
        config: dict[str, Any] = {
            "connect_timeout": 30,
            "read_timeout": silence_s,
            "retries": {"max_attempts": 1},
            # without a signature's own way of splitting, objects come as they are
            "response_checksum_validation": "when_required",
        }
        if endpoint is not None:
            client.setdefault("region_name", "us-east-1")
            options["endpoint_url"] = endpoint
            config["s3"] = {"addressing_style": "path"}
        self._files = S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs=config,
            client_kwargs=client,
            **options,
        )
        self._files.retries = 1

    async def entries(self) -> AsyncIterator[Entry] | Entry:
        path = self._url.removeprefix("s3://")
        with _errors():
            if "/" in path.rstrip("/") and not path.endswith("/"):
                try:
                    info = await self._files._info(path)
                except FileNotFoundError:
                    raise gone("there is no such object") from None
                if info["type"] == "file":
                    return Entry(key=path, name=self._name)
        return self._all(path.rstrip("/"))

    async def _all(self, prefix: str) -> AsyncIterator[Entry]:
        """Every object below; a key that is no plain path is refused, one that ends in / is a folder."""
        with _errors():
            try:
                found = await self._files._find(prefix, detail=True)
            except FileNotFoundError:
                raise gone("there is no such object or folder") from None
        files = {path: info for path, info in found.items() if info["type"] == "file"}
        files = {path: info for path, info in files.items() if not path.endswith("/")}
        if not files:
            raise gone("there is nothing below it")
        for path, info in sorted(files.items()):
            name = checked(path.removeprefix(prefix).removeprefix("/"))
            yield Entry(key=path, name=name, version=info.get("ETag"))

    @asynccontextmanager
    async def open(self, entry: Entry, *, offset: int, tag: str | None) -> AsyncIterator[Opened]:
        bucket, _, key = entry.key.partition("/")
        with _errors():
            answer: dict[str, Any] | None = None
            if offset and tag is not None:
                answer = await self._rest(bucket, key, offset, tag)
            start = offset if answer is not None else 0
            if answer is None:
                answer = await self._files._call_s3("get_object", Bucket=bucket, Key=key)
            body = answer["Body"]
            try:
                yield Opened(start, start + int(answer["ContentLength"]), answer.get("ETag"), _chunks(body))
            finally:
                body.close()

    async def _rest(self, bucket: str, key: str, offset: int, tag: str) -> dict[str, Any] | None:
        """From `offset` on, or None when the object is another one by now."""
        try:
            answer: dict[str, Any] = await self._files._call_s3(
                "get_object", Bucket=bucket, Key=key, Range=f"bytes={offset}-", IfMatch=tag
            )
        except (ClientError, OSError) as error:
            if _code(error) in _CHANGED:
                return None
            raise
        return answer

    async def close(self) -> None:
        if self._files._s3 is not None:
            await self._files._s3.close()


async def _chunks(body: Any) -> AsyncIterator[bytes]:
    while chunk := await body.read(CHUNK_BYTES):
        yield chunk


@contextmanager
def _errors() -> Iterator[None]:
    """Turns what s3fs and botocore raise into ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise gone("there is no such object") from error
    except (ClientError, BotoCoreError, aiohttp.ClientError, OSError) as error:
        if _code(error) in _NEVER:
            raise gone(f"it answers {_code(error)}") from error
        if isinstance(error, PermissionError):
            raise gone("it may not be read") from error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Transient(type(error).__name__) from error


def _code(error: BaseException) -> str:
    """The word of S3's own answer; s3fs hides it behind an OSError's cause."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ClientError):
        found = found.__cause__
    return "" if found is None else str(found.response.get("Error", {}).get("Code", ""))


def _secret(path: Path) -> dict[str, str]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: str(told[name]) for name in ("key", "secret", "region") if name in told or name != "region"
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetUnavailable(
            "The keys for the object store cannot be read.",
            f'Have an operator write {{"key": …, "secret": …}} to {path.name} in the folder of secrets.',
        ) from error
