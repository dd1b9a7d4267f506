"""The page of consumer groups of a cluster with very many, and what a look at them all costs.

    python -m tests.bench.web_groups [--groups 10000] [--lagging 2000] [--members 500] [--seconds 60]
                                     [--data DIRECTORY [--prepare]]

A broker of ours where every group has committed offsets of four partitions, some behind the logs'
ends, some with a member; the web process beside it. Told: pages of one person and of eight side by
side; the web process's and the broker's time for a tick of the collector; how late the broker's
loop runs meanwhile; by how much the web process's memory grows with the groups.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dashboard.gateway import Gateway
from dashboard.snapshots import WATCHED_PAUSE_MS
from tests.bench.web_visits import (
    Verdict,
    add_data_options,
    place,
    prepared,
    say,
    visit,
)
from tests.support import group_requests, processes
from tests.support.odradek import OdradekBroker
from tests.support.web import AS_SHIPPED, WebProcess
from tests.support.wire import Wire

BAR_PAGE_MS = 300.0
BAR_LAG_MS = 5.0
BAR_MB_PER_10_000 = 150.0
VISITORS = 8
PARTITIONS = 4
RECORDS = 1_000
"""In each partition; who lags has read half of them."""
TOPIC = "grouped"
CONNECTIONS = 4
PATHS = (
    "/groups/",
    "/groups/?sort=-behind&page=3",
    "/groups/?q=team-07&sort=group",
    "/groups/?status=ok&sort=-members",
    "/groups/?state=Stable",
    "/groups/?topic=grouped&size=200",
)
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "1800000",
}
SESSION_MS = 1_800_000
COUNT = re.compile("([0-9\u202f]+) groups")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--lagging", type=int, default=2_000)
    parser.add_argument("--members", type=int, default=500, help="groups with a member")
    parser.add_argument("--seconds", type=float, default=60, help="of each phase")
    add_data_options(parser)
    options = parser.parse_args()
    with (
        place(options, "odradek-web-groups-") as directory,
        OdradekBroker(directory / "broker", BROKER_SETTINGS) as broker,
    ):
        told = prepared(directory, lambda: make(broker, directory, options))
        if options.prepare:
            broker.stop()
            return 0
        with WebProcess(directory, broker.bootstrap, AS_SHIPPED, data=broker.data) as web:
            return run(broker, web, options, told["without_mb"])


def make(broker: OdradekBroker, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The groups; and what the web process takes while there are none."""
    make_topic(broker)
    with WebProcess(directory, broker.bootstrap, AS_SHIPPED, data=broker.data) as web:
        without_mb = settled(web, 0)
    fill(broker, options.groups, options.lagging, options.members)
    return {"without_mb": without_mb}


def make_topic(broker: OdradekBroker) -> None:
    gateway = Gateway(broker.bootstrap, timeout_s=60)
    gateway.check()
    assert not any(gateway.create_topics([TOPIC], partitions=PARTITIONS).values())
    writer = gateway.writer(TOPIC)
    for number in range(RECORDS * PARTITIONS):
        writer.send(number, b"x" * 100, partition=number % PARTITIONS)
    assert writer.flush(60) == 0


def fill(broker: OdradekBroker, groups: int, lagging: int, members: int) -> None:
    """Members need no heartbeat: their sessions outlast the measurement."""
    began = time.monotonic()
    names = [f"team-{number % 40:02d}.service-{number:05d}" for number in range(groups)]

    def commit(worker: int) -> None:
        with Wire(broker.address) as wire:
            group_requests.find(wire, names[0])
            for number in range(worker, groups, CONNECTIONS):
                read = RECORDS // 2 if number < lagging else RECORDS
                offsets = dict.fromkeys(range(PARTITIONS), read)
                codes = group_requests.commit(wire, names[number], TOPIC, offsets)
                assert not any(codes), codes
                if number % max(1, groups // max(1, members)) == 0 and members:
                    group_requests.become_member(
                        wire, names[number], topics=(TOPIC,), session_ms=SESSION_MS
                    )

    threads = [threading.Thread(target=commit, args=(worker,)) for worker in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(f"{groups} groups made in {time.monotonic() - began:.0f} s")


def settled(web: WebProcess, groups: int) -> float:
    """Megabytes of the web process once it knows so many groups and has looked at them often."""
    with web.client() as client:

        def knows() -> bool:
            found = COUNT.search(client.get("/groups/").text)
            return groups <= (int(found[1].replace("\u202f", "")) if found else 0)

        processes.wait_until(knows, 120, "the groups", every=1)
        for _ in range(10):
            for path in PATHS:
                client.get(path)
            time.sleep(WATCHED_PAUSE_MS / 5_000)
    return processes.status_kib(web.pid, "VmRSS") / 1024


def run(
    broker: OdradekBroker, web: WebProcess, options: argparse.Namespace, without_mb: float
) -> int:
    verdict = Verdict()
    with_mb = settled(web, options.groups)
    cost(broker, web, options, verdict)
    for visitors in (1, VISITORS):
        visits = visit(
            web, PATHS, visitors=visitors, seconds=options.seconds, pause_s=0.4 * visitors
        )
        who = f"groups, {visitors} side by side" if visitors > 1 else "groups, one person"
        verdict.pages(who, visits.all_ms(), BAR_PAGE_MS)
        for path in PATHS:
            if found := visits.took_ms.get(path):
                say(f"     {path}: longest {max(found):.0f} ms of {len(found)}")
        verdict.faultless(who, visits)
    grown = with_mb - without_mb
    bar = BAR_MB_PER_10_000 * options.groups / 10_000
    verdict.judge(
        "memory of the web process",
        f"{without_mb:.0f} MB without groups, {with_mb:.0f} MB with {options.groups}",
        f"grows less than {bar:.0f} MB",
        holds=grown < bar,
    )
    return verdict.end()


def cost(
    broker: OdradekBroker, web: WebProcess, options: argparse.Namespace, verdict: Verdict
) -> None:
    """Somebody looks at another page, once in a while, so that ticks come every ten seconds."""
    pause_s = WATCHED_PAUSE_MS / 1000
    ticks = max(2, int(options.seconds / pause_s))
    with web.client() as client:
        client.get("/account/password/")
        broker.control("stats", reset=True)
        before = (processes.cpu_seconds(web.pid), processes.cpu_seconds(broker.pid))
        for _ in range(ticks):
            client.get("/brokers/")
            time.sleep(pause_s)
        after = (processes.cpu_seconds(web.pid), processes.cpu_seconds(broker.pid))
    ours, theirs = ((b - a) / ticks for a, b in zip(before, after, strict=True))
    say(f"     a tick costs the web process {ours:.2f} s of a core, the broker {theirs:.2f} s")
    lag_ms = broker.control("stats")["loop"]["lag_p999_us"] / 1000
    verdict.judge(
        "the broker's loop lag, p99.9", f"{lag_ms:.2f} ms", f"{BAR_LAG_MS:g} ms",
        holds=lag_ms <= BAR_LAG_MS,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
