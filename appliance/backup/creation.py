"""One backup of a running node.

The broker makes a cut and says which bytes of which files lie before it; they are read here, partition by
partition. When a file was deleted or replaced meanwhile (retention, compaction), the partition is asked for again;
when compaction has gone beyond the cut, all begins anew with a later cut: what was copied already is known.
"""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from appliance import VERSION, control
from appliance.backup.target import Changed, Content, Target
from appliance.config import LoadedConfig
from appliance.failure import CommandError
from broker.model.data_layout import LAYOUT

CUTS: Final = 10
TRIES: Final = 50
DATABASE: Final = "odradek.db"
SQLITE_FILES: Final = (DATABASE, "samples.db")
PLAIN_FILES: Final = (
    "secret_key",
    "initial-admin-password",
    "broker.properties",
    "adopted.json",
    "imported.json",
    "odradek.json",
)
DIRECTORIES: Final = ("reports", "run-logs", "user-reports")
SEALED_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
Progress = Callable[["Totals"], None]


class _Anew(Exception):
    """Compaction went beyond the cut."""


@dataclass(slots=True)
class Totals:
    partitions: int = 0
    of_partitions: int = 0
    #: Looked through, and not in the target before; files that need not be read again.
    read_bytes: int = 0
    new_bytes: int = 0
    known_bytes: int = 0
    notes: list[str] = field(default_factory=list)


class Creation:
    def __init__(
        self, data: Path, target: Target, loaded: LoadedConfig, progress: Progress
    ) -> None:
        self._data = data
        self._target = target
        self._loaded = loaded
        self._progress = progress
        self.totals = Totals()

    def run(self) -> tuple[str, dict[str, Any]]:
        """Returns the backup's name and its manifest."""
        for _ in range(CUTS):
            cut = control.ask(self._data, "backup_cut")
            self.totals = Totals(of_partitions=cut["partitions"])
            try:
                manifest = self._copy(cut)
            except _Anew:
                continue
            created = datetime.fromtimestamp(cut["now_ms"] / 1000, UTC)
            name = created.strftime("%Y%m%dT%H%M%S.") + f"{cut['now_ms'] % 1000:03d}Z"
            self._target.publish(name, manifest)
            return name, manifest
        raise CommandError(
            "compaction was quicker than the backup, time and again",
            hint="Call it again: it goes on with what is copied.",
        )

    def _copy(self, cut: dict[str, Any]) -> dict[str, Any]:
        cut_id = cut["id"]
        self.totals.notes += [
            f"partition {each} is offline because of damage and left out" for each in cut["offline"]
        ]
        metadata = b"".join(self._metadata(cut_id))
        # The database first: what it tells of topics and offsets is older than the records then.
        files = [*self._own_files(), *self._settings()]
        partitions = [
            copied
            for each in self._partitions(cut_id)
            if (copied := self._copy_partition(cut_id, each)) is not None
        ]
        identity = Path(cut["log_dirs"][0], "meta.properties")
        control.ask(self._data, "backup_end", id=cut_id)
        return {
            "created_ms": cut["now_ms"],
            "version": VERSION,
            "layout": LAYOUT,
            "cluster_id": cut["cluster_id"],
            "node_id": cut["node_id"],
            "partitions": partitions,
            "metadata": self._entry("", self._count(self._target.put_bytes(metadata))),
            "meta_properties": identity.read_text(),
            "files": files,
            "notes": self.totals.notes,
        }

    def _partitions(self, cut_id: str) -> Iterator[dict[str, Any]]:
        number = 0
        while page := control.ask(self._data, "backup_partitions", id=cut_id, **{"from": number})[
            "partitions"
        ]:
            yield from page
            number += len(page)

    def _metadata(self, cut_id: str) -> Iterator[bytes]:
        page, is_last = 0, False
        while not is_last:
            told = control.ask(self._data, "backup_metadata", id=cut_id, page=page)
            yield base64.b64decode(told["frame"])
            is_last = told["is_last"]
            page += 1

    # Partitions ------------------------------------------------------------------------------

    def _copy_partition(self, cut_id: str, each: dict[str, Any]) -> dict[str, Any] | None:
        """None: it was deleted since the cut."""
        place = {"topic": each["topic"], "partition": each["partition"]}
        for _ in range(TRIES):
            told = control.ask(self._data, "backup_files", id=cut_id, **place)
            if told.get("is_compacted_beyond"):
                raise _Anew
            if told.get("is_gone"):
                self.totals.of_partitions -= 1
                return None
            try:
                files = list(self._copy_files(f"{each['topic']}-{each['partition']}", told))
            except Changed:
                continue
            after = control.ask(self._data, "backup_files", id=cut_id, **place)
            if after.get("is_compacted_beyond"):
                raise _Anew
            if not after.get("is_gone") and not _same_segments(told, after):
                continue
            self.totals.partitions += 1
            self._progress(self.totals)
            start_and_end = {key: told[key] for key in ("log_start_offset", "end_offset")}
            return {**place, "topic_id": each["topic_id"], **start_and_end, "files": files}
        raise CommandError(
            f"{each['topic']}-{each['partition']} changes quicker than it can be copied",
            hint="Call it again: it goes on with what is copied.",
        )

    def _copy_files(self, name: str, told: dict[str, Any]) -> Iterator[dict[str, Any]]:
        directory = Path(told["directory"])
        yield {"name": "leader-epoch-checkpoint", "text": told["epochs"]}
        yield {"name": "partition.metadata", "text": told["metadata"]}
        segments = told["segments"]
        for segment in segments:
            base = f"{segment['base_offset']:020d}"
            if segment is segments[-1]:
                # Its end may be cut: the indexes are made anew from it.
                content = self._take(directory / f"{base}.log", segment["size"], segment["inode"])
                yield self._entry(f"{base}.log", content)
                continue
            for suffix in SEALED_SUFFIXES:
                path = directory / f"{base}{suffix}"
                if suffix == ".log":
                    content = self._take_sealed(name, path, segment["size"], segment["inode"])
                elif path.exists():
                    content = self._take_sealed(name, path, path.stat().st_size, None)
                else:
                    continue
                yield self._entry(path.name, content)
        if not segments:
            yield {"name": f"{told['end_offset']:020d}.log", "text": ""}
        for path in sorted(directory.glob("*.snapshot")):
            if path.stem.isdigit() and int(path.stem) <= told["end_offset"]:
                try:
                    yield self._entry(path.name, self._take(path, None, None))
                except Changed:
                    continue  # an older one that went: recovery does without

    def _take_sealed(self, name: str, path: Path, size: int, inode: int | None) -> Content:
        try:
            status = path.stat()
        except FileNotFoundError:
            raise Changed from None
        if inode is not None and (status.st_ino != inode or status.st_size < size):
            raise Changed
        key = (f"{name}/{path.name}", size, status.st_ino, status.st_mtime_ns)
        found = self._target.known(key)
        if found is not None:
            self.totals.known_bytes += size
            return found
        content = self._take(path, size, status.st_ino)
        self._target.note(key, content.sha256)
        return content

    def _take(self, path: Path, size: int | None, inode: int | None) -> Content:
        """``size`` None: all of it. Raises Changed when it is gone, or another file by now."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Changed from None
        try:
            status = os.fstat(descriptor)
            if inode is not None and status.st_ino != inode:
                raise Changed
            return self._count(
                self._target.put_file(descriptor, status.st_size if size is None else size)
            )
        finally:
            os.close(descriptor)

    def _count(self, content: Content) -> Content:
        self.totals.read_bytes += content.size
        self.totals.new_bytes += content.new_bytes
        self._progress(self.totals)
        return content

    def _entry(self, name: str, content: Content) -> dict[str, Any]:
        return {"name": name, "size": content.size, "sha256": content.sha256}

    # Everything else -------------------------------------------------------------------------

    def _own_files(self) -> Iterator[dict[str, Any]]:
        for name in SQLITE_FILES:
            if name == DATABASE and self._loaded.values.database_url.get_secret_value():
                self.totals.notes.append(
                    "the database is not in the data directory: back it up by its own means"
                )
            elif (self._data / name).exists():
                yield self._entry(name, self._database(self._data / name))
        for name in PLAIN_FILES:
            if (self._data / name).is_file():
                try:
                    yield self._entry(name, self._take(self._data / name, None, None))
                except Changed:
                    continue
        for directory in DIRECTORIES:
            for path in sorted((self._data / directory).rglob("*")):
                where = path.relative_to(self._data)
                if path.is_file() and not any(part.endswith(".tmp") for part in where.parts):
                    try:
                        yield self._entry(str(where), self._take(path, None, None))
                    except Changed:
                        continue  # results and logs go when newer ones come

    def _database(self, path: Path) -> Content:
        """As of one moment, whoever writes to it meanwhile."""
        aside = self._target.path / "tmp" / "database"
        aside.unlink(missing_ok=True)
        aside.touch(mode=0o600)
        try:
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(aside)) as copy:
                source.backup(copy)
            return self._take(aside, None, None)
        except sqlite3.OperationalError as error:
            if "full" in str(error):
                raise OSError(28, "No space left on device", str(aside)) from None
            raise CommandError(f"{path} cannot be copied: {error}") from None
        finally:
            aside.unlink(missing_ok=True)

    def _settings(self) -> Iterator[dict[str, Any]]:
        """Files of settings that this command was told of; ``restore`` lays them beside the data."""
        for path in (self._loaded.file, self._loaded.values.broker_config):
            if path is not None:
                try:
                    yield self._entry(f"settings/{path.name}", self._take(path, None, None))
                except Changed:
                    self.totals.notes.append(f"{path} is not there and not in the backup")


def _same_segments(told: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether nothing was replaced: what retention took from the front does not matter."""
    kept = {segment["base_offset"]: segment["inode"] for segment in after["segments"]}
    copied = {segment["base_offset"]: segment["inode"] for segment in told["segments"]}
    return all(copied.get(base) == inode for base, inode in kept.items())
