"""How long a producer waits when the machine of a broker is gone: nothing answers, nothing refuses.

    python -m tests.bench.host_loss [--losses 3]

Three brokers with their default settings, each in a network namespace of its own, and ZooKeeper outside of them;
the machine's own network is not touched (needs root, ip, nft, unshare, nsenter). The link of a broker is taken away:
of a leader that is not the controller, of one that is, and of a follower in the ISR. Nobody can tell this from a slow
network before the session ends, so the bar is the session's timeout and two seconds. Told is the time from the loss to
the record that was acknowledged after the longest silence, of an idempotent producer (librdkafka) whose settings are
printed: what it has sent to the lost machine it sends to the next leader when `socket.timeout.ms` has passed, by default
60 s, which is the client's share and so is shortened here. Ends with 1 when a loss took longer than the bar or a record
failed.
"""

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench import clusters, failover
from tests.bench.failover import CONTROLLER, FOLLOWER, LEADER, Load, chosen, wait_for_isr
from tests.chaos import network
from tests.chaos.network import Network, address_of
from tests.support.cluster import Cluster
from tests.support.zookeeper import ZooKeeper

SESSION_SECONDS = 18
BAR_SECONDS = SESSION_SECONDS + 2
PRODUCER = {**failover.PRODUCER, "socket.timeout.ms": 5000}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--losses", type=int, default=3, help="of each kind")
    options = parser.parse_args()
    missing = network.why_not()
    if missing is not None:
        print(f"host_loss: {missing}", file=sys.stderr)
        return 2
    if not network.is_entered():
        network.enter("tests.bench.host_loss", sys.argv[1:])
    failover.print_facts(PRODUCER)
    taken: dict[str, list[float]] = {kind: [] for kind in (LEADER, CONTROLLER, FOLLOWER)}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-host-loss-") as name,
        Network((1, 2, 3)) as net,
    ):
        zookeeper = ZooKeeper(Path(name) / "zookeeper")
        zookeeper.host = network.OUTSIDE
        with zookeeper:
            cluster = Cluster(
                Path(name), zookeeper, "/host-loss", properties=clusters.ODRADEK_DEFAULTS
            )
            for number, broker in cluster.brokers.items():
                broker.host, broker.prefix = address_of(number), net.prefix(number)
            with cluster:
                for number, kind in itertools.product(range(options.losses), taken):
                    topic = f"loss-{number}-{list(taken).index(kind)}"
                    taken[kind].append(lose_one(cluster, net, topic, kind))
                    print(f"{kind}: {taken[kind][-1]:.2f} s", file=sys.stderr, flush=True)
    failover.print_summary({f"machine of a {kind} gone": each for kind, each in taken.items()})
    return 0 if max(itertools.chain(*taken.values())) < BAR_SECONDS else 1


def lose_one(cluster: Cluster, net: Network, topic: str, kind: str) -> float:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 5000})
    size = len(cluster.brokers)
    new = NewTopic(topic, failover.PARTITIONS, size, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(60)
    wait_for_isr(admin, topic, size)
    partition, victim = chosen(admin.list_topics(timeout=30), topic, kind)
    with Load(cluster.bootstrap, topic, partition, PRODUCER) as load:
        load.wait_for_more()
        net.unplug(victim)
        lost = time.perf_counter()
        wait_for_isr(admin, topic, size - 1)
        load.wait_for_more()
    seconds = load.silence_after(lost)
    net.plug_in(victim)
    cluster.wait_for_brokers(*cluster.brokers)
    wait_for_isr(admin, topic, size)
    admin.delete_topics([topic])[topic].result(60)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
