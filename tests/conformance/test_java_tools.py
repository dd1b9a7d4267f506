"""The command-line tools of Apache Kafka 4.4, which are also its Java clients at work."""

import re

import pytest

from tests.support import apache, record_batches, requests
from tests.support.requests import create_topic
from tests.support.routing import Site, replicas, shared_site
from tests.support.wire import Wire

broker = shared_site()


def tool(broker: Site, name: str, *args: object, stdin: str = "") -> list[str]:
    run = apache.run_tool(name, ["--bootstrap-server", broker.bootstrap, *args], stdin=stdin).ok()
    assert "Exception" not in run.stdout + run.stderr, run
    return run.lines


def console_consumer(broker: Site, *args: object) -> list[str]:
    run = apache.run_tool(
        "consumer.ConsoleConsumer",
        ["--bootstrap-server", broker.bootstrap, "--timeout-ms", "15000", *args],
    )
    assert "Processed a total of" in run.stderr + run.stdout, run
    return [line for line in run.lines if not line.startswith("Processed a total of")]


def test_topics_are_created_listed_described_grown_and_deleted(broker: Site, wire: Wire) -> None:
    name = requests.new_topic_name()
    made = tool(
        broker,
        "TopicCommand",
        "--create",
        "--topic",
        name,
        "--partitions",
        "2",
        "--config",
        "retention.ms=60000",
    )
    assert f"Created topic {name}." in made
    assert name in tool(broker, "TopicCommand", "--list")
    described = tool(broker, "TopicCommand", "--describe", "--topic", name)
    assert f"Topic: {name}\t" in described[0]
    assert f"PartitionCount: 2\tReplicationFactor: {replicas(broker)}\t" in described[0]
    assert "retention.ms=60000" in described[0]
    assert len(described) == 3
    tool(broker, "TopicCommand", "--alter", "--topic", name, "--partitions", "4")
    requests.wait_for_leaders(wire, name, 4)
    assert tool(broker, "TopicCommand", "--describe", "--unavailable-partitions") == []
    tool(broker, "TopicCommand", "--delete", "--topic", name)
    assert name not in tool(broker, "TopicCommand", "--list")


def test_a_refused_topic_is_told_why(broker: Site) -> None:
    run = apache.run_tool(
        "TopicCommand",
        [
            "--bootstrap-server",
            broker.bootstrap,
            "--create",
            "--topic",
            requests.new_topic_name(),
            "--replication-factor",
            "4",
        ],
    )
    assert run.status == 1
    assert "replication factor" in run.stderr + run.stdout


def test_settings_of_a_group(broker: Site) -> None:
    group = requests.new_topic_name()
    changed = tool(
        broker, "ConfigCommand", "--alter", "--group", group,
        "--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000",
    )  # fmt: skip
    assert f"Completed updating config for group {group}." in changed
    described = "\n".join(tool(broker, "ConfigCommand", "--describe", "--group", group))
    assert "consumer.session.timeout.ms=50000" in described
    assert "consumer.heartbeat.interval.ms=6000" in described
    delete = ("--delete-config", "consumer.session.timeout.ms")
    tool(broker, "ConfigCommand", "--alter", "--group", group, *delete)
    described = "\n".join(tool(broker, "ConfigCommand", "--describe", "--group", group))
    assert "consumer.session.timeout.ms=50000" not in described
    assert "consumer.heartbeat.interval.ms=6000" in described


def test_configs_are_altered_and_described(broker: Site, wire: Wire) -> None:
    name = create_topic(wire)
    entity = ("--entity-type", "topics", "--entity-name", name)
    changed = tool(
        broker,
        "ConfigCommand",
        "--alter",
        *entity,
        "--add-config",
        "retention.ms=12345,cleanup.policy=[compact,delete]",
    )
    assert f"Completed updating config for topic {name}." in changed
    described = "\n".join(tool(broker, "ConfigCommand", "--describe", *entity))
    assert "retention.ms=12345" in described
    assert "cleanup.policy=compact,delete" in described
    every = "\n".join(tool(broker, "ConfigCommand", "--describe", "--all", *entity))
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in every
    tool(broker, "ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    described = "\n".join(tool(broker, "ConfigCommand", "--describe", *entity))
    assert "retention.ms" not in described
    node = wire.request("metadata", 1, topics=[]).brokers[0]
    all_of_broker = tool(
        broker,
        "ConfigCommand",
        "--describe",
        "--all",
        "--entity-type",
        "brokers",
        "--entity-name",
        node.node_id,
    )
    assert any("num.partitions=1 " in line for line in all_of_broker)


def test_offsets_records_and_log_dirs(broker: Site, wire: Wire) -> None:
    name = create_topic(wire, partitions=2)
    first = requests.now_ms() - 1000  # recent, or retention removes the records meanwhile
    for index in range(10):
        data = record_batches.batch([b"v"], timestamp=first + index)
        requests.produce(wire, name, data)

    def get_offsets(time: str) -> list[str]:
        return sorted(tool(broker, "GetOffsetShell", "--topic", name, "--time", time))

    assert get_offsets("latest") == [f"{name}:0:10", f"{name}:1:0"]
    assert get_offsets("earliest") == [f"{name}:0:0", f"{name}:1:0"]
    assert f"{name}:0:9" in get_offsets("max-timestamp")
    assert f"{name}:0:4" in get_offsets(str(first + 4))
    assert get_offsets("earliest-local") == [f"{name}:0:0", f"{name}:1:0"]


def test_records_are_deleted_by_a_file(broker: Site, wire: Wire, tmp_path) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"v"] * 10)
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        f'{{"partitions": [{{"topic": "{name}", "partition": 0, "offset": 6}}], "version": 1}}'
    )
    shown = tool(broker, "DeleteRecordsCommand", "--offset-json-file", wanted)
    assert f"partition: {name}-0\tlow_watermark: 6" in shown
    assert requests.start_offset(wire, name) == 6


def test_log_dirs_are_described(broker: Site, wire: Wire) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"v" * 1000])
    size = len(requests.fetch(wire, name, 0).records)
    shown = tool(broker, "LogDirsCommand", "--describe", "--topic-list", name)
    (found,) = [line for line in shown if line.startswith("{")]
    assert re.search(rf'"partition":"{name}-0","size":{size},"offsetLag":0', found)


def test_broker_versions_are_listed(broker: Site) -> None:
    shown = tool(broker, "BrokerApiVersionsCommand")
    for address in broker.bootstrap.split(","):
        assert any(line.startswith(f"{address} ") for line in shown)
    assert any("Produce(0): 0 to 13 [usable: 13]" in line for line in shown)
    assert any("Fetch(1): 4 to 18 [usable: 18]" in line for line in shown)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_producer_and_consumer(broker: Site, wire: Wire, codec: str) -> None:
    name = create_topic(wire)
    requests.init_producer(wire)  # the producer is idempotent by default
    lines = [f"key{index}:value {index}" for index in range(200)]
    tool(
        broker,
        "ConsoleProducer",
        "--topic",
        name,
        "--compression-codec",
        codec,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
        stdin="\n".join(lines) + "\n",
    )
    values = [record.value for record in requests.read_all(wire, name)]
    assert values == [b"value %d" % index for index in range(200)]
    stored = list(record_batches.batches(requests.fetch(wire, name, 0).records))
    assert {record_batches.CODEC_NAMES[found.codec] for found in stored} == {codec}
    shown = console_consumer(
        broker,
        "--topic",
        name,
        "--partition",
        0,
        "--offset",
        50,
        "--max-messages",
        150,
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "print.offset=true",
    )
    assert shown == [f"Offset:{i}\tkey{i}\tvalue {i}" for i in range(50, 200)]


def test_the_console_consumer_from_beginning_and_read_committed(broker: Site, wire: Wire) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"%d" % index for index in range(20)], codec=4)
    shown = console_consumer(
        broker,
        "--topic",
        name,
        "--partition",
        0,
        "--offset",
        "earliest",
        "--isolation-level",
        "read_committed",
        "--max-messages",
        20,
    )
    assert shown == [str(index) for index in range(20)]


def test_the_performance_tools(broker: Site, wire: Wire) -> None:
    name = create_topic(wire)
    requests.init_producer(wire)
    run = apache.run_tool(
        "ProducerPerformance",
        [
            "--topic",
            name,
            "--num-records",
            "20000",
            "--record-size",
            "100",
            "--throughput",
            "-1",
            "--bootstrap-server",
            broker.bootstrap,
        ],
    ).ok()
    assert "20000 records sent" in run.stdout, run
    assert requests.end_offset(wire, name) == 20_000
    assert len(requests.read_all(wire, name)) == 20_000


def test_the_verifiable_producer_is_acknowledged_every_record(broker: Site, wire: Wire) -> None:
    name = create_topic(wire)
    requests.init_producer(wire)
    shown = tool(
        broker, "VerifiableProducer", "--topic", name, "--max-messages", "500", "--acks", "-1"
    )
    assert sum('"producer_send_success"' in line for line in shown) == 500
    assert requests.end_offset(wire, name) == 500
