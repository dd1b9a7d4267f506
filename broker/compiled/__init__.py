"""The hot path as machine code, when it has been built.

``python -m broker.compiled.build`` compiles the modules that every request passes through with
mypyc, from the very sources beside it, into ``build/`` in this package. ``install`` makes later
imports find the result. All of it is used or nothing: compiled modules know each other's layout
and hold constants of others, so one changed line anywhere below ``broker`` sets the whole build
aside, and the sources run interpreted until it is made again. See docs/decisions/0008.

Every start asks, so the question is cheap: what sources look like (``source_stamp``) as a rule, what
they hold (``source_digest``) where that differs, as after a copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

#: ``0`` in this variable of the environment leaves a build unused.
SWITCH: Final = "ODRADEK_COMPILED"

_PACKAGE: Final = Path(__file__).resolve().parent
_BROKER: Final = _PACKAGE.parent
#: One directory an interpreter: a build fits the version that it was made for only.
BUILD_DIRECTORY: Final = _PACKAGE / "build" / sys.implementation.cache_tag
MANIFEST: Final = "manifest.json"

#: Why the sources run interpreted; None when they do not.
reason: str | None = "not installed in this process"


class Manifest(NamedTuple):
    """What a build holds: files by module name, relative to the build's directory."""

    #: Of the sources that it was made from.
    digest: str
    stamp: int
    #: The module that holds the code of all others; theirs are doors into it.
    shared: str
    modules: dict[str, str]


class CompiledFinder:
    """A ``MetaPathFinder``: finds the compiled modules by name, before the sources are looked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


def source_digest() -> str:
    """Of every source of the broker, names included."""
    import hashlib  # OpenSSL with it: not for a start that can do without

    digest = hashlib.sha256()
    for path in _sources():
        with open(path, "rb") as source:
            content = source.read()
        digest.update(f"{os.path.relpath(path, _BROKER)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def source_stamp() -> int:
    """Of every source's name, size and second of its last change: what Python, too, knows by whether
    bytecode is current."""
    seen = []
    for path in _sources():
        status = os.stat(path)
        seen.append((os.path.relpath(path, _BROKER), status.st_size, int(status.st_mtime)))
    return zlib.crc32(repr(seen).encode())


def _sources() -> Iterator[str]:
    for directory, names, files in os.walk(_BROKER):
        names[:] = sorted(name for name in names if name not in ("__pycache__", "build"))
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(directory, name)


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
    if manifest.stamp == source_stamp() or manifest.digest == source_digest():
        return manifest
    return "built from other sources"


def _manifest() -> Manifest | None:
    try:
        with open(BUILD_DIRECTORY / MANIFEST, encoding="utf-8") as file:
            return Manifest(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None
