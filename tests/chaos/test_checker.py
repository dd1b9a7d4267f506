"""The checker of chaos runs finds what is planted: one that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos import copying, group
from tests.chaos.checker import Checker, Place, record_value
from tests.support import groups

Logs = dict[int, list[tuple[int, str]]]


def good_run() -> tuple[Checker, Logs]:
    """Two producers, two partitions, all of it acknowledged and read."""
    checker, logs = Checker(), Logs()
    for partition in (0, 1):
        logs[partition] = []
        for offset in range(10):
            value = record_value(f"p{offset % 2}/{partition}", offset // 2)
            logs[partition].append((offset, value))
            checker.on_acknowledged(Place(partition, offset), value)
            checker.on_read(Place(partition, offset), value, by_group=True)
            checker.on_high_watermark("reader", partition, offset)
    checker.on_assignment({"a": [0], "b": [1]})
    return checker, logs


def test_a_good_run_has_no_failure() -> None:
    checker, logs = good_run()
    assert checker.finish(logs, is_all_known=True) == []


def test_a_run_that_saw_no_group_and_no_high_watermark_does_not_pass() -> None:
    checker, _ = good_run()
    assert checker.unseen() == []
    checker = Checker()
    checker.on_assignment({"a": [], "b": []})
    assert [told[:2] for told in checker.unseen()] == ["I3", "G1"]


def truncate(checker: Checker, logs: Logs) -> None:
    del logs[1][-1:]


def duplicate(checker: Checker, logs: Logs) -> None:
    logs[1].append((10, logs[1][-1][1]))


def swap(checker: Checker, logs: Logs) -> None:
    (_, first), (_, second) = logs[0][2], logs[0][4]
    logs[0][2], logs[0][4] = (2, second), (4, first)


def rewrite(checker: Checker, logs: Logs) -> None:
    checker.on_read(Place(0, 3), "somebody:17")


def go_back(checker: Checker, logs: Logs) -> None:
    checker.on_high_watermark("reader", 1, 8)


def own_twice(checker: Checker, logs: Logs) -> None:
    checker.on_assignment({"a": [0, 1], "b": [1]})


def skip(checker: Checker, logs: Logs) -> None:
    checker.on_acknowledged(Place(0, 10), "p0/0:5")
    logs[0].append((10, "p0/0:5"))


def abort_what_was_read(checker: Checker, logs: Logs) -> None:
    checker.on_aborted(logs[0][1][1])


def read_what_was_aborted(checker: Checker, logs: Logs) -> None:
    checker.on_aborted("p0/0:5")
    logs[0].append((10, "p0/0:5"))


def commit_of_its_own_accord(checker: Checker, logs: Logs) -> None:
    logs[0].append((10, "p0/0:5"))


def lose_a_partition(checker: Checker, logs: Logs) -> None:
    del logs[0]


@pytest.mark.parametrize(
    ("plant", "number"),
    [
        (truncate, "I1"),
        (duplicate, "I1"),
        (swap, "I1"),
        (rewrite, "I2"),
        (go_back, "I3"),
        (own_twice, "G1"),
        (skip, "G2"),
        (abort_what_was_read, "T1"),
        (read_what_was_aborted, "T1"),
        (commit_of_its_own_accord, "T2"),
        (lose_a_partition, "I1"),
    ],
)
def test_what_is_planted_is_found(plant: Callable[[Checker, Logs], None], number: str) -> None:
    checker, logs = good_run()
    plant(checker, logs)
    assert any(failure.startswith(number) for failure in checker.finish(logs, is_all_known=True))


def test_an_assignment_is_read_as_consumers_write_it() -> None:
    told = groups.assignment({"chaos": [2, 0], "another": [7]})
    assert sorted(group.partitions(told)) == [0, 2, 7]
    assert group.partitions(b"") == []


def test_a_good_copy_has_no_failure() -> None:
    assert copying.judge(0, ["a", "b"], ["a", "b"]) == []


@pytest.mark.parametrize("target", [["a"], ["a", "b", "b"], ["b", "a"], ["a", "b", "c"], []])
def test_a_bad_copy_is_found(target: list[str]) -> None:
    assert len(copying.judge(0, ["a", "b"], target)) == 1
