"""What the single executable carries that no lock file names: the interpreter, and libraries of this machine.

Where these came as Debian's packages they are told by package and version, which is what security notices name; else
by their file's name and digest.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote


def parts(
    interpreter: Iterable[Path], libraries: Iterable[Path], pip_version: str
) -> list[dict[str, Any]]:
    """Components as CycloneDX has them: CPython and pip, the packages that files of the interpreter are of (where it is
    a package of Debian), and what the libraries are of."""
    found = [
        _component("cpython", platform.python_version(), "generic"),
        _component("pip", pip_version, "pypi"),
        *(_of_package(package) for package in map(_package, interpreter) if package is not None),
        *map(_part, libraries),
    ]
    by_reference = {each["bom-ref"]: each for each in found}
    return [by_reference[each] for each in sorted(by_reference)]


def _part(path: Path) -> dict[str, Any]:
    package = _package(path)
    if package is not None:
        return _of_package(package)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    component = _component(path.resolve().name, "", "generic")
    return {**component, "hashes": [{"alg": "SHA-256", "content": digest}]}


def _of_package(package: tuple[str, str, str]) -> dict[str, Any]:
    name, version, architecture = package
    return _component(name, version, "deb/debian", f"?arch={architecture}")


def _package(path: Path) -> tuple[str, str, str] | None:
    """(name, version, architecture) of the package that the file came with. Debian knows it by where it lay before
    directories were merged, so by its name alone."""
    if shutil.which("dpkg-query") is None:
        return None
    path = path.resolve()
    for line in _told("dpkg-query", "--search", f"*/{path.name}").splitlines():
        owner, _, place = line.partition(": ")
        if Path(place).exists() and Path(place).samefile(path):
            form = "${Package} ${Version} ${Architecture}"
            name, version, architecture = _told("dpkg-query", "-W", "-f", form, owner).split()
            return name, version, architecture
    return None


def _told(*words: str) -> str:
    return subprocess.run(words, check=False, capture_output=True, text=True).stdout  # noqa: S603


def _component(name: str, version: str, kind: str, more: str = "") -> dict[str, Any]:
    at = f"@{quote(version, safe=':~')}" if version else ""
    purl = f"pkg:{kind}/{quote(name)}{at}{more}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
