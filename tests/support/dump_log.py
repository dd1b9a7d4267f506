"""Apache Kafka's dump-log tool as the judge of every file that we write in a log directory.

`dump(files)` reads them with deep iteration, `check(directory)` adds the index sanity checks; both
fail on any line that the tool does not print about a sound file.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import apache

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_ARGUMENT_LIMIT = 100_000  # one argument may take 128 KiB
_BATCH = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) "
    r"count: (?P<record_count>-?\d+) baseSequence: (?P<base_sequence>-?\d+) "
    r"lastSequence: (?P<last_sequence>-?\d+) producerId: (?P<producer_id>-?\d+) "
    r"producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<partition_leader_epoch>-?\d+) "
    r"isTransactional: (?P<is_transactional>true|false) isControl: (?P<is_control>true|false) "
    r"deleteHorizonMs: \S+ position: (?P<position>\d+) "
    r"(?P<timestamp_type>CreateTime|LogAppendTime|NoTimestampType): (?P<max_timestamp>-?\d+) "
    r"size: (?P<size>\d+) magic: 2 compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) "
    r"isvalid: (?P<is_valid>true|false)$"
)
_RECORD = re.compile(r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: -?\d+")
_GAP = re.compile(r"\s+(-?\d+) is followed by (-?\d+)$")
_HARMLESS = (
    re.compile(r"offset: \d+ position: \d+$"),
    re.compile(r"timestamp: -?\d+ offset: \d+$"),
    re.compile(r".+ (passed sanity check|is empty)\.$"),
    re.compile(r"producerId: \d+ producerEpoch: -?\d+ coordinatorEpoch: -?\d+ "),
    re.compile(r"version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+ "),
    re.compile(r"\s*$"),
)


class Complaint(AssertionError):
    """The tool found fault with a file."""


@dataclass(slots=True)
class Dump:
    """What the tool read in one file."""

    path: Path
    batches: list[dict[str, str]] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)  # (offset, timestamp)
    lines: list[str] = field(default_factory=list)  # of an index or a snapshot

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.records]


def _without_first_offsets(stderr: str, *, has_holes: bool) -> list[str]:
    """What the tool complains of, but for its own mistake: of every segment that does not start at
    offset 0 it says that -1 is followed by the first offset (Kafka 4.4, its own segments too)."""
    complaints: list[str] = []
    heading = ""
    for line in stderr.splitlines():
        if line.startswith("Non-consecutive offsets in "):
            heading = line
        elif heading and (pair := _GAP.match(line)) is not None:
            is_hole = has_holes and int(pair[1]) < int(pair[2])
            if not is_hole and (pair[1] != "-1" or int(pair[2]) != int(Path(heading).stem)):
                complaints += [heading, line]
        elif line.strip():
            complaints.append(line)
    return complaints


def _parse(run: apache.ToolRun, *, has_holes: bool = False) -> dict[Path, Dump]:
    dumps: dict[Path, Dump] = {}
    complaints = _without_first_offsets(run.stderr, has_holes=has_holes)
    if run.status:
        complaints.append(f"exit status {run.status}")
    dump: Dump | None = None
    for line in run.lines:
        if line.startswith("Dumping "):
            dump = Dump(Path(line.removeprefix("Dumping ")))
            dumps[dump.path] = dump
            continue
        if dump is None:
            complaints.append(line)
        elif (record := _RECORD.match(line)) is not None:
            dump.records.append((int(record[1]), int(record[2])))
        elif (batch := _BATCH.match(line)) is not None:
            dump.batches.append(batch.groupdict())
            if batch["is_valid"] != "true":
                complaints.append(f"{dump.path}: {line}")
        elif line.startswith("Log starting offset: "):
            if int(line.rpartition(" ")[2]) != int(dump.path.stem):
                complaints.append(f"{dump.path}: {line}")
        elif any(pattern.match(line) for pattern in _HARMLESS):
            dump.lines.append(line)
        else:
            complaints.append(f"{dump.path}: {line}")
    if complaints:
        raise Complaint("\n".join(complaints[:40]))
    return dumps


def _portions(files: Iterable[Path]) -> Iterator[list[Path]]:
    portion: list[Path] = []
    size = 0
    for path in files:
        if size + len(str(path)) >= _ARGUMENT_LIMIT:
            yield portion
            portion, size = [], 0
        portion.append(path)
        size += len(str(path)) + 1
    if portion:
        yield portion


def dump(files: Iterable[Path], *options: str, has_holes: bool = False) -> dict[Path, Dump]:
    """Read segments, indexes and snapshots with deep iteration; indexes are compared with their
    segments entry by entry. Raises Complaint; ``has_holes``: compaction took records away."""
    dumps: dict[Path, Dump] = {}
    for portion in _portions(files):
        names = ",".join(map(str, portion))
        dumps |= _parse(
            apache.run_tool(
                "DumpLogSegments", ["--files", names, "--deep-iteration", *options], timeout=600
            ),
            has_holes=has_holes,
        )
    return dumps


def log_files(directory: Path) -> list[Path]:
    """What the tool can read under a log directory or partition directory; deleted and cleaned
    files are nobody's business any more."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.suffix in SUFFIXES
        and path.stem.isdigit()
        and not path.parent.name.endswith(("-delete", "-stray"))
    )


def check(
    directory: Path, *, files: Iterable[Path] | None = None, has_holes: bool = False
) -> dict[Path, Dump]:
    """Let the tool judge all logs under `directory`: content, entries, index sanity, offsets that
    ascend within a partition. Returns what it read in the segments."""
    found = list(files) if files is not None else log_files(directory)
    dumps = dump(found, has_holes=has_holes)
    indexes = [path for path in found if path.suffix in (".index", ".timeindex")]
    for portion in _portions(indexes):
        names = ",".join(map(str, portion))
        _parse(apache.run_tool("DumpLogSegments", ["--files", names, "--index-sanity-check"]))
    _check_order(dumps)
    return {path: dump for path, dump in dumps.items() if path.suffix == ".log"}


def _check_order(dumps: dict[Path, Dump]) -> None:
    by_partition: dict[Path, list[Dump]] = {}
    for path, one in dumps.items():
        if path.suffix == ".log":
            by_partition.setdefault(path.parent, []).append(one)
    for partition, parts in by_partition.items():
        parts.sort(key=lambda one: one.path.stem)
        last = -1
        for one in parts:
            for batch in one.batches:
                if int(batch["base_offset"]) <= last:
                    raise Complaint(f"{partition}: {one.path.name} goes back to {batch}")
                last = int(batch["last_offset"])
