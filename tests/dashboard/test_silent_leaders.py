"""Leaders that are gone: what the library makes up for them is no answer, and others are looked for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, OffsetView
from dashboard.gateway import Gateway, OffsetAt
from dashboard.gateway.cluster_gateway import (
    LEADER_ATTEMPTS,
    LEADER_PAUSE_S,
    LEASE_ATTEMPTS,
    MOST_REFRESHED,
)

SILENT = SimpleNamespace(offset=confluent_kafka.OFFSET_INVALID, timestamp=-1)


class Link:
    """In place of the way to a cluster: each question takes the next of ``answers``, the last one for ever."""

    timeout_s = 1.0

    def __init__(self, *answers: SimpleNamespace) -> None:
        self._answers = list(answers)
        self.refreshed: list[str | None] = []

    def admin(self) -> Link:
        return self

    def list_offsets(self, wanted: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        found = {}
        for key in wanted:
            found[key] = Future[Any]()
            found[key].set_result(answer)
        return found

    def outcomes(self, futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
        return {key: future.result() for key, future in futures.items()}

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> None:
        self.refreshed.append(topic)


def gateway(link: Link, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    monkeypatch.setattr("dashboard.gateway.cluster_gateway.LEADER_PAUSE_S", 0)
    made = Gateway("127.0.0.1:1")
    made._link = link  # type: ignore[assignment]
    return made


def test_an_offset_that_nobody_told_is_asked_for_again_with_fresh_leaders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(SILENT, SimpleNamespace(offset=7, timestamp=-1))
    key = TopicPartition("orders", 0)
    assert gateway(link, monkeypatch).offsets([key], OffsetAt.LATEST) == {key: OffsetView(7, -1)}
    assert link.refreshed == ["orders"]


def test_a_leader_that_stays_silent_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(SILENT)
    key = TopicPartition("orders", 0)
    found = gateway(link, monkeypatch).offsets([key], OffsetAt.LATEST)[key]
    assert isinstance(found, KafkaFailure)
    assert found.code == "LEADER_NOT_AVAILABLE"
    assert len(link.refreshed) == LEADER_ATTEMPTS


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE"])
def test_a_new_leader_is_asked_until_its_lease_may_begin(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.3 s after it began to lead: that many pauses are longer."""
    told: Any = KafkaFailure(code, "not yet")
    link = Link(*[told] * 20, SimpleNamespace(offset=7, timestamp=-1))
    key = TopicPartition("orders", 0)
    assert gateway(link, monkeypatch).offsets([key], OffsetAt.LATEST) == {key: OffsetView(7, -1)}
    assert (LEASE_ATTEMPTS - 1) * LEADER_PAUSE_S > 3.3
    assert gateway(Link(told), monkeypatch).offsets([key], OffsetAt.LATEST) == {key: told}


def test_many_topics_are_looked_at_again_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(SILENT, SimpleNamespace(offset=7, timestamp=-1))
    keys = [TopicPartition(f"orders-{number}", 0) for number in range(MOST_REFRESHED + 1)]
    gateway(link, monkeypatch).offsets(keys, OffsetAt.LATEST)
    assert link.refreshed == [None]
