"""site.yaml, catalog.yaml and environment.yaml, checked: all errors at once with file, line and key."""

from __future__ import annotations

import difflib
import posixpath
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from allotment_hub.catalog import Catalog
from allotment_hub.config_money import check_currency, check_limits, check_prices
from allotment_hub.environment import Environment
from allotment_hub.site import Site
from allotment_hub.yaml_lines import ConfigError, Document, KeyPath, read_document

__all__ = ["ConfigError", "load_catalog", "load_configuration", "load_environment", "load_site"]

Model = TypeVar("Model", bound=BaseModel)
_MOUNT_ROOTS = frozenset({"data", "mnt", "media", "srv", "opt", "shared"})


def load_site(path: Path) -> Site:
    """site.yaml; an empty file has every default. `ConfigError` names all that is wrong."""
    document, site = _read_site(path)
    return _finish(site, document)


def load_catalog(path: Path) -> Catalog:
    """catalog.yaml. `ConfigError` names all that is wrong."""
    document, catalog = _read_catalog(path)
    return _finish(catalog, document)


def load_environment(path: Path) -> Environment:
    """images/NAME/environment.yaml. `ConfigError` names all that is wrong."""
    document = read_document(path)
    return _finish(_validate(Environment, document), document)


def load_configuration(*, site: Path, catalog: Path) -> tuple[Site, Catalog]:
    """Both files and what must fit between them; `ConfigError` names all that is wrong in either."""
    site_document, site_read = _read_site(site)
    catalog_document, catalog_read = _read_catalog(catalog)
    if site_read is not None and catalog_read is not None:
        _check_together(site_document, site_read, catalog_read)
    findings = site_document.findings + catalog_document.findings
    if findings or site_read is None or catalog_read is None:
        raise ConfigError(findings)
    return site_read, catalog_read


def _finish(model: Model | None, document: Document) -> Model:
    if document.findings or model is None:
        raise ConfigError(document.findings)
    return model


def _read_site(path: Path) -> tuple[Document, Site | None]:
    document = read_document(path)
    site = _validate(Site, document)
    if site is not None:
        _check_site(document, site)
    return document, site


def _read_catalog(path: Path) -> tuple[Document, Catalog | None]:
    document = read_document(path)
    catalog = _validate(Catalog, document)
    if catalog is not None:
        _check_catalog(document, catalog)
    return document, catalog


def _validate(model: type[Model], document: Document) -> Model | None:
    """The model, or None with every error noted; a key that YAML itself got wrong is noted already."""
    if document.findings and document.data is None:
        return None
    if document.data is None or isinstance(document.data, dict):
        data: Any = document.data or {}
    else:
        document.complain((), "the file must hold keys and values")
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        _note(document, error)
        return None


def _note(document: Document, error: ValidationError) -> None:
    """One finding per key; of a union's branches only the one that got furthest speaks."""
    found: dict[KeyPath, list[str]] = {}
    branched: set[KeyPath] = set()
    for item in error.errors(include_url=False):
        key, in_union = _key_in_file(document.data, item["loc"], missing=item["type"] == "missing")
        if in_union:
            branched.add(key)
        words = _words(document.data, key, item["type"], item["msg"])
        if words not in found.setdefault(key, []):
            found[key].append(words)
    for key, messages in found.items():
        deeper = any(len(other) > len(key) and other[: len(key)] == key for other in found)
        if not (deeper and key in branched):
            document.complain(key, ", or ".join(messages))


def _key_in_file(data: object, loc: tuple[str | int, ...], *, missing: bool) -> tuple[KeyPath, bool]:
    """Pydantic's location without the names of union branches, which stand in no file."""
    key: KeyPath = ()
    in_union = False
    here: Any = data
    for number, part in enumerate(loc):
        in_list = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if in_list or (isinstance(here, dict) and part in here):
            here, key = here[part], (*key, part)
        elif missing and number == len(loc) - 1:
            key = (*key, part)
        elif part != "[key]":
            in_union = True
    return key, in_union


def _words(data: object, key: KeyPath, kind: str, message: str) -> str:
    if kind == "missing":
        return "this key is missing"
    if kind == "extra_forbidden":
        return "there is no such key"
    here: Any = data
    for part in key:
        here = here[part]
    shown = "" if isinstance(here, (dict, list)) else f", not {here!r}"
    if message.startswith("Input should "):
        return message.removeprefix("Input ") + shown
    return message[0].lower() + message[1:] + shown


def _check_site(document: Document, site: Site) -> None:
    names = Counter(pool.name for pool in site.pools)
    taken: dict[object, str] = {}
    for index, pool in enumerate(site.pools):
        if names[pool.name] > 1:
            document.complain(("pools", index, "name"), f"{pool.name!r} names more than one pool")
        if not pool.mig and pool.layout != "dynamic":
            document.complain(("pools", index, "layout"), "only a pool with `mig: true` can have a layout")
        if not pool.mig and pool.full_is_largest_profile:
            document.complain(("pools", index, "full_is_largest_profile"), "needs `mig: true`")
        keys = [("all", pool.mig)] if pool.gpus == "all" else list(pool.gpus)
        for key in keys:
            if key in taken:
                what = "all GPUs of this mode" if pool.gpus == "all" else f"GPU {key}"
                document.complain(("pools", index, "gpus"), f"{what} are in pool {taken[key]!r} already")
            taken.setdefault(key, pool.name)
    if site.public_url is not None:
        _check_public_url(document, site.public_url)
    _check_mounts(document, site)
    _check_folders(document, site)
    check_currency(document, site)
    check_limits(document, site)


def _check_mounts(document: Document, site: Site) -> None:
    """A mount over the home, the system or another mount would hide what stands there."""
    names = Counter(mount.name for mount in site.mounts)
    places = Counter(mount.inside for mount in site.mounts)
    for index, mount in enumerate(site.mounts):
        if names[mount.name] > 1:
            document.complain(("mounts", index, "name"), f"{mount.name!r} names more than one mount")
        if places[mount.inside] > 1:
            document.complain(("mounts", index, "target"), f"more than one mount is at {mount.inside}")
        around = [other.inside for other in site.mounts if mount.inside.startswith(f"{other.inside}/")]
        if around:
            # a folder that cannot be written has no place to mount another in
            document.complain(
                ("mounts", index, "target"), f"{mount.inside} lies in another mount, {around[0]}"
            )
        parts = mount.inside.split("/")
        plain = posixpath.normpath(mount.inside) == mount.inside
        if mount.target is not None and (parts[1] not in _MOUNT_ROOTS or len(parts) < 3 or not plain):
            roots = ", ".join(f"/{root}" for root in sorted(_MOUNT_ROOTS))
            document.complain(("mounts", index, "target"), f"must lie in one of {roots}")
        if ".." in mount.path.split("/") or mount.path.strip("/") == "":
            document.complain(("mounts", index, "path"), "must be a folder, not the root, without ..")


def _check_folders(document: Document, site: Site) -> None:
    """A person may be called `archive`: what lies where homes lie would be that person's home."""
    home, key = site.docker.home, ("docker", "home")
    if home == "volume":
        return
    if not (home.startswith("/") and "{username}" in home):
        document.complain(key, 'must be "volume" or an absolute path with {username} in it')
        return
    if posixpath.normpath(home) != home or not home.strip("/").partition("{username}")[0].count("/"):
        document.complain(key, "must name a folder for homes alone, like /srv/homes/{username}, without ..")
        return
    homes = posixpath.dirname(home.partition("{username}")[0] + "x")
    others: list[tuple[KeyPath, str | None]] = [
        (("datasets", "cache"), site.datasets.cache),
        (("scratch", "path"), site.scratch.path),
        (("homes", "archive"), site.homes.archive),
        *((("datasets", "allow_paths", at), path) for at, path in enumerate(site.datasets.allow_paths)),
    ]
    for where, path in others:
        if path is None:
            continue
        plain = posixpath.normpath(path)
        within = f"{plain}/".startswith(f"{homes}/")
        # a dataset could be made of somebody's home
        around = where[1] == "allow_paths" and f"{homes}/".startswith(f"{plain.rstrip('/')}/")
        if within or around:
            document.complain(where, f"{path} and the homes in {homes} must be apart")


def _check_public_url(document: Document, url: str) -> None:
    if not url.startswith(("http://", "https://")):
        document.complain(("public_url",), "must begin with http:// or https://")
        return
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or parts.path not in ("", "/") or parts.query or parts.fragment:
        document.complain(("public_url",), "must be an address alone, like https://gpu.example.org, no path")


def _check_catalog(document: Document, catalog: Catalog) -> None:
    if not catalog.flavors:
        document.complain(("flavors",), "at least one flavor is needed")
    if not catalog.environments:
        document.complain(("environments",), "at least one environment is needed")
    for name, flavor in catalog.flavors.items():
        if flavor.gpu is not None and flavor.gpu.kind == "slice":
            if flavor.gpu.memory_gb is None:
                document.complain(("flavors", name, "gpu"), "a slice needs `memory_gb`")
            if flavor.gpu.count != 1:
                document.complain(("flavors", name, "gpu", "count"), "a session has one slice: must be 1")
        if flavor.environments != "all":
            key: KeyPath = ("flavors", name, "environments")
            _check_names(document, key, flavor.environments, catalog.environments, "environment")
    for index, schedule in enumerate(catalog.prices.schedules):
        if schedule.flavors != "all":
            key = ("prices", "schedules", index, "flavors")
            _check_names(document, key, schedule.flavors, catalog.flavors, "flavor")
    check_prices(document, catalog)


def _check_together(document: Document, site: Site, catalog: Catalog) -> None:
    for index, pool in enumerate(site.pools):
        if pool.flavors != "all":
            key: KeyPath = ("pools", index, "flavors")
            _check_names(document, key, pool.flavors, catalog.flavors, "flavor of the catalogue")
    for index, limit in enumerate(site.limits):
        if limit.flavors != "all":
            key = ("limits", index, "flavors")
            _check_names(document, key, limit.flavors, catalog.flavors, "flavor of the catalogue")


def _check_names(
    document: Document, key: KeyPath, names: Iterable[str], known: Iterable[str], what: str
) -> None:
    options = list(known)
    for index, name in enumerate(names):
        if name not in options:
            near = difflib.get_close_matches(name, options, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(options))}"
            document.complain((*key, index), f"no {what} is called {name!r}{hint}")
