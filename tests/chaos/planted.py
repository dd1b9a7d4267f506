"""What a run has to find: an acknowledged record that is gone from every replica."""

from __future__ import annotations

import os

from tests.chaos.run import TOPIC, Scene


def lose_a_record(scene: Scene) -> None:
    """The last one of the first partition: all brokers die, and come back with logs that are a byte too short."""
    scene.load.stop_producing()
    brokers = scene.cluster.brokers.values()
    for broker in brokers:
        broker.trim()
        broker.kill9()
        last = max((broker.logs / f"{TOPIC}-0").glob("*.log"))
        os.truncate(last, last.stat().st_size - 1)
    for broker in brokers:
        broker.start()
