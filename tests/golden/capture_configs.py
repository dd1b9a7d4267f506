"""Ask Apache Kafka about its settings and keep the answers: configs_*.json beside this file.

    KAFKA_LIBS=... python -m tests.golden.capture_configs

starts one broker of the version in tests/support/judges/pom.xml with the static settings below and
writes

configs_described.json   what DescribeConfigs says of the broker, of the cluster's defaults and of
                         topics, before and after dynamic changes, and what CreateTopics tells;
                         Kafka's documentation texts are left out
configs_verdicts.json    which values of which settings are accepted, at creation of a topic and as
                         dynamic settings of one broker (``1``) and of all (``""``)
configs_altered.json     conversations of AlterConfigs and IncrementalAlterConfigs, with the error
                         code of each step and the overrides after it

Ports and paths of the run are replaced, so that two runs give the same files.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.apache import ApacheKafka
from tests.support.wire import ConnectionClosed, Struct, Wire

HERE = Path(__file__).parent
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

STATIC = {
    "num.partitions": "3",
    "log.retention.hours": "100",
    "log.roll.ms": "3600000",
    "log.flush.scheduler.interval.ms": "60000",
    "compression.gzip.level": " 5",
    "log.cleaner.min.cleanable.ratio": "2.5e-1",
    "log.cleaner.io.max.bytes.per.second": "1e-5",
    "auto.leader.rebalance.enable": "TRUE",
    "ssl.key.password": "secret",
    "some.plugin.setting": "42",
}
DYNAMIC_DEFAULT = {
    "log.retention.ms": "7200000",
    "message.max.bytes": " 2000000",
    "log.cleanup.policy": "compact, delete",
    "max.connections": "+1000",
    "leader.replication.throttled.rate": "1000",
    "log.cleaner.min.cleanable.ratio": "75e-2",
    "some.other.setting": "x",
}
DYNAMIC_BROKER = {
    "log.retention.ms": "3600000",
    "log.flush.interval.messages": "77",
    "log.roll.jitter.ms": "1000",
    "listener.name.plaintext.max.connections": "55",
    "listener.name.plaintext.ssl.keystore.password": "hush",
    "follower.replication.throttled.rate": "1000",
}
OVERRIDES = {
    "cleanup.policy": "compact, delete",
    "min.cleanable.dirty.ratio": "1e-4",
    "segment.bytes": " 2097152 ",
    "preallocate": "TRUE",
    "retention.ms": "+5000",
    "internal.segment.bytes": "1000",
    "leader.replication.throttled.replicas": "0:1,1:1",
}

NUMBERS = [
    "-131073",
    "-131072",
    "-3",
    "-2",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "9",
    "10",
    "16",
    "17",
    "18",
    "22",
    "23",
    "25",
    "26",
    "99",
    "500",
    "501",
    "1000",
    "1023",
    "1024",
    "2000",
    "10000",
    "10001",
    "30000",
    "99999",
    "524287",
    "524288",
    "1048575",
    "1048576",
    "8388607",
    "8388608",
    "2147483639",
    "2147483640",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "+7",
    "-0",
    "0.25",
    "0.5",
    "1.0",
    "1.5",
    "1e3",
    "1E-2",
    "1d",
    ".5",
    "5.",
    "0x10",
    "NaN",
    "Infinity",
    "5_0",
    "1L",
]
WORDS = [
    "true",
    "TRUE",
    "false",
    "yes",
    "compact",
    "delete",
    "compact,delete",
    "delete,compact",
    "compact,compact",
    "Compact",
    "compact,delete,x",
    "gzip",
    "GZIP",
    "zstd",
    "none",
    "producer",
    "uncompressed",
    "lz4",
    "snappy",
    "CreateTime",
    "LogAppendTime",
    "createtime",
    "*",
    "0:1",
    "0:1,1:2",
    "0:1,*,1",
    "1",
    "a",
    "a,b",
    ",",
    "a,",
    ",a",
    "*,*",
    "required",
    "none",
    "requested",
    "PLAINTEXT",
    "SSL",
    "TLSv1.3",
    "disabled",
    "UPGRADE",
    "broker,controller",
    "consumer,classic",
    "share",
    "uniform",
    "classic,classic",
]
VALUES = list(
    dict.fromkeys(
        [*NUMBERS, *WORDS, "", " ", " 5 ", "\t7\n", "compact , delete", "\u00a05", "\u0663"]
    )
)


def resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


def describe(wire: Wire, kind: int, name: str) -> dict[str, Any]:
    answer = wire.request(
        "describe_configs",
        4,
        resources=[resource(kind, name, configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = answer.results
    assert result.error_code == 0, result
    return {entry.name: entry_as_json(entry) for entry in sorted(result.configs, key=by_name)}


def by_name(entry: Struct) -> str:
    return str(entry.name)


def entry_as_json(entry: Struct) -> dict[str, Any]:
    return {
        "value": entry.value,
        "source": entry.config_source,
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
        "type": entry.config_type,
        "documented": entry.documentation is not None,
        "synonyms": [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms],
    }


def incremental(
    wire: Wire, kind: int, name: str, ops: list[tuple[str, int, str | None]], dry: bool = False
) -> Struct:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in ops]
    answer = wire.request(
        "incremental_alter_configs",
        1,
        resources=[resource(kind, name, configs=configs)],
        validate_only=dry,
    )
    (response,) = answer.responses
    return response


def legacy(wire: Wire, kind: int, name: str, configs: list[tuple[str, str | None]]) -> Struct:
    pairs = [{"name": key, "value": value} for key, value in configs]
    answer = wire.request(
        "alter_configs", 2, resources=[resource(kind, name, configs=pairs)], validate_only=False
    )
    (response,) = answer.responses
    return response


def create(wire: Wire, topics: dict[str, dict[str, str | None]], dry: bool = False) -> list[Struct]:
    answer = wire.request(
        "create_topics",
        7,
        topics=[
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name, configs in topics.items()
        ],
        timeout=30000,
        validate_only=dry,
    )
    return list(answer.topics)


def set_all(wire: Wire, kind: int, name: str, settings: dict[str, str]) -> None:
    response = incremental(wire, kind, name, [(key, SET, value) for key, value in settings.items()])
    assert response.error_code == 0, response


# ------------------------------------------------------------------------------ configs_described


def capture_described(wire: Wire) -> dict[str, Any]:
    created = create(wire, {"plain": {}, "overridden": dict(OVERRIDES)})
    assert all(topic.error_code == 0 for topic in created), created
    stages = [stage(wire)]
    set_all(wire, BROKER, "", DYNAMIC_DEFAULT)
    set_all(wire, BROKER, "1", DYNAMIC_BROKER)
    settle(wire)
    stages.append(stage(wire))
    late = create(wire, {"late": {"retention.ms": " 5"}})
    return {
        "static": {},
        "overrides": OVERRIDES,
        "dynamic_default": DYNAMIC_DEFAULT,
        "dynamic_broker": DYNAMIC_BROKER,
        "stages": stages,
        "created": {topic.name: created_as_json(topic) for topic in [*created, *late]},
    }


def settle(wire: Wire) -> None:
    """Kafka shows a dynamic change bit by bit: wait until all of it is there and stays."""
    before: dict[str, Any] = {}
    while True:
        now = stage(wire)
        if now == before and now["broker"]["log.roll.jitter.ms"]["value"] == "1000":
            return
        before = now
        time.sleep(2)


def stage(wire: Wire) -> dict[str, Any]:
    return {
        "broker": describe(wire, BROKER, "1"),
        "cluster": describe(wire, BROKER, ""),
        "plain": describe(wire, TOPIC, "plain"),
        "overridden": describe(wire, TOPIC, "overridden"),
    }


def created_as_json(topic: Struct) -> dict[str, Any]:
    return {
        entry.name: {
            "value": entry.value,
            "source": entry.config_source,
            "read_only": entry.read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in sorted(topic.configs, key=by_name)
    }


# ------------------------------------------------------------------------------- configs_verdicts


def capture_verdicts(wire: Wire, described: dict[str, Any]) -> dict[str, Any]:
    topic_keys = [*described["stages"][0]["plain"], "internal.segment.bytes", "unknown.key"]
    broker_keys = [
        *described["stages"][0]["broker"],
        *["leader.replication.throttled.rate", "unknown.key"],
        *["listener.name.plaintext.max.connections", "listener.name.plaintext.ssl.protocol"],
        "listener.name.plaintext.unknown.key",
    ]
    return {
        "values": VALUES,
        "topic": {key: topic_verdicts(wire, key) for key in topic_keys},
        "broker": {key: broker_verdicts(wire, "1", key) for key in broker_keys},
        "cluster": {key: broker_verdicts(wire, "", key) for key in broker_keys},
    }


def topic_verdicts(wire: Wire, key: str) -> dict[str, Any]:
    names = {f"t{index}": value for index, value in enumerate(VALUES)}
    answers = create(wire, {name: {key: value} for name, value in names.items()}, dry=True)
    return by_code({names[topic.name]: topic.error_code for topic in answers})


def broker_verdicts(wire: Wire, broker: str, key: str) -> dict[str, Any]:
    return by_code(
        {
            value: incremental(wire, BROKER, broker, [(key, SET, value)], dry=True).error_code
            for value in VALUES
        }
    )


def by_code(codes: dict[str, int]) -> dict[str, list[str]]:
    """The values by the error code that they got. The most frequent code keeps no list: it has
    all values that no other has."""
    values: dict[str, list[str]] = {}
    for value, code in codes.items():
        values.setdefault(str(code), []).append(value)
    most = max(values, key=lambda code: len(values[code]))
    values[most] = ["..."]
    return values


# -------------------------------------------------------------------------------- configs_altered

INCREMENTAL = "incremental"
LEGACY = "legacy"
#: Stands for an error code where Kafka closed the connection instead of answering.
CLOSED = "closed"
#: (request, resource, changes); a step's answer depends on the steps before it.
STEPS: list[tuple[str, int, str, list[Any]]] = [
    (INCREMENTAL, TOPIC, "t", [("retention.ms", SET, "1000")]),
    (INCREMENTAL, TOPIC, "t", [("retention.ms", SET, "-5")]),
    (INCREMENTAL, TOPIC, "t", [("segment.bytes", SET, "-1")]),
    (INCREMENTAL, TOPIC, "t", [("segment.bytes", SET, "0")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", SET, "compactt")]),
    (INCREMENTAL, TOPIC, "t", [("min.insync.replicas", SET, "99")]),
    (INCREMENTAL, TOPIC, "t", [("max.message.bytes", SET, "-1")]),
    (INCREMENTAL, TOPIC, "t", [("unknown.key", SET, "1")]),
    (INCREMENTAL, TOPIC, "t", [("unknown.key", DELETE, None)]),
    (INCREMENTAL, TOPIC, "t", [("unknown.key", APPEND, "1")]),
    (INCREMENTAL, TOPIC, "t", [("retention.ms", SET, "")]),
    (INCREMENTAL, TOPIC, "t", [("retention.ms", SET, None)]),
    (INCREMENTAL, TOPIC, "t", [("retention.ms", APPEND, "1")]),
    (INCREMENTAL, TOPIC, "t", [("retention.ms", SUBTRACT, "1")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", APPEND, None)]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", APPEND, "compact")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", APPEND, "compact")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", SUBTRACT, "nothing")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", SUBTRACT, "compact")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", APPEND, "delete,compact,delete")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", APPEND, "typo")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", APPEND, "")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", DELETE, None)]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", DELETE, None)]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")]),
    (INCREMENTAL, TOPIC, "t", [("cleanup.policy", DELETE, "ignored")]),
    (INCREMENTAL, TOPIC, "t", [("leader.replication.throttled.replicas", APPEND, "0:1, 1:1")]),
    (INCREMENTAL, TOPIC, "t", [("leader.replication.throttled.replicas", APPEND, "*")]),
    (INCREMENTAL, TOPIC, "t", [("leader.replication.throttled.replicas", SUBTRACT, "1:1")]),
    (INCREMENTAL, TOPIC, "t", [("leader.replication.throttled.replicas", SUBTRACT, " 1:1")]),
    (INCREMENTAL, TOPIC, "t", [("leader.replication.throttled.replicas", SUBTRACT, "0:1")]),
    (INCREMENTAL, TOPIC, "t", [("leader.replication.throttled.replicas", DELETE, None)]),
    (INCREMENTAL, TOPIC, "t", [("segment.ms", DELETE, None)]),
    (INCREMENTAL, TOPIC, "t", [("segment.ms", SET, "1"), ("segment.ms", SET, "2")]),
    (INCREMENTAL, TOPIC, "t", [("segment.ms", SET, "1"), ("retention.ms", SET, "-5")]),
    (INCREMENTAL, TOPIC, "t", [("segment.ms", 7, "1")]),
    (INCREMENTAL, TOPIC, "t", [("min.compaction.lag.ms", SET, "100")]),
    (INCREMENTAL, TOPIC, "t", [("max.compaction.lag.ms", SET, "99")]),
    (INCREMENTAL, TOPIC, "t", [("max.compaction.lag.ms", SET, "100")]),
    (INCREMENTAL, TOPIC, "t", [("min.compaction.lag.ms", DELETE, None)]),
    (INCREMENTAL, TOPIC, "t", [("remote.storage.enable", SET, "true")]),
    (INCREMENTAL, TOPIC, "t", [("remote.storage.enable", SET, "false")]),
    (INCREMENTAL, TOPIC, "t", [("internal.segment.bytes", SET, "100")]),
    (INCREMENTAL, TOPIC, "t", [("compression.type", SET, "x" * 32768)]),
    (INCREMENTAL, TOPIC, "t", []),
    (INCREMENTAL, TOPIC, "absent", [("retention.ms", SET, "1000")]),
    (INCREMENTAL, TOPIC, "absent", [("retention.ms", SET, "-5")]),
    (INCREMENTAL, TOPIC, "", [("retention.ms", SET, "1000")]),
    (INCREMENTAL, TOPIC, "in valid", [("retention.ms", SET, "1000")]),
    (LEGACY, TOPIC, "t", [("retention.ms", "2000"), ("flush.messages", "5")]),
    (LEGACY, TOPIC, "t", [("flush.messages", "0")]),
    (LEGACY, TOPIC, "t", [("unknown.key", "1")]),
    (LEGACY, TOPIC, "t", [("flush.messages", None)]),
    (LEGACY, TOPIC, "t", [("flush.messages", "6"), ("flush.messages", "7")]),
    (LEGACY, TOPIC, "t", [("flush.messages", "6")]),
    (LEGACY, TOPIC, "t", []),
    (LEGACY, TOPIC, "absent", []),
    (INCREMENTAL, BROKER, "1", [("num.partitions", SET, "5")]),
    (INCREMENTAL, BROKER, "1", [("num.partitions", DELETE, None)]),
    (INCREMENTAL, BROKER, "", [("node.id", SET, "5")]),
    (INCREMENTAL, BROKER, "1", [("log.retention.ms", SET, "1000")]),
    (INCREMENTAL, BROKER, "1", [("log.retention.ms", SET, "0")]),
    (INCREMENTAL, BROKER, "1", [("log.retention.ms", SET, "-5")]),
    (INCREMENTAL, BROKER, "1", [("log.retention.ms", SET, "abc")]),
    (INCREMENTAL, BROKER, "1", [("log.retention.ms", DELETE, None)]),
    (INCREMENTAL, BROKER, "1", [("log.retention.ms", DELETE, None)]),
    (INCREMENTAL, BROKER, "", [("ssl.keystore.type", SET, "PKCS12")]),
    (INCREMENTAL, BROKER, "1", [("ssl.keystore.type", SET, "PKCS12")]),
    (INCREMENTAL, BROKER, "", [("listener.name.plaintext.ssl.keystore.type", SET, "PKCS12")]),
    (INCREMENTAL, BROKER, "1", [("listener.name.plaintext.ssl.keystore.type", SET, "PKCS12")]),
    (INCREMENTAL, BROKER, "1", [("listener.name.plaintext.ssl.keystore.type", DELETE, None)]),
    (INCREMENTAL, BROKER, "", [("sasl.enabled.mechanisms", SET, "PLAIN")]),
    (INCREMENTAL, BROKER, "", [("log.cleanup.policy", APPEND, "compact")]),
    (INCREMENTAL, BROKER, "", [("log.cleanup.policy", SUBTRACT, "delete")]),
    (INCREMENTAL, BROKER, "", [("log.cleanup.policy", APPEND, "typo")]),
    (INCREMENTAL, BROKER, "", [("log.retention.bytes", APPEND, "1")]),
    (INCREMENTAL, BROKER, "", [("unknown.key", APPEND, "1")]),
    (INCREMENTAL, BROKER, "", [("unknown.key", SUBTRACT, "1")]),
    (INCREMENTAL, BROKER, "", [("unknown.key", SET, "1")]),
    (INCREMENTAL, BROKER, "", [("unknown.key", DELETE, None)]),
    (INCREMENTAL, BROKER, "", [("log.retention.bytes", SET, None)]),
    (INCREMENTAL, BROKER, "", [("queued.max.request.bytes", SET, "99")]),
    (INCREMENTAL, BROKER, "", [("max.connections.per.ip", SET, "0")]),
    (INCREMENTAL, BROKER, "", [("max.connections.per.ip.overrides", SET, "127.0.0.1:5")]),
    (INCREMENTAL, BROKER, "", [("max.connections.per.ip.overrides", SET, "127.0.0.1:x")]),
    (INCREMENTAL, BROKER, "2", [("log.retention.ms", SET, "1000")]),
    (INCREMENTAL, BROKER, "x", [("log.retention.ms", SET, "1000")]),
    (LEGACY, BROKER, "1", [("log.retention.ms", "5000"), ("log.roll.ms", "6000")]),
    (LEGACY, BROKER, "1", [("log.retention.ms", "5000")]),
    (LEGACY, BROKER, "1", [("log.retention.ms", "abc")]),
    (LEGACY, BROKER, "1", [("num.partitions", "1")]),
    (LEGACY, BROKER, "1", []),
]


def capture_altered(wire: Wire, address: tuple[str, int]) -> list[dict[str, Any]]:
    assert create(wire, {"t": {}})[0].error_code == 0
    return [step(wire, address, *each) for each in STEPS]


def step(
    wire: Wire, address: tuple[str, int], request: str, kind: int, name: str, changes: list[Any]
) -> dict[str, Any]:
    try:
        with Wire(address, timeout=60) as own:
            response = (incremental if request == INCREMENTAL else legacy)(own, kind, name, changes)
    except ConnectionClosed:
        response = Struct(error_code=CLOSED, error_message="")
    time.sleep(0.3)  # the broker shows what its controller accepted a little later
    after = None
    if name in ("t", "1", ""):
        source = {"t": 1, "1": 2, "": 3}[name]
        if (kind, name) != (TOPIC, ""):
            after = overrides_of(describe(wire, kind, name), source)
    return {
        "request": request,
        "kind": kind,
        "name": name,
        "changes": changes,
        "code": response.error_code,
        "kafka_message": (response.error_message or "")[:300],
        "after": after,
    }


def overrides_of(entries: dict[str, Any], source: int) -> dict[str, str | None]:
    return {name: entry["value"] for name, entry in entries.items() if entry["source"] == source}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        kafka = ApacheKafka(Path(scratch), STATIC)
        with kafka, Wire(kafka.address, timeout=60) as wire:
            described = capture_described(wire)
            described["static"] = read_static(kafka)
            save("configs_described.json", described, kafka)
        kafka = ApacheKafka(Path(scratch) / "second", {"auto.create.topics.enable": "false"})
        with kafka, Wire(kafka.address, timeout=60) as wire:
            save("configs_verdicts.json", capture_verdicts(wire, described), kafka)
            save("configs_altered.json", capture_altered(wire, kafka.address), kafka)


def read_static(kafka: ApacheKafka) -> dict[str, str]:
    lines = (kafka.directory / "server.properties").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines)
    return {name: value.lstrip() for name, value in pairs}


def as_text(content: Any, depth: int) -> str:
    """JSON with a line of its own for everything down to ``depth``, so that a diff can be read."""
    if depth and isinstance(content, dict):
        rows = [f"{json.dumps(key)}: {as_text(content[key], depth - 1)}" for key in sorted(content)]
        return "{\n" + ",\n".join(rows) + "\n}"
    if depth and isinstance(content, list):
        return "[\n" + ",\n".join(as_text(item, depth - 1) for item in content) + "\n]"
    return json.dumps(content, sort_keys=True)


def save(name: str, content: object, kafka: ApacheKafka) -> None:
    text = as_text(content, 3)
    ports = [part.rpartition(":")[2] for part in read_static(kafka)["listeners"].split(",")]
    for port, shown in zip(ports, ("9092", "9093"), strict=True):
        text = text.replace(f":{port}", f":{shown}")
    text = text.replace(str(kafka.data), "/data")
    (HERE / name).write_text(text + "\n")


if __name__ == "__main__":
    main()
