"""Finalised features: UpdateFeatures, and kafka-features, on both brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from broker.metadata import znodes
from broker.metadata.image import BrokerImage, Endpoint
from broker.model.features import LevelRange, SupportedFeature
from broker.model.ids import BrokerId
from tests.support import apache, processes
from tests.support.cluster import Cluster
from tests.support.consumer_groups import Consumer
from tests.support.fixtures import Broker
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

INVALID_UPDATE_VERSION = 95
UNSUPPORTED_VERSION = 35
UPGRADE = 1
SAFE_DOWNGRADE = 2
NEWEST = {"group.version": 1, "transaction.version": 2}


def levels(wire: Wire) -> dict[str, int]:
    """What is finalised of what both brokers have."""
    return {name: level for name, level in described(wire)[0].items() if name in NEWEST}


def wait_for_levels(wire: Wire, expected: dict[str, int]) -> None:
    """Apache Kafka's broker hears of them some time after its controller has answered."""
    processes.wait_until(lambda: levels(wire) == expected, 30, f"the levels {expected}")


def described(wire: Wire) -> tuple[dict[str, int], int]:
    answer = wire.request("api_versions", 4, client_software_name="j", client_software_version="1")
    found = {each.name: each.max_version_level for each in answer.finalized_features}
    return found, answer.finalized_features_epoch


def update(
    wire: Wire, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> Any:
    return wire.request(
        "update_features",
        version,
        feature_updates=[
            {"feature": name, "max_version_level": level, "upgrade_type": kind}
            for name, level, kind in updates
        ],
        **({"validate_only": validate_only} if version > 0 else {}),
    )


@pytest.fixture
def _as_before(wire: Wire) -> Iterator[None]:
    """Others use these brokers too."""
    yield
    for name, level in NEWEST.items():
        assert update(wire, (name, level, UPGRADE)).error_code == 0
    wait_for_levels(wire, NEWEST)


@pytest.mark.usefixtures("_as_before")
def test_levels_are_lowered_and_raised_and_the_epoch_rises(wire: Wire) -> None:
    wait_for_levels(wire, NEWEST)
    _, before = described(wire)
    for name in NEWEST:
        for version in (1, 2):
            kind = SAFE_DOWNGRADE
            answer = update(wire, (name, 0, kind), version=version, validate_only=True)
            assert (answer.error_code, answer.error_message) == (0, None)
            wait_for_levels(wire, NEWEST)
        assert update(wire, (name, 0, SAFE_DOWNGRADE)).error_code == 0
        wait_for_levels(wire, {each: level for each, level in NEWEST.items() if each != name})
        _, after = described(wire)
        assert after > before
        assert update(wire, (name, NEWEST[name], UPGRADE)).error_code == 0
        wait_for_levels(wire, NEWEST)


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize(
    ("name", "level", "kind", "why"),
    [
        ("transaction.version", 1, UPGRADE, "Can't downgrade the version of this feature"),
        ("transaction.version", 3, UPGRADE, "only supports versions 0-2"),
        ("transaction.version", 3, SAFE_DOWNGRADE, "only supports versions 0-2"),
        ("transaction.version", -1, UPGRADE, "A feature version cannot be less than 0."),
        ("transaction.version", 1, 0, "The controller does not support the given upgrade type."),
        ("unheard.of", 1, UPGRADE, "does not support this feature."),
        ("unheard.of", 0, SAFE_DOWNGRADE, "Feature unheard.of not found."),
        ("group.version", 2, UPGRADE, "only supports versions 0-1"),
    ],
)
def test_what_is_refused(wire: Wire, name: str, level: int, kind: int, why: str) -> None:
    other = next(each for each in NEWEST if each != name)
    for version in (1, 2):
        answer = update(wire, (other, 0, SAFE_DOWNGRADE), (name, level, kind), version=version)
        assert answer.error_code == INVALID_UPDATE_VERSION
        message = answer.error_message
        assert message.startswith(
            "The update failed for all features since the following feature had an error:"
            f" Invalid update version {level} for feature {name}. "
        )
        assert why in message
        wait_for_levels(wire, NEWEST)


@pytest.mark.usefixtures("_as_before")
def test_results_of_single_features_until_version_1(wire: Wire) -> None:
    answer = update(wire, ("group.version", 1, UPGRADE), version=1)
    assert answer.error_code == 0
    assert [(each.feature, each.error_code, each.error_message) for each in answer.results] == [
        ("group.version", 0, "NONE")
    ]
    assert update(wire, ("group.version", 5, UPGRADE), version=1).results == []


@pytest.mark.usefixtures("_as_before")
def test_without_the_feature_there_are_no_consumer_groups(wire: Wire, group: str) -> None:
    member = Consumer(wire, group, ("t",))
    assert member.join().error_code == 0
    assert update(wire, ("group.version", 0, SAFE_DOWNGRADE)).error_code == 0
    wait_for_levels(wire, {"transaction.version": 2})
    assert member.beat().error_code == UNSUPPORTED_VERSION
    (described_group,) = wire.request("consumer_group_describe", 1, group_ids=[group]).groups
    assert described_group.error_code == UNSUPPORTED_VERSION


def features(broker: Broker, *args: str) -> apache.ToolRun:
    return apache.run_tool("FeatureCommand", ["--bootstrap-server", broker.bootstrap, *args])


@pytest.mark.usefixtures("_as_before")
def test_kafka_features(broker: Broker, wire: Wire) -> None:
    lowered = features(broker, "downgrade", "--feature", "transaction.version=1")
    assert lowered.ok().lines == ["transaction.version was downgraded to 1."]
    wait_for_levels(wire, {**NEWEST, "transaction.version": 1})
    rows = [line.split() for line in features(broker, "describe").ok().lines]
    (row,) = [row for row in rows if row[1] == "transaction.version"]
    assert row[:8] == [
        "Feature:", "transaction.version", "SupportedMinVersion:", "0", "SupportedMaxVersion:", "2",
        "FinalizedVersionLevel:", "1",
    ]  # fmt: skip
    raised = ("upgrade", "--feature", "transaction.version=2")
    assert features(broker, *raised, "--dry-run").ok().lines == [
        "transaction.version can be upgraded to 2."
    ]
    wait_for_levels(wire, {**NEWEST, "transaction.version": 1})
    assert features(broker, *raised).ok().lines == ["transaction.version was upgraded to 2."]
    wait_for_levels(wire, NEWEST)
    refused = features(broker, "upgrade", "--feature", "transaction.version=3")
    assert refused.status != 0
    assert "only supports versions 0-2" in refused.stdout + refused.stderr


# --- A cluster --------------------------------------------------------------------------------


def test_no_level_counts_that_a_registered_broker_cannot(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """An older broker: its registration, with somebody who takes calls at its address."""
    older = SupportedFeature("transaction.version", LevelRange(0, 1))
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        Cluster(tmp_path, zookeeper, "/features", count=2) as cluster,
        Wire(cluster.brokers[1].address) as one,
        Wire(cluster.brokers[2].address) as two,
    ):
        wires = (one, two)
        assert [levels(wire) for wire in wires] == [NEWEST] * 2
        endpoint = Endpoint("PLAINTEXT", *listening.getsockname(), "PLAINTEXT")
        rival = BrokerImage(BrokerId(9), -1, (endpoint,), None, (older,))
        client = KazooClient(f"{zookeeper.address}/features")
        client.start()
        client.create(
            znodes.broker_path(rival.broker_id), znodes.encode_broker(rival, 0), ephemeral=True
        )
        for wire in wires:  # whichever of them is the controller
            refused = update(wire, ("group.version", 0, UPGRADE))
            assert refused.error_code == INVALID_UPDATE_VERSION
        assert update(two, ("transaction.version", 1, SAFE_DOWNGRADE)).error_code == 0
        assert update(one, ("group.version", 0, SAFE_DOWNGRADE)).error_code == 0
        cluster.wait_for_brokers(1, 2, 9)
        processes.wait_until(
            lambda: [levels(wire) for wire in wires] == [{"transaction.version": 1}] * 2,
            30,
            "the levels on both",
        )
        for wire in wires:
            refused = update(wire, ("transaction.version", 2, UPGRADE))
            assert "Broker 9 only supports versions 0-1" in refused.error_message
        client.stop()
        client.close()
        cluster.wait_for_brokers(1, 2)
        assert update(two, ("transaction.version", 2, UPGRADE)).error_code == 0
        for broker in cluster.brokers.values():
            broker.kill9()
        for broker in cluster.brokers.values():
            broker.start()
        cluster.wait_for_brokers(1, 2)
        with Wire(cluster.brokers[1].address) as wire:
            wait_for_levels(wire, {"transaction.version": 2})
