"""``crc32c`` without what its package imports beside it.

The package looks its own version up in the metadata of installed distributions, which needs parsers
of e-mail and archives: as much time, at every start, as half of asyncio takes. The function is all
in the package's extension module, which can be loaded alone.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.machinery import PathFinder
from typing import Final, Protocol


class _Crc32c(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0) -> int: ...


def _load() -> _Crc32c:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", list(places))
    if spec is None or spec.loader is None:  # laid out in another way, or found in another
        whole: _Crc32c = importlib.import_module("crc32c").crc32c
        return whole
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    alone: _Crc32c = module.crc32c
    return alone


crc32c: Final = _load()
