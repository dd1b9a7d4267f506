"""Leader epochs: who wrote which offsets (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest

from broker.storage.leader_epochs import LeaderEpochs

ENTRIES = [(2, 0), (5, 10), (6, 40)]


def test_entries_rise_and_contradictions_go() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign(6, 50)
    assert epochs.entries() == ENTRIES
    epochs.assign(7, 40)
    assert epochs.entries() == [(2, 0), (5, 10), (7, 40)]
    epochs.assign(8, 5)
    assert epochs.entries() == [(2, 0), (8, 5)]


def test_an_offset_belongs_to_the_epoch_that_wrote_it() -> None:
    epochs = LeaderEpochs([(2, 4), (5, 10)])
    assert [epochs.epoch_at(offset) for offset in (3, 4, 9, 10, 99)] == [-1, 2, 2, 5, 5]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(6, (6, 100)), (5, (5, 40)), (3, (2, 10)), (1, (1, 0)), (7, (-1, -1)), (-1, (-1, -1))],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset_for(asked, 100) == answer


def test_truncation_from_the_end() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(40)
    assert epochs.entries() == ENTRIES[:2]
    epochs.truncate_from_end(11)
    assert epochs.entries() == ENTRIES[:2]


def test_truncation_from_the_start_moves_the_epoch_that_covers_it() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(20)
    assert epochs.entries() == [(5, 20), (6, 40)]
    epochs.truncate_from_start(40)
    assert epochs.entries() == [(6, 40)]


def test_changes_are_counted_until_they_are_on_disk() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert not epochs.is_dirty
    epochs.assign(9, 90)
    assert epochs.is_dirty
    epochs.synced_version = epochs.version
    epochs.assign(9, 95)
    assert not epochs.is_dirty
