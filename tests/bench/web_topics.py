"""The list of topics of a large cluster: how long pages take, their size, how old their figures are.

    python -m tests.bench.web_topics [--topics 10000] [--partitions 3] [--requests 50] [--apart 0.6]
                                     [--data DIRECTORY [--prepare]]

A broker of ours with that many topics, the web process beside it with its collector running, one
person who is signed in and searches, sorts by size and turns to page 3, over HTTP, one request
after the other, spread over several ticks of the collector. The bar is that of the plan.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from typing import Any

import httpx

from dashboard.gateway import Gateway
from tests.bench.web_visits import add_data_options, place, prepared, say
from tests.support.odradek import OdradekBroker
from tests.support.web import AS_SHIPPED, WebProcess

BAR_P95_MS = 100
BAR_PAGE_BYTES = 100_000
BAR_AGE_S = 15
TOPICS_PER_REQUEST = 250
FILLED = 300
"""Topics with records, each of another size."""
TAKEN = re.compile(r'data-taken-ms="(\d+)"')
TOTAL = re.compile("of ([0-9\u202f]+) topics")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--apart", type=float, default=0.6, help="seconds between requests")
    add_data_options(parser)
    options = parser.parse_args()
    with (
        place(options, "odradek-web-topics-") as directory,
        OdradekBroker(directory / "broker") as broker,
    ):
        prepared(directory, lambda: fill(broker, options.topics, options.partitions))
        if options.prepare:
            broker.stop()
            return 0
        with WebProcess(directory, broker.bootstrap, AS_SHIPPED, data=broker.data) as web:
            return run(web, options)


def fill(broker: OdradekBroker, topics: int, partitions: int) -> dict[str, Any]:
    started = time.monotonic()
    gateway = Gateway(broker.bootstrap, timeout_s=60)
    gateway.check()
    names = [f"team-{i % 40:02d}.service-{i % 250:03d}.events-{i:05d}" for i in range(topics)]
    for start in range(0, topics, TOPICS_PER_REQUEST):
        asked = names[start : start + TOPICS_PER_REQUEST]
        outcomes = gateway.create_topics(asked, partitions=partitions)
        assert not any(outcomes.values()), outcomes
    for i, name in enumerate(names[:: max(1, topics // FILLED)]):
        writer = gateway.writer(name)
        for number in range(1 + i % 20):
            writer.send(number, b"x" * 100)
        assert writer.flush(60) == 0
    say(f"{topics} topics x {partitions} partitions made in {time.monotonic() - started:.0f} s")
    return {}


def run(web: WebProcess, options: argparse.Namespace) -> int:
    client = web.client("olga", headers={"Accept-Encoding": "identity"})
    deadline = time.monotonic() + 300
    while (
        not (found := TOTAL.search(client.get("/topics/").text))
        or int(found[1].replace("\u202f", "")) < options.topics
    ):
        assert time.monotonic() < deadline, "no snapshot with all topics"
        time.sleep(1)
    client.get("/topics/?sort=-size")
    asked = ["/topics/?q=service-{:03d}", "/topics/?sort=-size", "/topics/?sort=-size&page=3"]
    took_ms: list[float] = []
    sizes: list[int] = []
    ages_s: list[float] = []
    for number in range(options.requests):
        path = asked[number % len(asked)].format(number)
        answer, milliseconds = timed(client, path)
        took_ms.append(milliseconds)
        sizes.append(len(answer.content))
        taken = TAKEN.search(answer.text)
        assert taken, path
        ages_s.append(time.time() - int(taken[1]) / 1000)
        time.sleep(options.apart)
    p95 = statistics.quantiles(took_ms, n=20, method="inclusive")[-1]
    say(
        f"{options.requests} requests: p50 {statistics.median(took_ms):.1f} ms,"
        f" p95 {p95:.1f} ms, longest {max(took_ms):.1f} ms (bar: p95 under {BAR_P95_MS} ms)"
    )
    say(f"largest page {max(sizes):,} bytes, not compressed (bar: under {BAR_PAGE_BYTES:,})")
    say(f"oldest snapshot on a page {max(ages_s):.1f} s (bar: at most {BAR_AGE_S} s)")
    is_good = p95 < BAR_P95_MS and max(sizes) < BAR_PAGE_BYTES and max(ages_s) <= BAR_AGE_S
    say("all bars hold" if is_good else "a bar does not hold")
    return 0 if is_good else 1


def timed(client: httpx.Client, path: str) -> tuple[httpx.Response, float]:
    started = time.perf_counter()
    answer = client.get(path)
    milliseconds = (time.perf_counter() - started) * 1000
    assert answer.status_code == 200, (path, answer.status_code)
    return answer, milliseconds


if __name__ == "__main__":
    sys.exit(main())
