from tests.appliance.conftest import Odradek
from tests.support.fixtures import Broker


def test_the_brokers_and_what_they_hold(on_broker: Odradek, broker: Broker, topic: str) -> None:
    on_broker("produce", topic, "-p", 1, stdin=b"x" * 1000).ok()
    (found,) = on_broker("cluster", "info", "-d", "--format", "json").ok().data
    (row,) = found["broker_list"]
    assert (row["id"], row["controller"], row["host"]) == (1, True, "127.0.0.1")
    assert row["port"] == broker.port
    assert row["leaders"] == row["partitions"] >= 3
    assert row["size"] >= 1000
    assert (row["skew"], row["not_in_sync"]) == (None, 0)
    assert (row["state"], row["gone_since_ms"], row["gone_since_is_exact"]) == (
        "alive",
        None,
        False,
    )
    assert found["zookeeper_session"] is None
    assert {"topic": topic, "partitions": 3, "replicas": 1, "brokers": [1]} in found["topic_list"]
    assert len(found["topic_list"]) == found["topics"]


def test_the_text_has_a_line_a_broker(on_broker: Odradek, topic: str) -> None:
    done = on_broker("cluster", "info").ok()
    assert done.lines[0].split()[0] == "CLUSTER-ID"
    head, row = done.lines[-2:]
    assert head.split() == [
        "ID", "HOST", "PORT", "RACK", "PARTITIONS", "LEADERS", "SIZE", "SKEW", "NOT-IN-SYNC",
        "STATE",
    ]  # fmt: skip
    assert row.split()[:2] == ["1", "127.0.0.1"]
    assert topic not in done.out


def test_health_is_the_status(on_broker: Odradek) -> None:
    assert on_broker("cluster", "health").ok().lines[0].split() == ["HEALTHY", "yes"]
