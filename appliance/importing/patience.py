"""Asks again what a cluster cannot tell while one of its brokers is gone and its leaders move."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from appliance.importing.progress import Verdict, verdict_of
from broker.clock import Clock
from broker.model.error_code import ErrorCode
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway

T = TypeVar("T")

PAUSE_S: Final = 0.3
_PASSES: Final = frozenset(
    {
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "REQUEST_TIMED_OUT",
        "TIMED_OUT",
    }
)


def passes(failure: KafkaFailure) -> bool:
    """Whether another broker, or this one in a moment, may answer better."""
    if failure.is_transport or failure.code in _PASSES:
        return True
    code = ErrorCode.__members__.get(failure.code)
    return code is not None and verdict_of(code) is Verdict.LOOK_AGAIN


class Patience:
    """For one cluster, for ``patience_ms`` a question."""

    def __init__(
        self,
        gateway: Gateway,
        clock: Clock,
        patience_ms: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._patience_ms = patience_ms
        self._sleep = sleep

    def ask(self, question: Callable[[], T], is_settled: Callable[[T], bool] | None = None) -> T:
        """The answer, the last one even where it is not settled. Raises KafkaFailure."""
        deadline_ms = self._clock.monotonic_ms() + self._patience_ms
        while True:
            is_over = self._clock.monotonic_ms() > deadline_ms
            try:
                answer = question()
            except KafkaFailure as failure:
                if is_over or not passes(failure):
                    raise
            else:
                if is_over or is_settled is None or is_settled(answer):
                    return answer
            self._sleep(PAUSE_S)
            with contextlib.suppress(KafkaFailure):  # the question will tell
                self._gateway.check()
