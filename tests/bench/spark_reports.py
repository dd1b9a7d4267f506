"""Reports beside Apache Kafka's: ``python -m tests.bench.spark_reports [--records N] [--rounds N]``.

The same records of 100 bytes in four partitions lie in a topic of each broker. One Spark session, warm
and as a report has it (its cores, its niceness), runs the same query on both by turns: records, bytes
and the newest timestamp of each partition. Told: the median of the action's time, and records a second.

Then what a running report costs others: p99 of tiny produce requests at a fixed rate on our broker,
without and with the query running again and again. The bar is that of the plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.bench import brokers, generator
from tests.support.requests import create_topic
from tests.support.wire import Wire

TOPIC: Final = "reported"
HOT: Final = "beside"
PARTITIONS: Final = 4
RECORDS_PER_REQUEST: Final = 1000
RATE: Final = 5_000
BAR: Final = 2.0


class Reporter:
    """Spark in a process of its own, as a report has it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--as-report"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, bootstrap: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{bootstrap}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Spark ended with {self._process.wait()}"
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def report() -> None:
    """The other process: a query for each line that names a broker."""
    from spark_tasks.parenthood import step_back
    from tests.support.spark import SparkInThisProcess, require

    step_back()
    home = require()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as scratch:
        spark = SparkInThisProcess(home, Path(scratch), master="")
        try:
            for line in sys.stdin:
                print(json.dumps(query(spark.session, line.strip())), flush=True)
        finally:
            spark.close()


def query(session: Any, bootstrap: str) -> dict[str, Any]:
    from pyspark.sql import functions as f

    records = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .load()
    )
    columns = (f.count("*"), f.sum(f.length("value")), f.max("timestamp"))
    figures = records.groupBy("partition").agg(*columns)
    started = time.perf_counter()
    rows = figures.collect()
    return {"seconds": time.perf_counter() - started, "records": sum(row[1] for row in rows)}


def fill(broker: brokers.Broker, records: int) -> None:
    with Wire(broker.address) as wire:
        create_topic(wire, TOPIC, partitions=PARTITIONS)
    batches = ("-recs", RECORDS_PER_REQUEST, "-size", 100, "-rotate")
    requests = ("-parts", PARTITIONS, "-reqs", records // RECORDS_PER_REQUEST)
    generator.run(broker.address, "produce", "-topic", TOPIC, *batches, *requests)


def compare(sides: list[brokers.Broker], reporter: Reporter, records: int, rounds: int) -> None:
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            told = reporter.run("{}:{}".format(*side.address))
            assert told["records"] == records, told
            if number:  # the first warms the session up
                seconds[side.name].append(told["seconds"])
    for name, found in seconds.items():
        median = statistics.median(found)
        print(
            f"{name:8} median {median:5.1f} s of {rounds}, {records / median / 1e6:.2f} M records/s",
            flush=True,
        )
    ratio = statistics.median(seconds["odradek"]) / statistics.median(seconds["kafka"])
    print(f"odradek takes {ratio:.2f} x the time of kafka", flush=True)


def beside(broker: brokers.Broker, reporter: Reporter, seconds: float, rounds: int) -> bool:
    with Wire(broker.address) as wire:
        create_topic(wire, HOT)
    alone, with_report = [], []
    for _ in range(rounds):
        alone.append(produce_p99_ms(broker, seconds))
        with_report.append(_with_report(broker, reporter, seconds))
    ratio = statistics.median(with_report) / statistics.median(alone)
    print(
        f"{RATE} tiny req/s: p99 {statistics.median(alone):.2f} ms alone,"
        f" {statistics.median(with_report):.2f} ms beside a report, {ratio:.2f} x"
        f" (bar: {BAR:g} x: {'holds' if ratio <= BAR else 'MISSED'})",
        flush=True,
    )
    return ratio <= BAR


def _with_report(broker: brokers.Broker, reporter: Reporter, seconds: float) -> float:
    ended = threading.Event()

    def go_on() -> None:
        while not ended.is_set():
            reporter.run("{}:{}".format(*broker.address))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        return produce_p99_ms(broker, seconds)
    finally:
        ended.set()
        thread.join()


def produce_p99_ms(broker: brokers.Broker, seconds: float) -> float:
    load = ("-topic", HOT, "-recs", 1, "-rate", RATE, "-seconds", seconds, "-warmup", 1)
    return float(generator.run(broker.address, "produce", *load)["latency_ms"]["p99"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of each load beside a report")
    parser.add_argument("--as-report", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_report:
        report()
        return 0
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        sides = [brokers.create(name, Path(directory)) for name in ("kafka", "odradek")]
        reporter = Reporter()
        try:
            for side in sides:
                brokers.start(side)
                fill(side, options.records)
            compare(sides, reporter, options.records, options.rounds)
            sides[0].stop()
            holds = beside(sides[1], reporter, options.seconds, options.rounds)
        finally:
            reporter.close()
            for side in sides:
                side.close()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
