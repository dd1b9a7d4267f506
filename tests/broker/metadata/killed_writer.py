"""A process that creates and deletes topics and says so, line by line, until it is killed.

    python -m tests.broker.metadata.killed_writer DIRECTORY

Each line is one answered request: ``+name`` or ``-name``.
"""

import random
import sys
from itertools import count

from broker.metadata.files import DiskDirectory
from broker.metadata.requests import NewTopic, TopicReference
from tests.support.metadata import Cluster


def main(directory: str) -> None:
    cluster = Cluster(DiskDirectory(directory), journal_bound_bytes=20_000, reserve_bytes=4096)
    cluster.start()
    dice = random.Random(len(cluster.image.topics))
    first = cluster.ask(cluster.controller.allocate_producer_ids).first
    print("ready", flush=True)
    for number in count(first):
        known = list(cluster.image.topics)
        if len(known) > 20 and dice.random() < 0.5:
            name = dice.choice(known)
            (result,) = cluster.ask(cluster.controller.delete_topics, [TopicReference(name)])
            sign = "-"
        else:
            name = f"t{number}"
            new = [NewTopic(name, dice.randrange(1, 5))]
            (result,) = cluster.ask(cluster.controller.create_topics, new, False)
            sign = "+"
        assert result.is_success, result
        print(sign + name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
