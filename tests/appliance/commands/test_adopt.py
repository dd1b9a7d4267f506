import uuid
from pathlib import Path

import pytest

from tests.appliance.conftest import Odradek
from tests.broker.adopt import kafka_directory as made
from tests.broker.adopt.kafka_directory import KafkaDirectory, batch
from tests.support import requests
from tests.support.odradek import OdradekBroker
from tests.support.wire import Wire

ORDERS = uuid.UUID(int=1001)


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaDirectory:
    kafka = KafkaDirectory(tmp_path / "kafka", node_id=7)
    replica = {"replicas": [7], "isr": [7], "leader": 7}
    kafka.metadata(
        [made.topic_record("orders", ORDERS), made.partition_record(ORDERS, 0, **replica)]
    )
    kafka.partition("orders", 0, ORDERS, segments=[[batch(0)]], recovery_point=3)
    return kafka


def test_a_kafka_is_taken_over_and_served_under_its_own_number(
    odradek: Odradek, kafka: KafkaDirectory, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    done = odradek("adopt", kafka.path, "--data", data).ok()
    assert "node 7, 1 topic, 1 partition" in done.out
    assert "nothing is deleted until you set it: orders" in done.out
    assert f"odradek serve --data {data}" in done.out
    with OdradekBroker(tmp_path, data=data) as broker, Wire(broker.address) as wire:
        answer = wire.request("describe_cluster", 1)
        assert (answer.cluster_id, answer.controller_id) == (made.CLUSTER_ID, 7)
        assert requests.topic_id(wire, "orders") == ORDERS
        assert [record.value for record in requests.read_all(wire, "orders")] == [b"v" * 100] * 3
        wanted = requests.topic_config(wire, "orders", "retention.ms")
        assert wanted.value == "-1"


def test_the_report_is_a_document_too(
    odradek: Odradek, kafka: KafkaDirectory, tmp_path: Path
) -> None:
    done = odradek("adopt", kafka.path, "--data", tmp_path / "data", "--format", "json").ok()
    (report,) = done.data
    assert (report["node_id"], report["held"], report["is_new"]) == (7, ["orders"], True)


def test_a_refusal_says_what_to_do(odradek: Odradek, kafka: KafkaDirectory, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = odradek("adopt", tmp_path / "none", "--data", tmp_path / "data", "--format", "json")
    assert done.code == 1
    assert done.document["errors"][0]["code"] == "NOT_ADOPTED"
    assert "log.dirs" in done.err


def test_two_ways_exclude_each_other(
    odradek: Odradek, kafka: KafkaDirectory, tmp_path: Path
) -> None:
    done = odradek("adopt", kafka.path, "--data", tmp_path / "data", "--move", "--copy")
    assert done.code == 2
    assert not (tmp_path / "data").exists()
