"""``make sim SEED=7`` tells one story; ``SEEDS=0-1000`` runs many; ``FAULT='no lease'`` plants one."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.broker import Types
from tests.simulation.cluster import Cluster, run_seed
from tests.simulation.planted import PLANTED
from tests.simulation.world import Failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0-200", metavar="FIRST-END")
    parser.add_argument("--fault", default="", help="part of a planted fault's name")
    arguments = parser.parse_args()
    types: type[Types] = Types
    if arguments.fault:
        [name] = [name for name in PLANTED if arguments.fault in name]
        types = PLANTED[name]
    if arguments.seed is not None:
        return _tell(arguments.seed, types)
    first, end = map(int, arguments.seeds.split("-"))
    return _run(range(first, end), types)


def _tell(seed: int, types: type[Types]) -> int:
    cluster = Cluster(seed, types)
    try:
        cluster.run()
    except Failure as failure:
        print(failure)
        return 1
    print(*cluster.world.story, sep="\n")
    print(_numbers(cluster))
    return 0


def _run(seeds: range, types: type[Types]) -> int:
    failures, events, faults, started = 0, 0, 0, time.process_time()
    for seed in seeds:
        try:
            cluster = run_seed(seed, types)
        except Failure as failure:
            failures += 1
            print(str(failure).partition("\n")[0])
        else:
            events += cluster.world.event_count
            faults += cluster.world.fault_count
    used = time.process_time() - started
    print(
        f"{len(seeds)} seeds, {failures} failures, {events} events, {faults} faults, "
        f"{used / len(seeds):.2f} s a seed"
    )
    return 1 if failures else 0


def _numbers(cluster: Cluster) -> str:
    return (
        f"seed {cluster.world.seed}: {cluster.world.event_count} events, "
        f"{cluster.world.fault_count} faults, {cluster.producer.number} records, "
        f"{cluster.checker.excuse_count} losses excused; nothing wrong"
    )


if __name__ == "__main__":
    sys.exit(main())
