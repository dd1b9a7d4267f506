"""What goes with the artifacts of a release in dist/: checksums, and a list of what is in them (SBOM).

    python packaging/release.py dist build/parts.json

`SHA256SUMS` is for `sha256sum -c`. `odradek-VERSION.cdx.json` is CycloneDX 1.5, made from the lock files: what pip
installs, no more and no less, with the digests that pip compares. What the single executable carries beside that
(the interpreter, libraries of the machine that it was built on) its build has told: `packaging/binary/parts.py`.
Spark and its connector, of a lock file of their own, are optional: one of the executables carries them.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

CLONE: Final = Path(__file__).resolve().parents[1]
ARTIFACTS: Final = (
    "odradek",
    "odradek-with-spark",
    "odradek_*.deb",
    "odradek-*.whl",
    "odradek-*.cdx.json",
)
_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_VERSION: Final = re.compile(r"-(\d[\w.]*?)(?:-|\.tar)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def locked(text: str) -> list[tuple[str, str, list[str]]]:
    """(name, version, digests of its files) of every package in a lock file."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if requirement := _REQUIREMENT.match(line):
            found.append((requirement[1].lower().replace("_", "-"), requirement[2], []))
        if found:
            found[-1][2].extend(_HASH.findall(line))
    return found


def components_of_spark(lock: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A jar's path is that of Maven: group, name, version, file."""
    for each in lock["python"]:
        (version,) = _VERSION.findall(each["file"])
        yield _hashed(_component(each["project"], version, "pypi"), [each["sha256"]])
    for each in lock["jars"]:
        *group, name, version, _ = each["path"].split("/")
        component = _component(name, version, "maven", ".".join(group))
        yield _hashed(component, [each["sha256"]])


def _hashed(component: dict[str, Any], digests: list[str]) -> dict[str, Any]:
    component["hashes"] = [{"alg": "SHA-256", "content": each} for each in digests]
    return component


def _component(name: str, version: str, kind: str, group: str = "") -> dict[str, Any]:
    purl = f"pkg:{kind}/{group + '/' if group else ''}{name}@{version}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def bill_of_materials(
    version: str, lock: str, spark_lock: dict[str, Any], parts: list[dict[str, Any]]
) -> dict[str, Any]:
    components = [
        _hashed(_component(name, of_version, "pypi"), digests)
        for name, of_version, digests in locked(lock)
    ]
    optional = [{**each, "scope": "optional"} for each in components_of_spark(spark_lock)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "odradek",
                "version": version,
                "bom-ref": f"pkg:pypi/odradek@{version}",
            }
        },
        "components": [*components, *parts, *optional],
    }


def checksums(directory: Path) -> str:
    """Of all artifacts, one line each, as sha256sum reads them."""
    paths = sorted({path for pattern in ARTIFACTS for path in directory.glob(pattern)})
    return "".join(f"{_digest(path)}  {path.name}\n" for path in paths)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    directory, told = map(Path, sys.argv[1:])
    sys.path.insert(0, str(CLONE))
    from broker import VERSION

    lock = "".join((CLONE / f"requirements{each}.lock").read_text() for each in ("", "-cluster"))
    spark_lock = json.loads((CLONE / "dashboard" / "spark" / "lock.json").read_text())
    parts = json.loads(told.read_text())
    bill = directory / f"odradek-{VERSION}.cdx.json"
    bill.write_text(
        json.dumps(bill_of_materials(VERSION, lock, spark_lock, parts), indent=1) + "\n"
    )
    (directory / "SHA256SUMS").write_text(checksums(directory))
    sys.stdout.write((directory / "SHA256SUMS").read_text())


if __name__ == "__main__":
    main()
