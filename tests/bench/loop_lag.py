"""How late Odradek's loop ran during a line: its watchdog's histogram, through the control socket."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.bench import brokers
from tests.bench.brokers import Broker

KEY = "lag_p999_us"


@contextlib.contextmanager
def measured(broker: Broker, into: list[float]) -> Iterator[None]:
    """Append the 99.9th percentile in milliseconds of what happens inside. Apache Kafka has no such loop."""
    is_ours = broker.name == brokers.Odradek.name and broker.process is not None
    if is_ours:
        brokers.control(broker, "stats", reset=True)
    yield
    if is_ours:
        lag = find(brokers.control(broker, "stats"), KEY)
        if lag is not None:
            into.append(lag / 1000)


def find(answer: Any, key: str) -> float | None:
    """The value of `key` at any depth: where in the answer it stands is the broker's business."""
    if not isinstance(answer, dict):
        return None
    if key in answer:
        return float(answer[key])
    return next((v for v in (find(value, key) for value in answer.values()) if v is not None), None)
