"""A backup becomes a data directory, or is looked through.

``restoring.json`` lies in the directory until all is there and on disk; while it does, nobody serves from it, and
only another restore may go on, from the beginning. Logs come without the mark of a clean stop: the first start reads the last
segment of each, as after a crash, and makes its indexes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from appliance.backup.target import Damaged, Target
from appliance.failure import CommandError
from broker.model.data_layout import LAYOUT, RESTORING_NAME

_JOURNAL: Final = "journal-00000000000000000001"
_SNAPSHOT: Final = "snapshot-00000000000000000001"
Progress = Callable[[int, int], None]


def files_of(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each file of a backup goes in a data directory, and its entry."""
    for each in manifest["files"]:
        yield each["name"], each
    yield f"metadata/{_SNAPSHOT}", manifest["metadata"]
    for partition in manifest["partitions"]:
        for each in partition["files"]:
            yield f"logs/{partition['topic']}-{partition['partition']}/{each['name']}", each


def digests_of(manifest: dict[str, Any]) -> set[str]:
    """Of all contents that a backup needs."""
    return {entry["sha256"] for _, entry in files_of(manifest) if "sha256" in entry}


def damage_in(
    target: Target, manifest: dict[str, Any], progress: Progress
) -> Iterator[tuple[str, str]]:
    """Every file whose content is not what was written, and what is wrong with it."""
    verdicts: dict[str, str | None] = {}
    entries = list(files_of(manifest))
    for number, (name, entry) in enumerate(entries):
        progress(number, len(entries))
        if "text" in entry:
            continue
        digest = entry["sha256"]
        if digest not in verdicts:
            verdicts[digest] = None
            try:
                for _ in target.read_object(digest, entry["size"]):
                    pass
            except Damaged as damaged:
                verdicts[digest] = str(damaged)
        found = verdicts[digest]
        if found is not None:
            yield name, f"{found} ({target.object_path(digest)})"


def restore(target: Target, manifest: dict[str, Any], data: Path, progress: Progress) -> None:
    """Raises CommandError when the directory holds something, or the backup is damaged."""
    if manifest["layout"] > LAYOUT:
        raise CommandError(
            f"the backup is of Odradek {manifest['version']}, which is newer than this one",
            hint="Restore it with that version or a later one.",
            code="DATA_VERSION",
        )
    _make_empty(data)
    entries = list(files_of(manifest))
    for number, (name, entry) in enumerate(entries):
        progress(number, len(entries))
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(target, entry, path)
        except Damaged as damaged:
            raise CommandError(
                f"{name} is damaged in the backup: {damaged}",
                hint="`odradek backup verify` tells all that is; an earlier backup may be whole.",
                code="DAMAGED",
            ) from None
    (data / "metadata" / _JOURNAL).touch()
    _write_checkpoints(manifest, data / "logs")
    os.sync()
    (data / RESTORING_NAME).unlink()


def _make_empty(data: Path) -> None:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = data / RESTORING_NAME
    found = [path for path in data.iterdir() if path.name != "lost+found"]
    if found and not mark.exists():
        raise CommandError(
            f"{data} is not empty",
            hint="Name a new directory: what is there may be somebody's data.",
            code="NOT_EMPTY",
        )
    mark.write_text(json.dumps({"restoring": True}) + "\n")
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()


def _write(target: Target, entry: dict[str, Any], path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if "text" in entry:
            file.write(entry["text"].encode())
            return
        for piece in target.read_object(entry["sha256"], entry["size"]):
            file.write(piece)


def _write_checkpoints(manifest: dict[str, Any], logs: Path) -> None:
    logs.mkdir(exist_ok=True)
    partitions = manifest["partitions"]
    last_segments = (
        (
            each,
            max(int(file["name"][:20]) for file in each["files"] if file["name"].endswith(".log")),
        )
        for each in partitions
    )
    for name, offsets in {
        "recovery-point-offset-checkpoint": last_segments,
        "replication-offset-checkpoint": ((each, each["end_offset"]) for each in partitions),
        "log-start-offset-checkpoint": (
            (each, each["log_start_offset"]) for each in partitions if each["log_start_offset"]
        ),
    }.items():
        (logs / name).write_text(_checkpoint(offsets))
    (logs / "meta.properties").write_text(manifest["meta_properties"])


def _checkpoint(offsets: Iterable[tuple[dict[str, Any], int]]) -> str:
    """In Kafka's format."""
    lines = [f"{each['topic']} {each['partition']} {offset}" for each, offset in offsets]
    return "\n".join(["0", str(len(lines)), *lines, ""])


def refuse_unfinished(data: Path) -> None:
    """Half of a backup must not be mistaken for all of it."""
    with contextlib.suppress(OSError):
        if (data / RESTORING_NAME).exists():
            raise CommandError(
                f"{data} is being restored from a backup, which was interrupted",
                hint="Call `odradek backup restore` again: it begins anew.",
                code="RESTORING",
            )
