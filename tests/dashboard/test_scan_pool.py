"""Whose scans run, wait, and end; with children that do what the test says."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dashboard.scan.requests import CheckRequest, Cluster, RecordRequest
from dashboard.scan_child import ChildGone
from dashboard.scan_pool import GONE_MS, MAX_OF_PERSON, Busy, Scan, ScanPool
from tests.support.processes import wait_until

REQUEST = RecordRequest(Cluster("nowhere:1"), "t", 0, 0)


class Clock:
    now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Child:
    """Answers what is put into `answers`, else nothing; each is asked by one thread."""

    def __init__(self) -> None:
        self.is_alive = True
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self._tick = threading.Event()

    def ask(self, request: Any) -> None:
        self.asked.append(request)

    def read(self, timeout_s: float) -> Any:
        if not self.is_alive:
            raise ChildGone("killed")
        if self.answers:
            return self.answers.pop(0)
        self._tick.wait(0.005)
        return None

    def kill(self) -> None:
        self.is_alive = False


class Nursery:
    def __init__(self) -> None:
        self.clock = Clock()
        self.children: list[Child] = []
        self.pool = ScanPool(2, 2, self.clock, self._new)  # type: ignore[arg-type]

    def _new(self) -> Child:
        self.children.append(Child())
        return self.children[-1]

    def busy(self) -> list[Child]:
        return [child for child in self.children if child.is_alive and child.asked]


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    # Whatever still runs is left by everybody.
    made.clock.now_ms += GONE_MS * 2


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, 20, "what the test waits for", every=0.005)


def is_running(scan: Scan) -> bool:
    return scan.state == "running"


def test_two_run_two_wait_and_the_next_is_told_so(nursery: Nursery) -> None:
    # All at once: who has no thread yet waits for a free one, which is not the queue.
    scans = [nursery.pool.start(REQUEST, owner) for owner in (1, 2, 3, 4)]
    until(lambda: all(map(is_running, scans[:2])))

    with pytest.raises(Busy, match="2 searches are running and 2 wait"):
        nursery.pool.start(REQUEST, 5)
    assert [scan.state for scan in scans] == ["running", "running", "waiting", "waiting"]
    nursery.pool.stop(scans[0])
    until(lambda: is_running(scans[2]))
    assert len(nursery.children) == 3


def test_a_scan_whose_person_went_away_is_stopped_and_its_child_killed(nursery: Nursery) -> None:
    left, watched = (nursery.pool.start(REQUEST, owner) for owner in (1, 2))
    until(lambda: is_running(left) and is_running(watched))
    nursery.clock.now_ms = GONE_MS
    assert nursery.pool.find(watched.scan_id, 2) is watched
    nursery.clock.now_ms = GONE_MS + 1

    assert left.finished.wait(20)
    assert left.state == "stopped"
    assert watched.state == "running"
    until(lambda: sum(not child.is_alive for child in nursery.children) == 1)


def test_a_child_is_used_again_after_an_answer_and_not_after_a_stop(nursery: Nursery) -> None:
    first = nursery.pool.start(REQUEST, 1)
    until(lambda: is_running(first))
    (child,) = nursery.busy()
    child.answers += [{"row": {"n": 1}}, {"failed": {"kind": "range", "text": "no"}}]
    assert first.finished.wait(20)
    assert (first.state, first.rows, child.is_alive) == ("failed", [{"n": 1}], True)

    second = nursery.pool.start(REQUEST, 1)
    until(lambda: is_running(second))
    nursery.pool.stop(second)
    assert second.state == "stopped"
    assert sum(not one.is_alive for one in nursery.children) == 1


def test_rows_stay_when_a_child_dies(nursery: Nursery) -> None:
    scan = nursery.pool.start(REQUEST, 1)
    until(lambda: is_running(scan))
    (child,) = nursery.busy()
    child.answers.append({"row": {"n": 1}})
    until(lambda: bool(scan.rows))
    child.kill()

    assert scan.finished.wait(20)
    assert (scan.state, scan.rows) == ("failed", [{"n": 1}])
    assert "killed" in scan.failure["text"]


def test_a_scan_is_its_persons_alone(nursery: Nursery) -> None:
    scan = nursery.pool.start(CheckRequest("true"), 1)

    assert nursery.pool.find(scan.scan_id, 2) is None
    assert nursery.pool.find("no-such", 1) is None


def test_the_oldest_of_one_person_gives_way(nursery: Nursery) -> None:
    scans = [nursery.pool.start(REQUEST, 1) for _ in range(MAX_OF_PERSON)]
    nursery.pool.start(REQUEST, 1)

    assert scans[0].finished.wait(20)
    assert scans[0].state == "stopped"


def test_a_scan_that_overruns_its_end_is_killed(nursery: Nursery) -> None:
    scan = nursery.pool.start(CheckRequest("true"), 1)
    until(lambda: is_running(scan))
    nursery.clock.now_ms = 3_000
    nursery.pool.find(scan.scan_id, 1)
    while not scan.is_finished:
        nursery.clock.now_ms += 1_000
        nursery.pool.find(scan.scan_id, 1)

    assert scan.state == "failed"
    assert "did not end in time" in scan.failure["text"]
