"""Small files that thousands of partitions have alike: one file with many names.

A topic's ``partition.metadata`` is the same in each of its partitions, and so are most
``leader-epoch-checkpoint`` files; each of its own would take a block of 4 KiB. They are always
replaced by a rename, never written in place (Kafka does likewise), so a name may stand for a file
that others have, too. Where the file system makes no links each gets its own.

The link is made under a name that nothing else ever opens: a file that is written anew under it
would change all others. Called from the loop and from threads.
"""

from __future__ import annotations

import threading
from typing import Final

from broker.storage.filesystem import FileSystem, replace_file
from broker.storage.layout import LINK_SUFFIX

#: Contents that are remembered, the oldest is forgotten.
MAX_CONTENTS: Final = 1024


class SharedFiles:
    """Of one log directory."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        #: Contents to a path where they were written last; it may be gone or have changed since.
        self._paths: dict[bytes, str] = {}

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """As ``replace_file``."""
        with self._lock:
            known = self._paths.get(data)
        if known is None or known == path or not self._link(known, path, data, sync=sync):
            replace_file(self._fs, path, data, sync=sync)
            self._remember(path, data)

    def _remember(self, path: str, data: bytes) -> None:
        with self._lock:
            self._paths.pop(data, None)
            if len(self._paths) >= MAX_CONTENTS:
                del self._paths[next(iter(self._paths))]
            self._paths[data] = path

    def _link(self, known: str, path: str, data: bytes, *, sync: bool) -> bool:
        """Give the file at ``known`` a second name, if it still holds ``data``."""
        fs = self._fs
        link = path + LINK_SUFFIX
        if not fs.link(known, link):
            return False
        try:
            if fs.read_bytes(link) != data:
                return False
            if sync:
                file = fs.open(link, size=len(data))
                try:
                    file.datasync()
                finally:
                    file.close()
            fs.rename(link, path)
        finally:
            fs.remove(link)  # still there when both names were one file already
        if sync:
            fs.sync_directory(path.rpartition("/")[0])
        return True
