"""What lies in static/vendor is what its list says, unchanged."""

import hashlib
import json
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[2] / "static" / "vendor"


def test_every_vendored_file_is_listed_with_its_digest() -> None:
    listed = {
        name: digest
        for package in json.loads((VENDOR / "VENDORED.json").read_text())
        for name, digest in package["files"].items()
    }
    found = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "VENDORED.json"
    }
    assert found == listed


def test_every_vendored_package_tells_version_licence_and_source() -> None:
    for package in json.loads((VENDOR / "VENDORED.json").read_text()):
        assert {"name", "version", "licence", "source", "archive_sha256"} <= package.keys()
        assert f"{package['name']}/LICENSE" in package["files"]
