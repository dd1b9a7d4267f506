"""Keep a metadata log of Apache Kafka with every kind of record that an adoption reads.

    KAFKA_LIBS=... python -m tests.golden.capture_metadata_log

starts an empty broker with a controller, makes topics, partitions, settings, access control entries,
credentials and quotas, takes some of them away again, lets the controller write a checkpoint, goes
on, stops cleanly, and writes into tests/golden/metadata_log/: the newest checkpoint, the log and
the quorum state as they are, and `decoded.json`, what Kafka's dump-log tool reads in them.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.support import apache, processes, requests
from tests.support.apache import ApacheKafka
from tests.support.wire import Wire

HERE = Path(__file__).parent / "metadata_log"
PAYLOAD = re.compile(r"\| offset: (\d+) .* payload: (.*)$")
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.log.max.snapshot.interval.ms": "0",
}


def before(wire: Wire, bootstrap: str) -> None:
    requests.create_topic(wire, "first", partitions=3, configs={"retention.ms": "1000000000"})
    requests.create_topic(wire, "gone", partitions=2, configs={"cleanup.policy": "compact"})
    requests.create_topic(wire, "compacted", configs={"cleanup.policy": "compact"})
    requests.delete_topic(wire, "gone")
    requests.init_producer(wire)
    for kind, name, key, value in (
        (requests.BROKER_RESOURCE, "", "log.retention.ms", "99999999"),
        (requests.BROKER_RESOURCE, "", "message.max.bytes", "2000000"),
        (requests.BROKER_RESOURCE, "1", "log.cleaner.threads", "2"),
        (requests.TOPIC_RESOURCE, "first", "max.message.bytes", "777777"),
        (requests.TOPIC_RESOURCE, "first", "segment.bytes", "1234567"),
    ):
        found = requests.alter_config(wire, name, key, value, resource_type=kind)
        assert found.error_code == 0, found
    for arguments in (
        ["--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "first"],
        ["--add", "--allow-principal", "User:b", "--operation", "Write", "--topic", "first"],
    ):
        run = apache.run_tool(
            "AclCommand",
            ["--bootstrap-server", bootstrap, "--force", *arguments],
        )
        run.ok()
    for entity in (["--entity-type", "users", "--entity-name", "a"],):
        for setting in ("SCRAM-SHA-256=[password=p]", "producer_byte_rate=1024"):
            apache.run_tool(
                "ConfigCommand",
                ["--bootstrap-server", bootstrap, "--alter", *entity, "--add-config", setting],
            ).ok()


def behind(wire: Wire, bootstrap: str) -> None:
    requests.create_topic(wire, "second", partitions=2)
    requests.delete_topic(wire, "compacted")
    answer = wire.request(
        "create_partitions",
        3,
        timeout=30000,
        validate_only=False,
        topics=[{"name": "first", "count": 4, "assignments": None}],
    )
    assert answer.results[0].error_code == 0, answer
    deleted = requests.alter_config(wire, "first", "segment.bytes", None, operation=requests.DELETE)
    assert deleted.error_code == 0, deleted
    apache.run_tool(
        "AclCommand",
        [
            *("--bootstrap-server", bootstrap, "--force", "--remove"),
            *("--allow-principal", "User:b", "--operation", "Write", "--topic", "first"),
        ],
    ).ok()


def payloads(path: Path) -> list[dict[str, Any]]:
    run = apache.run_tool(
        "DumpLogSegments", ["--cluster-metadata-decoder", "--files", str(path)]
    ).ok()
    return [json.loads(match[2]) for line in run.lines if (match := PAYLOAD.match(line))]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        kafka = ApacheKafka(Path(name) / "kafka", PROPERTIES)
        directory = kafka.data / "__cluster_metadata-0"
        try:
            kafka.start()
            with Wire(kafka.address) as wire:
                before(wire, kafka.bootstrap)
                processes.wait_until(
                    lambda: any(not p.name.startswith("0" * 20) for p in _checkpoints(directory)),
                    60,
                    "a checkpoint",
                )
                behind(wire, kafka.bootstrap)
            kafka.stop()
        finally:
            kafka.close()
        shutil.rmtree(HERE, ignore_errors=True)
        HERE.mkdir()
        newest = max(_checkpoints(directory))
        kept = [newest, *sorted(directory.glob("*.log")), directory / "quorum-state"]
        for path in kept:
            shutil.copy(path, HERE)
        start = int(newest.name[:20])
        decoded = {
            "checkpoint": payloads(newest),
            "log": [payload for path in kept[1:-1] for payload in payloads(path)],
            "checkpoint_end_offset": start,
        }
        (HERE / "decoded.json").write_text(json.dumps(decoded, indent=1) + "\n")
    print(f"{len(decoded['checkpoint'])} records below {start}, {len(decoded['log'])} in the log")


def _checkpoints(directory: Path) -> list[Path]:
    return list(directory.glob("*.checkpoint"))


if __name__ == "__main__":
    main()
