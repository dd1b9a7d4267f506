"""5,000 partitions with three replicas on three brokers of ours: what they cost, and how long a failover takes.

    python -m tests.bench.cluster_many [--partitions 5000] [--kills 3]

`kill -9` of the controller, which leads a third of the partitions, while a producer writes tiny records at
500 requests/s to a partition of which another broker is the leader: half of the times with acks=1, half
with acks=all, which waits until the dead replica is out of the ISR. Told are the times from the creation of the new
/controller in ZooKeeper (and from the kill) until every partition has a leader that serves it, the latency of the
producer in the five seconds around it, and the idle brokers' CPU. Ends with 1 when a bar is missed.
"""

import argparse
import itertools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient

from tests.bench import clusters, generator, report
from tests.bench.clusters import Node
from tests.support import processes

TOPIC = "many"
#: What one write to ZooKeeper has room for, and more.
PARTITIONS_A_REQUEST = 2_500
RATE, LOAD_SECONDS, BEFORE_KILL_SECONDS = 500, 5, 1
SETTLE_SECONDS, IDLE_SECONDS = 15, 20
TAKEOVER_BAR_SECONDS, LATENCY_BAR_MS, IDLE_BAR_PERCENT = 5, 50, 5
WHOLE_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=3, help="with each kind of acknowledgement")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the brokers must not outlive us
    generator.binary()
    for fact in report.machine_facts().items():
        print(*fact, sep=": ")
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", dir=generator.CACHE) as directory,
        clusters.odradek_cluster(Path(directory)) as (cluster, zookeeper),
    ):
        client = KazooClient(f"{zookeeper.address}/bench")
        client.start()
        try:
            missed = measure(cluster.brokers, client, options)
        finally:
            client.stop()
            client.close()
    for each in missed:
        print(f"missed: {each}")
    return 1 if missed else 0


def measure(
    nodes: Mapping[int, Node], client: KazooClient, options: argparse.Namespace
) -> list[str]:
    """What was missed."""
    began = time.perf_counter()
    create(nodes, options.partitions)
    print(
        f"{options.partitions:,} partitions made: {time.perf_counter() - began:.1f} s", flush=True
    )
    missed = []
    busiest = idle(nodes)
    if busiest > IDLE_BAR_PERCENT:
        missed.append(f"idle CPU {busiest:.1f} % of a core")
    for number, acks in itertools.product(range(options.kills), (1, -1)):
        told = take_over(nodes, client, f"beside-{number}-{acks}", acks)
        latency = told["latency_ms"]
        produced = (
            f"produce p50 {latency['p50']:.2f} ms, p99 {latency['p99']:.1f} ms, slowest {latency['max']:.0f} ms"
            if latency
            else f"produce FAILED: {told['error']}"
        )
        print(
            f"controller {told['killed']} killed, acks={acks}: all led {told['led']:.2f} s and served"
            f" {told['served']:.2f} s after /controller was taken, {told['since_kill']:.2f} s after the kill;"
            f" {produced}; in sync again {told['whole']:.1f} s after its start",
            flush=True,
        )
        if told["served"] > TAKEOVER_BAR_SECONDS:
            missed.append(f"taken over after {told['served']:.2f} s")
        if not latency:
            missed.append(f"produce acks={acks}: {told['error']}")
        elif acks == 1 and latency["p99"] > LATENCY_BAR_MS:
            missed.append(f"produce p99 {latency['p99']:.1f} ms")
    return missed


def create(nodes: Mapping[int, Node], partitions: int) -> None:
    admin = admin_of(nodes)
    made = min(partitions, PARTITIONS_A_REQUEST)
    new = NewTopic(TOPIC, made, len(nodes), config={"min.insync.replicas": "2"})
    admin.create_topics([new], operation_timeout=60, request_timeout=120)[TOPIC].result(120)
    while made < partitions:
        wait_until_whole(admin, TOPIC, made, len(nodes))
        made = min(partitions, made + PARTITIONS_A_REQUEST)
        more = [NewPartitions(TOPIC, made)]
        admin.create_partitions(more, operation_timeout=60, request_timeout=120)[TOPIC].result(120)
    wait_until_whole(admin, TOPIC, partitions, len(nodes))


def admin_of(nodes: Mapping[int, Node]) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(node.bootstrap for node in nodes.values())})


def wait_until_whole(admin: AdminClient, topic: str, partitions: int, isr: int) -> None:
    def is_so() -> bool:
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions
        return len(found) == partitions and all(len(p.isrs) == isr for p in found.values())

    processes.wait_until(is_so, WHOLE_SECONDS, f"{partitions} partitions in sync", every=0.25)


def idle(nodes: Mapping[int, Node]) -> float:
    """Percent of a core that the busiest broker takes with nothing to do."""
    time.sleep(SETTLE_SECONDS)
    before = {number: processes.cpu_seconds(node.pid) for number, node in nodes.items()}
    time.sleep(IDLE_SECONDS)
    taken = {
        number: (processes.cpu_seconds(node.pid) - before[number]) / IDLE_SECONDS * 100
        for number, node in nodes.items()
    }
    memory = ", ".join(
        f"{processes.status_kib(node.pid, 'VmRSS') / 1024:.0f} MiB" for node in nodes.values()
    )
    told = ", ".join(f"{percent:.1f} %" for percent in taken.values())
    print(f"idle CPU of a core, by broker: {told}; resident {memory}", flush=True)
    return max(taken.values())


def take_over(
    nodes: Mapping[int, Node], client: KazooClient, topic: str, acks: int
) -> dict[str, Any]:
    value, before = client.get("/controller")
    killed = int(json.loads(value)["brokerid"])
    survivors = [number for number in nodes if number != killed]
    admin = admin_of(nodes)
    config = {"min.insync.replicas": "2"}
    new = NewTopic(topic, 1, replica_assignment=[[*survivors, killed]], config=config)
    admin.create_topics([new])[topic].result(60)
    address = nodes[survivors[0]].address
    time.sleep(SETTLE_SECONDS)  # a new leader holds no lease at first, and acks=1 needs it
    load = ("-topic", topic, "-recs", 1, "-acks", acks, "-rate", RATE, "-seconds", LOAD_SECONDS)
    producing = generator.start(address, "produce", *load)
    time.sleep(BEFORE_KILL_SECONDS)
    nodes[killed].kill9()
    at = time.time()
    host, port = nodes[killed].address
    led = generator.run(
        nodes[survivors[1]].address, "led", "-topic", TOPIC, "-without", f"{host}:{port}"
    )
    taken = client.get("/controller")[1]
    if taken.czxid == before.czxid:
        raise RuntimeError("nobody else has taken /controller")
    latency: dict[str, float] = {}
    error = ""
    try:
        latency = producing.result()["latency_ms"]
    except generator.GeneratorError as failure:  # refused: told, and the other kills go on
        error = str(failure)
    again = time.perf_counter()
    nodes[killed].start()
    partitions = len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions)
    wait_until_whole(admin, TOPIC, partitions, len(nodes))
    return {
        "killed": killed,
        "led": (led["told_ms"] - taken.ctime) / 1000,
        "served": (led["served_ms"] - taken.ctime) / 1000,
        "since_kill": led["served_ms"] / 1000 - at,
        "latency_ms": latency,
        "error": error,
        "whole": time.perf_counter() - again,
    }


if __name__ == "__main__":
    sys.exit(main())
