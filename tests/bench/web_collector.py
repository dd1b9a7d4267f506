"""What the dashboard's collector costs the broker of a large cluster.

    python -m tests.bench.web_collector [--topics 10000] [--seconds 30] [--rounds 3] [--by-wire]
                                        [--data DIRECTORY [--prepare]]

A broker of ours with that many topics of three partitions, Produce requests at a fixed rate. Rounds
alternate: nobody looks; the web process runs and somebody looks at the topics (a tick every ten
seconds); the metrics endpoint is scraped every second. Told: the 99.9th percentile of the loop's
lag, the 99th of a Produce request's latency, and of the pages that somebody looks at meanwhile the
95th. `--by-wire`: the collector has the Kafka protocol only, as for a broker on another machine.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dashboard.gateway import Gateway
from tests.bench import generator
from tests.bench.web_topics import fill, timed
from tests.bench.web_visits import add_data_options, place, prepared, say
from tests.support import judge
from tests.support.odradek import OdradekBroker
from tests.support.web import AS_SHIPPED, WebProcess

HOT = "collector-bench"
RATE = 5000
BAR_LAG_MS = 5.0
BAR_FACTOR = 1.2
BAR_PAGE_MS = 100.0


class Round(NamedTuple):
    lag_ms: float
    produce_p99_ms: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--by-wire", action="store_true")
    add_data_options(parser)
    options = parser.parse_args()
    port = judge.free_port()
    generator.binary()
    properties = {"odradek.metrics.listen": f"127.0.0.1:{port}"}
    with (
        place(options, "odradek-web-collector-") as directory,
        OdradekBroker(directory / "broker", properties) as broker,
    ):
        prepared(directory, lambda: fill(broker, options.topics, options.partitions))
        gateway = Gateway(broker.bootstrap, timeout_s=60)
        gateway.check()
        gateway.create_topics([HOT], partitions=1)
        if options.prepare:
            broker.stop()
            return 0
        return measure(broker, port, directory, options)


def measure(broker: OdradekBroker, port: int, directory: Path, options: argparse.Namespace) -> int:
    rounds: dict[str, list[Round]] = {"alone": [], "collector": [], "scraped": []}
    pages_ms: list[float] = []
    scrapes_s: list[float] = []
    data = None if options.by_wire else broker.data
    web = WebProcess(directory, broker.bootstrap, AS_SHIPPED, data=data)
    for number in range(options.rounds):
        rounds["alone"].append(load(broker, options.seconds))
        with web, looking(web, options.topics, pages_ms):
            rounds["collector"].append(load(broker, options.seconds))
        with scraping(port, scrapes_s):
            rounds["scraped"].append(load(broker, options.seconds))
        for kind, found in rounds.items():
            say(
                f"round {number + 1} {kind:9}: loop lag p99.9 {found[-1].lag_ms:.2f} ms,"
                f" produce p99 {found[-1].produce_p99_ms:.2f} ms"
            )
    return verdict(rounds, pages_ms, scrapes_s)


def load(broker: OdradekBroker, seconds: float) -> Round:
    time.sleep(1)
    broker.control("stats", reset=True)
    arguments = ("-topic", HOT, "-recs", 1, "-rate", RATE, "-seconds", seconds, "-warmup", 2)
    result = generator.run(broker.address, "produce", *arguments)
    lag_us = broker.control("stats")["loop"]["lag_p999_us"]
    return Round(lag_us / 1000, float(result["latency_ms"]["p99"]))


@contextmanager
def looking(web: WebProcess, topics: int, took_ms: list[float]) -> Iterator[None]:
    """Somebody who is signed in turns pages, from the first snapshot with all topics on."""
    client = web.client("olga")
    deadline = time.monotonic() + 300
    while f"{topics:,}"[:-3].replace(",", "\u202f") not in client.get("/topics/").text:
        assert time.monotonic() < deadline, "no snapshot with all topics"
        time.sleep(1)
    time.sleep(15)  # the settings of topics are learnt during the first ticks
    ended = threading.Event()

    def look() -> None:
        asked = ("/topics/?sort=-size", "/", "/topics/?q=service-0", "/brokers/", "/problems/")
        number = 0
        while not ended.wait(0.4):
            took_ms.append(timed(client, asked[number % len(asked)])[1])
            number += 1

    thread = threading.Thread(target=look)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def scraping(port: int, took_s: list[float]) -> Iterator[None]:
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(1):
            began = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            took_s.append(time.perf_counter() - began)

    thread = threading.Thread(target=scrape)
    thread.start()
    yield
    ended.set()
    thread.join()


def verdict(rounds: dict[str, list[Round]], pages_ms: list[float], scrapes_s: list[float]) -> int:
    alone = statistics.median(each.produce_p99_ms for each in rounds["alone"])
    is_good = True
    for kind, found in rounds.items():
        lag_ms = statistics.median(each.lag_ms for each in found)
        p99_ms = statistics.median(each.produce_p99_ms for each in found)
        say(
            f"{kind:9}: loop lag p99.9 {lag_ms:.2f} ms (bar: under {BAR_LAG_MS:g}), produce p99"
            f" {p99_ms:.2f} ms, {p99_ms / alone:.2f} x alone (bar: {BAR_FACTOR:g})"
        )
        is_good &= lag_ms <= BAR_LAG_MS and p99_ms <= BAR_FACTOR * alone
    p95_ms = statistics.quantiles(pages_ms, n=20, method="inclusive")[-1]
    say(f"{len(pages_ms)} pages: p95 {p95_ms:.1f} ms (bar: under {BAR_PAGE_MS:g})")
    say(f"{len(scrapes_s)} scrapes: longest {max(scrapes_s) * 1000:.0f} ms")
    is_good &= p95_ms < BAR_PAGE_MS
    say("all bars hold" if is_good else "a bar does not hold")
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
