"""Checkpoints and logs: what is whole, what is torn, what cannot be explained."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.adopt.metadata_log import UnreadableMetadata, find_checkpoints, read_metadata
from tests.broker.adopt.kafka_directory import (
    checkpoint,
    control_batch,
    leader_change,
    metadata_batch,
)

A, B, C, D = b"\x01\x14\0\0a", b"\x01\x14\0\0b", b"\x01\x14\0\0c", b"\x01\x14\0\0d"


def write_log(directory: Path, *segments: tuple[int, Sequence[bytes]]) -> None:
    for base_offset, batches in segments:
        (directory / f"{base_offset:020d}.log").write_bytes(b"".join(batches))


def write_checkpoint(directory: Path, end_offset: int, data: bytes) -> Path:
    path = directory / f"{end_offset:020d}-0000000001.checkpoint"
    path.write_bytes(data)
    return path


def test_a_log_without_a_checkpoint_is_read_from_its_beginning(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        (0, [leader_change(0), metadata_batch([A, B], 1)]),
        (3, [metadata_batch([C], 3, leader_epoch=4)]),
    )
    history = read_metadata(tmp_path)
    assert history.payloads == [A, B, C]
    assert (history.end_offset, history.leader_epoch, history.voter_count) == (4, 4, 1)
    assert history.checkpoint is None


def test_the_newest_checkpoint_stands_for_what_lies_below_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, checkpoint([A]))
    write_checkpoint(tmp_path, 3, checkpoint([A, B]))
    write_log(tmp_path, (1, [metadata_batch([C, C], 1), metadata_batch([D], 3)]))
    history = read_metadata(tmp_path)
    assert history.payloads == [A, B, D]
    assert history.checkpoint is not None
    assert history.checkpoint.end_offset == 3


def test_a_log_that_ends_at_the_checkpoint_adds_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 5, checkpoint([A]))
    write_log(tmp_path, (5, []))
    assert read_metadata(tmp_path).payloads == [A]


@pytest.mark.parametrize(
    "damaged",
    [
        checkpoint([A, B])[:-10],
        checkpoint([A, B])[:-80] + b"\xff" + checkpoint([A, B])[-79:],
        metadata_batch([A, B], 0),
        b"",
        checkpoint([A, B]) + b"more",
    ],
    ids=["torn", "a wrong sum", "no header", "empty", "bytes behind"],
)
def test_a_damaged_checkpoint_gives_way_to_an_older_one(tmp_path: Path, damaged: bytes) -> None:
    write_checkpoint(tmp_path, 3, damaged)
    write_checkpoint(tmp_path, 1, checkpoint([A]))
    write_log(tmp_path, (1, [metadata_batch([B, C], 1)]))
    assert read_metadata(tmp_path).payloads == [A, B, C]


def test_a_half_written_checkpoint_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{3:020d}-0000000001.checkpoint.part").write_bytes(b"half")
    (tmp_path / f"{2:020d}-0000000001.checkpoint.deleted").write_bytes(b"old")
    assert find_checkpoints(tmp_path) == []


def test_without_the_beginning_and_a_checkpoint_nothing_can_be_told(tmp_path: Path) -> None:
    write_log(tmp_path, (7, [metadata_batch([A], 7)]))
    with pytest.raises(UnreadableMetadata, match="offset 7"):
        read_metadata(tmp_path)
    damaged = write_checkpoint(tmp_path, 8, b"no checkpoint")
    with pytest.raises(UnreadableMetadata, match=damaged.name):
        read_metadata(tmp_path)


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_an_interrupted_write_ends_the_log(tmp_path: Path, cut: int) -> None:
    last = metadata_batch([C], 3)
    write_log(tmp_path, (0, [leader_change(0), metadata_batch([A, B], 1), last[:-cut]]))
    history = read_metadata(tmp_path)
    assert (history.payloads, history.end_offset) == ([A, B], 3)
    assert history.torn_bytes == len(last[:-cut].rstrip(b"\0"))


def test_zeros_behind_the_end_are_no_torn_bytes(tmp_path: Path) -> None:
    write_log(tmp_path, (0, [leader_change(0), metadata_batch([A], 1), bytes(1000)]))
    history = read_metadata(tmp_path)
    assert (history.payloads, history.torn_bytes) == ([A], 0)


def test_damage_with_segments_behind_it_is_no_torn_end(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        (0, [leader_change(0), metadata_batch([A], 1)[:-1]]),
        (2, [metadata_batch([B], 2)]),
    )
    with pytest.raises(UnreadableMetadata, match="segments follow"):
        read_metadata(tmp_path)


def test_a_gap_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, (0, [leader_change(0), metadata_batch([A], 1), metadata_batch([B], 5)]))
    with pytest.raises(UnreadableMetadata, match="offset 5 where 2 was due"):
        read_metadata(tmp_path)


def test_segments_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    write_log(tmp_path, (0, [leader_change(0)]), (4, [metadata_batch([A], 4)]))
    with pytest.raises(UnreadableMetadata, match="between offsets 1 and 4"):
        read_metadata(tmp_path)


def test_voters_come_from_the_newest_record_that_names_them(tmp_path: Path) -> None:
    three = b"\0\0" + bytes((4,)) + bytes(50)
    write_log(tmp_path, (0, [leader_change(0), control_batch(6, three, 1)]))
    assert read_metadata(tmp_path).voter_count == 3
    (tmp_path / f"{0:020d}.log").write_bytes(leader_change(0, voters=5))
    assert read_metadata(tmp_path).voter_count == 5


def test_voters_come_from_the_quorum_state_otherwise(tmp_path: Path) -> None:
    write_log(tmp_path, (0, [metadata_batch([A], 0)]))
    assert read_metadata(tmp_path).voter_count == 0
    state = {"currentVoters": [{"voterId": 1}, {"voterId": 2}]}
    (tmp_path / "quorum-state").write_text(json.dumps(state))
    assert read_metadata(tmp_path).voter_count == 2
