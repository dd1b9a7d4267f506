"""The line with a real client: Apache's ProducerPerformance, which on two cores costs more than the broker does."""

import re
import subprocess

from tests.bench.brokers import Broker
from tests.bench.line import Bench, Figure, Line
from tests.support import apache

TOPIC = "java"
RECORDS = 2_000_000
WARMUP_RECORDS = 200_000
SUMMARY = re.compile(
    r"\d+ (?:steady state )?records sent, (?P<rate>[\d.]+) records/sec.*?(?P<p99>[\d.]+) ms 99th"
)


class JavaProducer(Line):
    def __init__(self) -> None:
        super().__init__(
            "java",
            "Java ProducerPerformance, 100 B records, acks=1",
            Figure("records_per_s", "", "rec/s"),
            Figure("p99", "p99", "ms"),
        )

    def prepare(self, bench: Bench, broker: Broker) -> None:
        bench.create_topic(broker, TOPIC, partitions=6)

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        warmup = bench.scale.count(WARMUP_RECORDS)
        command = [
            "java",
            "-Xmx512M",
            "-cp",
            apache.class_path(apache.fetch_jars(), with_log=False),
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic",
            TOPIC,
            "--num-records",
            str(bench.scale.count(RECORDS) + warmup),
            "--warmup-records",
            str(warmup),
            "--record-size",
            "100",
            "--throughput",
            "-1",
            "--bootstrap-server",
            f"{broker.address[0]}:{broker.address[1]}",
            "--command-property",
            "acks=1",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return read_summary(done.stdout)

    def finish(self, bench: Bench, broker: Broker) -> None:
        bench.delete_topic(broker, TOPIC)


def read_summary(output: str) -> dict[str, float]:
    """The last summary: after a warm-up the tool prints one for everything, then one for the steady state."""
    found = list(SUMMARY.finditer(output))
    assert found, output
    return {"records_per_s": float(found[-1]["rate"]), "p99": float(found[-1]["p99"])}
