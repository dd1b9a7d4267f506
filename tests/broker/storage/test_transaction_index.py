"""The transaction index answers which aborted transactions a range of offsets meets."""

from __future__ import annotations

from pathlib import Path

from broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from tests.broker.storage.build import RealFileSystem

FIRST = AbortedTransaction(1, 0, 10, 11)
SECOND = AbortedTransaction(2, 5, 20, 13)
THIRD = AbortedTransaction(1, 12, 30, 31)


def opened(path: Path) -> TransactionIndex:
    size = path.stat().st_size if path.exists() else 0
    return TransactionIndex(RealFileSystem(), str(path), size)


def filled(path: Path) -> TransactionIndex:
    index = opened(path)
    for transaction in (FIRST, SECOND, THIRD):
        index.append(transaction)
    return index


def test_the_file_comes_with_the_first_entry(tmp_path: Path) -> None:
    index = opened(tmp_path / "x")
    assert index.overlapping(0, 100) == ([], False)
    assert not (tmp_path / "x").exists()
    filled(tmp_path / "x")
    assert (tmp_path / "x").stat().st_size == 3 * 34
    assert opened(tmp_path / "x").entries() == [FIRST, SECOND, THIRD]


def test_ranges_meet_transactions_that_overlap_them(tmp_path: Path) -> None:
    index = filled(tmp_path / "x")
    assert index.overlapping(0, 5) == ([FIRST], True)
    assert index.overlapping(11, 12) == ([SECOND], True)
    assert index.overlapping(0, 100) == ([FIRST, SECOND, THIRD], False)
    assert index.overlapping(31, 40) == ([], False)


def test_truncation_drops_transactions_whose_marker_goes(tmp_path: Path) -> None:
    index = filled(tmp_path / "x")
    index.truncate_to(20)
    assert opened(tmp_path / "x").entries() == [FIRST]


def test_a_rebuild_keeps_what_is_right(tmp_path: Path) -> None:
    path = tmp_path / "x"
    filled(path)
    index = opened(path)
    index.begin_rebuild()
    for transaction in (FIRST, THIRD):
        index.append(transaction)
    assert index.finish_rebuild()
    assert opened(path).entries() == [FIRST, THIRD]
    index.begin_rebuild()
    for transaction in (FIRST, THIRD):
        index.append(transaction)
    assert not index.finish_rebuild()
