"""What is asked again while a cluster's leaders move, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.importing.patience import Patience, passes
from dashboard.cluster import KafkaFailure

GONE = KafkaFailure("NOT_CONNECTED", "nobody answers", is_transport=True)
MOVES = KafkaFailure("LEADER_NOT_AVAILABLE", "its leader did not answer")
REFUSED = KafkaFailure("TOPIC_AUTHORIZATION_FAILED", "not for you")


class Cluster:
    """A gateway, a clock and a sleep in one: answers come one after the other, and sleeping takes its time."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.now_ms = 0
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        raise GONE

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    def question(self) -> object:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaFailure):
            raise answer
        return answer

    def ask(self, is_settled: Callable[[Any], bool] | None = None) -> object:
        patience = Patience(self, self, 10_000, self.sleep)  # type: ignore[arg-type]
        return patience.ask(self.question, is_settled)


def test_what_nobody_answers_is_asked_again_and_the_cluster_is_looked_for() -> None:
    cluster = Cluster(GONE, MOVES, "here")
    assert cluster.ask() == "here"
    assert cluster.checks == 2


def test_what_is_refused_is_not_asked_again() -> None:
    cluster = Cluster(REFUSED, "here")
    with pytest.raises(KafkaFailure, match="not for you"):
        cluster.ask()
    assert cluster.checks == 0


def test_patience_ends() -> None:
    cluster = Cluster(GONE)
    with pytest.raises(KafkaFailure, match="nobody answers"):
        cluster.ask()
    assert cluster.now_ms > 10_000


def test_the_last_answer_counts_even_where_it_is_not_settled() -> None:
    assert Cluster(1, 2, 3).ask(lambda answer: answer == 2) == 2
    assert Cluster(1).ask(lambda answer: answer == 2) == 1


def test_what_passes() -> None:
    coordinator = KafkaFailure("COORDINATOR_NOT_AVAILABLE", "")
    assert all(map(passes, (GONE, MOVES, coordinator)))
    unknown = KafkaFailure("UNKNOWN", "")
    assert not any(map(passes, (REFUSED, unknown)))
