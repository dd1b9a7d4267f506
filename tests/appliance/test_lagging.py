"""How commands tell of replicas that lag: by how much, and since when as far as anybody knows."""

import datetime as dt

import pytest

from appliance.lagging import Lagging, lagging_of
from broker.model.ids import TopicPartition
from dashboard.quorum_wire import Behind

NOON = dt.datetime(2026, 11, 29, 12, 0, 0, tzinfo=dt.datetime.now().astimezone().tzinfo)
NOW_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("lag", "ago_s", "is_known", "words"),
    [
        (1204, 247, True, "1,204 behind, since 11:55:53, 4 min 7 s ago"),
        (0, 5, False, "0 behind, since before 11:59:55, over 5 s ago"),
        (None, 7200, True, "by an unknown number, since 10:00:00, 2 h ago"),
        (None, None, False, "by an unknown number"),
        (3, 90_000, True, "3 behind, since 2026-11-28 11:00:00, 1 d 1 h ago"),
    ],
)
def test_what_is_not_known_is_not_told_as_if_it_were(
    lag: int | None, ago_s: int | None, is_known: bool, words: str
) -> None:
    since_ms = None if ago_s is None else NOW_MS - ago_s * 1000
    lagging = Lagging("orders", 3, 2, lag, since_ms, is_known)
    assert lagging.as_words(NOW_MS) == f"orders-3 on broker 2 ({words})"


def test_documents_hold_the_time_and_whether_it_is_exact() -> None:
    (lagging,) = lagging_of({TopicPartition("orders", 3): {2: Behind(7, 1_700_000_000_000, True)}})
    assert lagging.as_object() == {
        "topic": "orders",
        "partition": 3,
        "broker": 2,
        "lag": 7,
        "since_ms": 1_700_000_000_000,
        "since_time": "2023-11-14T22:13:20.000Z",
        "since_is_exact": True,
    }
