"""Pages of a large cluster for several people side by side, and while its broker is silent.

    python -m tests.bench.web_visitors [--topics 10000] [--groups 1000] [--seconds 60] [--visitors 8]
                                       [--data DIRECTORY [--prepare]]

A broker of ours with that many topics of three partitions, the web process beside it. Three phases:
the broker runs; it is stopped (SIGSTOP), so that it is connected and says nothing; it goes on. While
it is silent every row of every list must say since when it is stale, within two seconds after the
collector's next tick, and each page must come, without an error.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from dashboard.snapshots import WATCHED_PAUSE_MS
from tests.bench import web_groups
from tests.bench.web_topics import TAKEN, fill
from tests.bench.web_visits import (
    HUNG_S,
    Verdict,
    Visits,
    add_data_options,
    place,
    prepared,
    say,
    visit,
)
from tests.support.odradek import OdradekBroker
from tests.support.web import AS_SHIPPED, WebProcess

BAR_PAGE_MS = 300.0
BAR_STALE_S = 2.0
"""After the collector's next tick."""
ROW = re.compile(r"<tr[ >].*?</tr>", re.DOTALL)
TOPIC = "team-00.service-000.events-00000"
LISTS = ("/topics/", "/topics/?sort=-size&page=3", f"/topics/{TOPIC}/", "/brokers/", "/groups/")
"""Whose rows say since when they are stale."""
SNAPSHOT_PAGES = (
    "/",
    *LISTS,
    "/topics/?q=service-017",
    f"/topics/{TOPIC}/groups/",
    "/groups/?sort=-behind",
    "/problems/",
    "/alerts/",
    "/samples?series=cluster.bytes_in&since=3600",
    "/exports/",
    f"/tail/?topic={TOPIC}",
)
LIVE_PAGES = (
    "/brokers/1/",
    f"/topics/{TOPIC}/settings/",
    f"/topics/{TOPIC}/messages/",
    f"/topics/{TOPIC}/produce/",
    f"/topics/{TOPIC}/danger/",
    f"/topics/{web_groups.TOPIC}/0/500/",
    "/groups/detail?id=team-00.service-00000",
    "/groups/reset?id=team-00.service-00000",
    "/topics/~create/",
)
"""What they show is asked of the cluster now, not read from a snapshot."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60, help="of each phase")
    parser.add_argument("--visitors", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.8, help="seconds between a person's pages")
    add_data_options(parser)
    options = parser.parse_args()
    with (
        place(options, "odradek-web-visitors-") as directory,
        OdradekBroker(directory / "broker", web_groups.BROKER_SETTINGS) as broker,
    ):
        prepared(directory, lambda: make(broker, options))
        if options.prepare:
            broker.stop()
            return 0
        with WebProcess(directory, broker.bootstrap, AS_SHIPPED, data=broker.data) as web:
            web_groups.settled(web, options.groups)
            return run(broker, web, options)


def make(broker: OdradekBroker, options: argparse.Namespace) -> dict[str, Any]:
    fill(broker, options.topics, options.partitions)
    web_groups.make_topic(broker)
    web_groups.fill(broker, options.groups, options.groups // 5, 0)
    return {}


def run(broker: OdradekBroker, web: WebProcess, options: argparse.Namespace) -> int:
    verdict = Verdict()
    visits = phase(web, options, verdict, "the broker runs")
    verdict.judge(
        "pages that called a row stale while the broker answered",
        str(visits.stale_count),
        "none",
        holds=visits.stale_count == 0,
    )
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        become_stale(web, verdict)
        phase(web, options, verdict, "the broker is stopped")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    become_fresh(web, verdict)
    return verdict.end()


def phase(web: WebProcess, options: argparse.Namespace, verdict: Verdict, what: str) -> Visits:
    visits = visit(
        web,
        (*SNAPSHOT_PAGES, *LIVE_PAGES),
        visitors=options.visitors,
        seconds=options.seconds,
        pause_s=options.pause,
    )
    who = f"{what}, {options.visitors} people"
    verdict.pages(f"{who}, all pages", visits.all_ms(), BAR_PAGE_MS)
    for path, took_ms in sorted(visits.took_ms.items(), key=lambda one: -max(one[1])):
        say(f"     {path}: longest {max(took_ms):.0f} ms of {len(took_ms)}")
    verdict.faultless(who, visits)
    return visits


def stale_rows(page: str) -> tuple[int, int]:
    """Rows of data, and those of them that say since when they are stale."""
    bodies = "".join(re.findall(r"<tbody.*?</tbody>", page, re.DOTALL))
    rows = ROW.findall(bodies)
    return len(rows), sum("stale since" in row for row in rows)


def become_stale(web: WebProcess, verdict: Verdict) -> None:
    with web.client() as client:
        client.timeout = httpx.Timeout(HUNG_S)
        visits = Visits()
        taken = TAKEN.search(client.get("/topics/").text)
        assert taken
        next_tick_s = (int(taken[1]) + WATCHED_PAUSE_MS) / 1000

        def is_stale(path: str) -> bool:
            answer = visits.look(client, path)
            rows, stale = stale_rows(answer.text) if answer is not None else (0, 0)
            return rows == stale and rows > 0

        found = when(LISTS, is_stale, time.time() + 60)
        for path in LISTS:
            late_s = found[path] - next_tick_s if path in found else float("inf")
            verdict.judge(
                f"every row of {path} says since when it is stale",
                f"asked for {late_s:.1f} s after the tick was due",
                f"at most {BAR_STALE_S:g} s",
                holds=late_s <= BAR_STALE_S,
            )
        verdict.faultless("while rows become stale", visits)


def when(
    paths: tuple[str, ...], is_so: Callable[[str], bool], ends_s: float
) -> Mapping[str, float]:
    """The time of day from which each was so when it was asked for, by looking again and again."""
    found: dict[str, float] = {}
    while len(found) < len(paths) and time.time() < ends_s:
        for path in paths:
            asked_s = time.time()
            if path not in found and is_so(path):
                found[path] = asked_s
        time.sleep(0.05)
    return found


def become_fresh(web: WebProcess, verdict: Verdict) -> None:
    began = time.time()
    with web.client() as client:
        found = when(LISTS, lambda path: "stale since" not in client.get(path).text, began + 60)
    took_s = max(found.values()) - began if len(found) == len(LISTS) else float("inf")
    verdict.judge("rows are fresh again", f"after {took_s:.1f} s", "15 s", holds=took_s <= 15)


if __name__ == "__main__":
    sys.exit(main())
