"""Exceptions that cross package borders.

``KafkaError`` carries a protocol error code to the client: the dispatcher maps it once.
``StorageError`` never leaves the broker: it takes a log directory offline.
"""

from __future__ import annotations

from broker.model.error_code import ErrorCode


class KafkaError(Exception):
    """A request (or one part of it) is answered with ``code``."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class StorageError(Exception):
    """The file system failed in a way that makes ``log_dir`` untrustworthy (EIO, failed fsync)."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(f"{log_dir}: {message}")
        self.log_dir = log_dir


class DiskFullError(Exception):
    """No space left (ENOSPC, EDQUOT): the append did not happen, nothing is damaged, a later one may."""


class NoDescriptorError(DiskFullError):
    """No file descriptor left (EMFILE, ENFILE): as with a full disk nothing happened or is damaged, and
    a later try may succeed."""


class CorruptLogError(Exception):
    """Stored bytes below the recovery point do not make sense: the partition goes offline."""

    def __init__(self, path: str, position: int, offset: int, message: str) -> None:
        super().__init__(f"{path} at byte {position} (near offset {offset}): {message}")
        self.path = path
        self.position = position
        self.offset = offset
