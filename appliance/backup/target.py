"""The directory that backups are in.

::

    odradek-backup.json      that it is one, and of which format
    objects/ab/abcdef…       contents by their SHA-256, each once, readable by their owner alone
    manifests/ID.json        one backup: a line with the digest of the rest, and the rest
    known.jsonl              which file of the node had which digest, so that it need not be read again
    tmp/                     what is being written

An object has its name once it is whole and on disk, a manifest once all its objects are; so whatever is cut
off in between leaves earlier backups whole, and the next run finds what was copied by this one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from appliance.failure import CommandError
from appliance.output import format_size

MARK: Final = "odradek-backup.json"
FORMAT: Final = 1
CHUNK: Final = 1024 * 1024
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

FileKey = tuple[str, int, int, int]
"""Of a file that does not change any more: path in the node, size, inode, time of its last change."""


class Changed(Exception):
    """A file is not the one that was told of: deleted, replaced or cut meanwhile."""


class Damaged(Exception):
    """What is kept is not what was written; the message says which."""


class Content(NamedTuple):
    sha256: str
    size: int
    #: Bytes that were not in the target before.
    new_bytes: int


def no_room(
    error: OSError, where: Path, then: str = "it goes on with what is done"
) -> CommandError:
    if error.errno in _NO_ROOM:
        return CommandError(
            f"no room is left at {where}",
            hint=f"Make room there and call it again: {then}.",
            code="NO_ROOM",
        )
    return CommandError(
        f"{error.filename or where}: {error.strerror}",
        hint="Name a directory that this user may write to.",
        code="NOT_WRITTEN",
    )


def refuse_one_in_the_other(target: Path, data: Path) -> None:
    """One would be taken for a part of the other, and be lost with it."""
    target, data = target.resolve(), data.resolve()
    if data.is_relative_to(target) or target.is_relative_to(data):
        raise CommandError(
            f"{target} and the data directory {data} lie one in the other",
            hint="Name a directory beside it, better on another disk.",
            code="ONE_IN_THE_OTHER",
        )


class Pruned(NamedTuple):
    """Names of backups, and bytes."""

    gone: list[str]
    kept: list[str]
    freed_bytes: int


class Target:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._objects = path / "objects"
        self._manifests = path / "manifests"
        self._tmp = path / "tmp"
        self._known: dict[FileKey, str] = {}
        self._known_file: Any = None
        self._lock = -1

    # Opening ---------------------------------------------------------------------------------

    def open(self) -> None:
        """To read. Raises CommandError when it is none, or of a newer format."""
        try:
            found = int(json.loads((self.path / MARK).read_text())["format"])
        except (FileNotFoundError, NotADirectoryError):
            raise CommandError(
                f"{self.path} holds no backups",
                hint=f"`odradek backup create {self.path}` makes the first.",
                code="NO_BACKUP",
            ) from None
        except PermissionError as error:
            raise CommandError(
                f"{self.path / MARK} cannot be read: {error.strerror}",
                hint="Call this as the user who made the backups: they hold secrets.",
                code="NOT_READ",
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise CommandError(
                f"{self.path / MARK} is damaged",
                hint=f'It holds {{"format": {FORMAT}}} for backups of this version: write that into it, then'
                f" `odradek backup verify {self.path}` tells whether all else is whole.",
                code="DAMAGED",
            ) from None
        if found > FORMAT:
            raise CommandError(
                f"the backups in {self.path} are of a newer Odradek",
                hint="Use that version or a later one.",
                code="DATA_VERSION",
            )

    def open_to_write(self) -> None:
        """Made if it is new; nobody else writes there meanwhile."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / MARK).exists():
            if any(self.path.iterdir()):
                raise CommandError(
                    f"{self.path} holds other things than backups",
                    hint="Name a directory that is new or empty.",
                    code="NO_BACKUP",
                )
            self.path.chmod(0o700)  # it will hold the secret key and everybody's records
            aside = self.path / f".{MARK}"
            aside.write_text(json.dumps({"format": FORMAT}) + "\n")
            aside.rename(self.path / MARK)
        self.open()
        self._lock = os.open(self.path / MARK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"another backup into {self.path} is under way") from None
        for directory in (self._objects, self._manifests, self._tmp):
            directory.mkdir(exist_ok=True)
        for left in self._tmp.iterdir():
            left.unlink()
        self._load_known()

    def _load_known(self) -> None:
        path = self.path / "known.jsonl"
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_bytes().splitlines():
                try:
                    name, size, inode, changed_ns, digest = json.loads(line)
                except ValueError:
                    continue  # torn: it was the last one of a run that was killed
                self._known[(name, size, inode, changed_ns)] = digest
        self._known_file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - until it is closed
        if path.stat().st_size:
            self._known_file.write("\n")

    def close(self) -> None:
        if self._known_file is not None:
            self._known_file.close()
        if self._lock >= 0:
            os.close(self._lock)

    # Contents --------------------------------------------------------------------------------

    def object_path(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest

    def known(self, key: FileKey) -> Content | None:
        """The content of a file that an earlier run has copied."""
        digest = self._known.get(key)
        if digest is None:
            return None
        try:
            is_whole = self.object_path(digest).stat().st_size == key[1]
        except OSError:
            return None
        return Content(digest, key[1], 0) if is_whole else None

    def note(self, key: FileKey, digest: str) -> None:
        self._known[key] = digest
        self._known_file.write(json.dumps([*key, digest]) + "\n")
        self._known_file.flush()

    def put_file(self, descriptor: int, size: int) -> Content:
        """The first ``size`` bytes of an open file. Raises Changed when it is shorter."""

        def pieces() -> Iterator[bytes]:
            position = 0
            while position < size:
                piece = os.pread(descriptor, min(CHUNK, size - position), position)
                if not piece:
                    raise Changed
                position += len(piece)
                yield piece

        return self._put(pieces())

    def put_bytes(self, data: bytes) -> Content:
        return self._put(iter([data]))

    def _put(self, pieces: Iterator[bytes]) -> Content:
        aside = self._tmp / "object"
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                view = memoryview(piece)
                while view:
                    view = view[os.write(descriptor, view) :]
            name = digest.hexdigest()
            path = self.object_path(name)
            if path.exists() and path.stat().st_size == size:
                aside.unlink()
                return Content(name, size, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.parent.mkdir(exist_ok=True)
        aside.rename(path)
        return Content(name, size, size)

    def read_object(self, digest: str, size: int) -> Iterator[bytes]:
        """Its bytes; raises Damaged at the end when they are not those that were written."""
        found, length = hashlib.sha256(), 0
        try:
            with self.object_path(digest).open("rb") as file:
                while piece := file.read(CHUNK):
                    found.update(piece)
                    length += len(piece)
                    yield piece
        except OSError as error:
            raise Damaged(error.strerror or "cannot be read") from None
        if length != size:
            raise Damaged(f"{length} bytes instead of {size}")
        if found.hexdigest() != digest:
            raise Damaged("its bytes have changed")

    # Manifests -------------------------------------------------------------------------------

    def backups(self) -> list[str]:
        """The oldest first."""
        try:
            return sorted(path.stem for path in self._manifests.glob("*.json"))
        except OSError as error:
            raise CommandError(f"{self._manifests}: {error.strerror}") from None

    def choose(self, wanted: str | None) -> str:
        found = self.backups()
        if not found or (wanted is not None and wanted not in found):
            raise CommandError(
                f"there is no backup {wanted or 'yet'} in {self.path}",
                hint=f"`odradek backup list {self.path}` shows which there are.",
                code="NO_BACKUP",
            )
        return wanted or found[-1]

    def read_manifest(self, name: str) -> dict[str, Any]:
        """Raises CommandError when it is damaged."""
        path = self._manifests / f"{name}.json"
        try:
            digest, _, body = path.read_bytes().partition(b"\n")
            if hashlib.sha256(body).hexdigest().encode() != digest:
                raise ValueError("its bytes have changed")
            manifest: dict[str, Any] = json.loads(body)
        except (OSError, ValueError) as error:
            raise CommandError(
                f"{path} is damaged: {error}",
                hint=f"--backup names another one of `odradek backup list {self.path}`; without this file"
                " that backup is gone, and the others are as they were.",
                code="DAMAGED",
            ) from None
        return manifest

    def prune(self, keep: int, digests_of: Callable[[dict[str, Any]], set[str]]) -> Pruned:
        """Remove all backups but the newest ``keep``, and contents that none of those names.

        Opened to write. All that are kept must be readable before anything goes; killed amid it, the next
        call takes away what this one left.
        """
        names = self.backups()
        doomed, kept = names[:-keep], names[-keep:]
        needed = {digest for name in kept for digest in digests_of(self.read_manifest(name))}
        for name in doomed:
            (self._manifests / f"{name}.json").unlink()
        if doomed:
            os.sync()  # no backup is listed that lacks something
        freed = 0
        for path in self._objects.glob("*/*"):
            if path.name not in needed:
                freed += path.stat().st_size
                path.unlink()
        return Pruned(doomed, kept, freed)

    def publish(self, name: str, manifest: dict[str, Any]) -> None:
        body = json.dumps(manifest, ensure_ascii=False).encode() + b"\n"
        aside = self._tmp / "manifest"
        aside.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        aside.chmod(0o600)
        os.sync()  # the names of all objects, before one names them
        aside.rename(self._manifests / f"{name}.json")
        os.sync()


def size_words(partitions: int, total: int, read: int, new: int) -> str:
    words = f"{partitions:,} of {total:,} partitions, {format_size(read)} looked through"
    return f"{words}, {format_size(new)} new"
