"""Questions to a cluster that answers, fails or hangs."""

import threading
from dataclasses import dataclass

from broker.clock import SystemClock
from dashboard.answers import RUNNING, Answers
from dashboard.cluster import KafkaFailure

KEY = ("settings", "orders")


@dataclass
class HandClock:
    now_ms: int = 0

    def wall_ms(self) -> int:
        return self.now_ms

    monotonic_ms = wall_ms


def test_an_answer_is_kept_as_long_as_the_caller_takes_an_old_one() -> None:
    asked: list[int] = []
    answers = Answers(SystemClock())

    def question() -> int:
        asked.append(1)
        return len(asked)

    assert answers.ask(KEY, question, wait_s=10).value == 1
    assert answers.ask(KEY, question, wait_s=10, max_age_ms=60_000).value == 1
    assert answers.ask(KEY, question, wait_s=10).value == 2
    answers.forget(KEY)
    assert answers.ask(KEY, question, wait_s=10, max_age_ms=60_000).value == 3


def test_a_failure_comes_with_the_last_answer() -> None:
    answers = Answers(SystemClock())

    def fail() -> str:
        raise KafkaFailure("TIMED_OUT", "no answer in time", is_transport=True)

    assert answers.ask(KEY, fail, wait_s=10).value is None
    assert answers.ask(KEY, lambda: "good", wait_s=10).value == "good"
    failed = answers.ask(KEY, fail, wait_s=10)
    assert (failed.value, failed.is_pending) == ("good", False)
    assert failed.failure is not None


def test_a_mistake_of_ours_is_a_failure_too() -> None:
    answer = Answers(SystemClock()).ask(KEY, lambda: 1 // 0, wait_s=10)

    assert answer.failure is not None
    assert "ZeroDivisionError" in answer.failure.message


def test_a_cluster_that_hangs_holds_up_no_page_and_is_not_asked_twice() -> None:
    answers = Answers(SystemClock())
    go_on = threading.Event()
    asked: list[int] = []

    def hang() -> str:
        asked.append(1)
        go_on.wait(20)
        return "late"

    for number in range(RUNNING + 3):
        assert answers.ask((str(number),), hang, wait_s=0.01).is_pending
        assert answers.ask((str(number),), hang, wait_s=0.01).is_pending
    assert len(asked) == RUNNING
    go_on.set()
    assert answers.ask(("0",), hang, wait_s=10).value == "late"


def test_only_who_asks_first_waits_for_a_cluster_that_hangs() -> None:
    """The waits asked for are longer than the test may take: none of them is waited."""
    clock = HandClock()
    answers = Answers(clock)
    go_on = threading.Event()

    def hang() -> str:
        go_on.wait(20)
        return "late"

    assert answers.ask(("one",), hang, wait_s=0.01).is_pending
    clock.now_ms += 1_000
    assert answers.ask(("one",), hang, wait_s=1.0).is_pending
    assert answers.ask(("another",), hang, wait_s=600).is_pending
    go_on.set()
    clock.now_ms = 0
    assert answers.ask(("one",), hang, wait_s=10).value == "late"
