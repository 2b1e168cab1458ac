#!/usr/bin/env python3
"""Fetch the libraries of the console from npm, as radiator/console/vendor.json says.

    packaging/vendor-console.py            # fetch and write; an unexpected archive or file is an error
    packaging/vendor-console.py --update   # after a change of versions in vendor.json: also write the new hashes

The archive of a package must have the `integrity` that npm published, a file in it the `sha256`. `replace` are exact
texts: a browser cannot resolve the import of a package by its name, and source maps are not shipped. Needs npm.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

CONSOLE = Path(__file__).resolve().parent.parent / "radiator" / "console"
MANIFEST = CONSOLE / "vendor.json"
TARGET = CONSOLE / "static" / "vendor"


def fetch(package: dict[str, Any], directory: Path, update: bool) -> None:
    """Write the files of one package, and check its hashes, or note them with ``update``."""
    spec = f"{package['name']}@{package['version']}"
    packed = subprocess.run(
        ["npm", "pack", "--json", spec], cwd=directory, capture_output=True, text=True, check=True, timeout=300
    )
    archive = directory / json.loads(packed.stdout)[0]["filename"].replace("@", "").replace("/", "-")
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if update:
        package["integrity"] = integrity
    elif integrity != package["integrity"]:
        sys.exit(f"{spec}: expected the integrity {package['integrity']}, got {integrity}")
    with tarfile.open(archive) as tar:
        for entry in package["files"]:
            member = tar.extractfile(f"package/{entry['from']}")
            assert member is not None
            data = member.read()
            for before, after in entry.get("replace", {}).items():
                if before.encode() not in data:
                    sys.exit(f"{spec}: {entry['from']} does not contain {before!r}")
                data = data.replace(before.encode(), after.encode())
            sha256 = hashlib.sha256(data).hexdigest()
            if update:
                entry["sha256"] = sha256
            elif sha256 != entry["sha256"]:
                sys.exit(f"{spec}: {entry['from']}: expected the sha256 {entry['sha256']}, got {sha256}")
            path = TARGET / entry["to"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"{spec}: {entry['to']}, {len(data)} bytes")


def main() -> None:
    """Fetch all packages of the manifest."""
    update = sys.argv[1:] == ["--update"]
    if sys.argv[1:] and not update:
        sys.exit(__doc__)
    manifest = json.loads(MANIFEST.read_text())
    with tempfile.TemporaryDirectory() as directory:
        for package in manifest["packages"]:
            fetch(package, Path(directory), update)
    if update:
        MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
