"""``make sim SEED=7`` tells a story of each kind; ``SEEDS=0-1000`` runs many; ``STORY=transactions`` keeps to one
kind; ``FAULT='no lease'`` plants a fault, and keeps to the kind that it belongs to."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable

from tests.simulation import planted
from tests.simulation.cluster import Cluster
from tests.simulation.transactions import planted as planted_in_transactions
from tests.simulation.transactions.story import TransactionStory
from tests.simulation.world import Failure

Make = Callable[[int], Cluster]

STORIES: dict[str, Make] = {"replication": Cluster, "transactions": TransactionStory}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0-200", metavar="FIRST-END")
    parser.add_argument("--story", choices=[*STORIES, ""], default="")
    parser.add_argument("--fault", default="", help="part of a planted fault's name")
    arguments = parser.parse_args()
    logging.disable()
    stories = STORIES
    if arguments.story:
        stories = {arguments.story: STORIES[arguments.story]}
    if arguments.fault:
        stories = _with_fault(arguments.fault)
    if arguments.seed is not None:
        return max(_tell(arguments.seed, make) for make in stories.values())
    first, end = map(int, arguments.seeds.split("-"))
    return max(_run(range(first, end), name, make) for name, make in stories.items())


def _with_fault(part: str) -> dict[str, Make]:
    found: dict[str, Make] = {}
    for name, types in planted.PLANTED.items():
        if part in name:
            found[name] = lambda seed, types=types: Cluster(seed, types)  # type: ignore[misc]
    for name, other in planted_in_transactions.PLANTED.items():
        if part in name:
            found[name] = lambda seed, other=other: TransactionStory(seed, other)  # type: ignore[misc]
    [_] = found
    return found


def _tell(seed: int, make: Make) -> int:
    cluster = make(seed)
    try:
        cluster.run()
    except Failure as failure:
        print(failure)
        return 1
    print(*cluster.world.story, sep="\n")
    print(_numbers(cluster))
    return 0


def _run(seeds: range, name: str, make: Make) -> int:
    failures, events, faults, started = 0, 0, 0, time.process_time()
    for seed in seeds:
        cluster = make(seed)
        try:
            cluster.run()
        except Failure as failure:
            failures += 1
            print(str(failure).partition("\n")[0], flush=True)
        else:
            events += cluster.world.event_count
            faults += cluster.world.fault_count
    used = time.process_time() - started
    print(
        f"{name}: {len(seeds)} seeds, {failures} failures, {events} events, {faults} faults, "
        f"{used / len(seeds):.2f} s a seed"
    )
    return 1 if failures else 0


def _numbers(cluster: Cluster) -> str:
    return (
        f"seed {cluster.world.seed}: {cluster.world.event_count} events, "
        f"{cluster.world.fault_count} faults, {cluster.describe()}; nothing wrong"
    )


if __name__ == "__main__":
    sys.exit(main())
