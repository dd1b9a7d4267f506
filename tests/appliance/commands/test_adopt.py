import os
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from dashboard.probe import split_address
from tests.appliance.conftest import Odradek
from tests.broker.adopt import kafka_directory as made
from tests.broker.adopt.kafka_directory import KafkaDirectory, batch
from tests.support import judge, requests
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.serving import serving
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


def test_the_commands_of_the_page_work_as_they_stand_there(
    kafka: KafkaDirectory, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "adopt.md").read_text()
    adopt, serve = (line for line in page.splitlines() if line.startswith("odradek "))
    settings = tmp_path / "server.properties"
    settings.write_text("node.id=7\nlog.retention.hours=48\n")
    place = tmp_path / "place"
    place.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ODRADEK_LISTEN": f"127.0.0.1:{judge.free_port()}",
        "ODRADEK_WEB": f"127.0.0.1:{judge.free_port()}",
        "ODRADEK_BROKER_METRICS": "",
    }
    adopt = adopt.replace("/var/lib/kafka-logs", str(kafka.path))
    adopt = adopt.replace("/opt/kafka/config/server.properties", str(settings))
    done = subprocess.run(
        shlex.split(adopt), cwd=place, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (place / "data").stat().st_mode & 0o777 == 0o700
    with (
        serving(shlex.split(serve), place, environment),
        Wire(split_address(environment["ODRADEK_LISTEN"])) as wire,
    ):
        assert len(requests.read_all(wire, "orders")) == 3
        assert requests.topic_config(wire, "orders", "retention.ms").value == str(48 * 3600 * 1000)
