"""The hot path as machine code, when it has been built.

``python -m broker.compiled.build`` compiles the modules that every request passes through with
mypyc, from the very sources beside it, into ``build/`` in this package. ``install`` makes later
imports find the result. All of it is used or nothing: compiled modules know each other's layout
and hold constants of others, so one changed line anywhere below ``broker`` sets the whole build
aside, and the sources run interpreted until it is made again. See docs/decisions/0008.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

#: ``0`` in this variable of the environment leaves a build unused.
SWITCH: Final = "ODRADEK_COMPILED"

_PACKAGE: Final = Path(__file__).resolve().parent
_BROKER: Final = _PACKAGE.parent
#: One directory an interpreter: a build fits the version that it was made for only.
BUILD_DIRECTORY: Final = _PACKAGE / "build" / sys.implementation.cache_tag
MANIFEST: Final = "manifest.json"

#: Why the sources run interpreted; None when they do not.
reason: str | None = "not installed in this process"


@dataclass(frozen=True)
class Manifest:
    """What a build holds: files by module name, relative to the build's directory."""

    digest: str
    #: The module that holds the code of all others; theirs are doors into it.
    shared: str
    modules: dict[str, str]


class CompiledFinder(MetaPathFinder):
    """Finds the compiled modules by name, before the sources are looked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def source_digest() -> str:
    """Of every source of the broker, names included."""
    digest = hashlib.sha256()
    for directory, names, files in os.walk(_BROKER):
        names[:] = sorted(name for name in names if name not in ("__pycache__", "build"))
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(directory, name)
                with open(path, "rb") as source:
                    content = source.read()
                digest.update(f"{os.path.relpath(path, _BROKER)} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()


def is_current() -> bool:
    """Whether a build of just these sources is there."""
    return isinstance(_current(), Manifest)


def why_not() -> str | None:
    """Why a broker would run its sources interpreted; None when it would not."""
    found = _usable()
    return found if isinstance(found, str) else None


def install() -> str | None:
    """Use the build from here on, if it can be. Gives None, or why the sources run interpreted.

    To be called before any other module of the broker is imported.
    """
    global reason
    found = _usable()
    reason = found if isinstance(found, str) else _use(found)
    return reason


def _use(manifest: Manifest) -> str | None:
    files = {name: BUILD_DIRECTORY / file for name, file in manifest.modules.items()}
    finder = CompiledFinder(files)
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(manifest.shared)
    except ImportError as error:
        sys.meta_path.remove(finder)
        return f"the build cannot be loaded: {error}"
    return None


def _usable() -> Manifest | str:
    """The build that is to be used, or why there is none."""
    return f"{SWITCH}=0" if os.environ.get(SWITCH) == "0" else _current()


def _current() -> Manifest | str:
    """The build of just these sources, or why there is none."""
    manifest = _manifest()
    if manifest is None:
        return "not built"
    return manifest if manifest.digest == source_digest() else "built from other sources"


def _manifest() -> Manifest | None:
    try:
        with open(BUILD_DIRECTORY / MANIFEST, encoding="utf-8") as file:
            return Manifest(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None
