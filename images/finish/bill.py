"""Runs while the image is built: writes sbom.cdx.json and licences.csv into the folder named.

The same packages give the same bytes: no time, no random number, everything sorted.
"""

import csv
import hashlib
import json
import re
import subprocess
import sys
import uuid
from importlib import metadata
from pathlib import Path


def hashes_of(lock: str) -> dict:
    """(package, version) -> sha256 of the wheel, where the lock names it."""
    found = {}
    for line in lock.splitlines():
        match = re.match(r"([^=\s]+)==(\S+) --hash=sha256:([0-9a-f]{64})", line)
        if match:
            found[match[1].lower(), match[2]] = match[3]
    return found


def licence_of(told: metadata.PackageMetadata) -> str:
    """The licence in the package's own words: expression, else classifiers, else a short field."""
    if told.get("License-Expression"):
        return told["License-Expression"]
    named = [
        one.rpartition(" :: ")[2] for one in told.get_all("Classifier") or [] if one.startswith("License ::")
    ]
    if named:
        return " AND ".join(sorted(set(named)))
    lines = (told.get("License") or "").strip().splitlines()
    return lines[0][:100] if lines else "unknown"


def python_packages(hashes: dict) -> list:
    """Distributions that the image's own Python finds, each once."""
    found = {}
    for one in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
        if name in found:
            continue
        component = {
            "type": "library",
            "name": name,
            "version": one.version,
            "purl": f"pkg:pypi/{name}@{one.version}",
            "licenses": [{"license": {"name": licence_of(one.metadata)}}],
        }
        if (name, one.version) in hashes:
            component["hashes"] = [{"alg": "SHA-256", "content": hashes[name, one.version]}]
        found[name] = component
    return [found[name] for name in sorted(found)]


def debian_packages() -> list:
    """Installed Debian packages, from dpkg."""
    form = "${Package}\t${Version}\t${Architecture}\n"
    told = subprocess.run(["dpkg-query", "-W", "-f", form], check=True, capture_output=True, text=True).stdout
    rows = sorted(line.split("\t") for line in told.splitlines())
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}",
            "licenses": [{"license": {"name": f"see /usr/share/doc/{name}/copyright"}}],
        }
        for name, version, architecture in rows
    ]


def write(folder: Path) -> None:
    card = json.loads((folder / "environment.json").read_text())
    components = python_packages(hashes_of((folder / "requirements.lock").read_text())) + debian_packages()
    seed = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, seed)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "name": f"allotment/{card['name']}",
                "version": f"{card['version']}-{card['variant']}",
            }
        },
        "components": components,
    }
    (folder / "sbom.cdx.json").write_text(json.dumps(document, indent=1) + "\n")
    with (folder / "licences.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(("kind", "package", "version", "licence"))
        for one in components:
            kind = one["purl"][4:].partition("/")[0]
            table.writerow((kind, one["name"], one["version"], one["licenses"][0]["license"]["name"]))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
