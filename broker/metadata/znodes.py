"""Paths and values of the metadata tree, in the layout that Kafka documents for ZooKeeper.

Values are JSON in UTF-8 (the controller's epoch is bare digits). The version of a partition's
``state`` node is its partition epoch. What a reader does not know it ignores; what it needs and
does not find raises ``ValueError``: the store is ours, so that is damage.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from broker.metadata.image import BrokerImage, Endpoint
from broker.model.features import FOREIGN, LevelRange, SupportedFeature
from broker.model.ids import BrokerId, TopicId

CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
#: Ours, only in a cluster: what brokers prove to each other that they know.
CLUSTER_SECRET = "/cluster/secret"  # noqa: S105 - the node's path
#: Ours, only while a local store is being moved here: no cluster may be founded meanwhile.
CLUSTER_MOVING = "/cluster/moving"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
#: Ours, only in a cluster: the broker epochs whose registration was answered.
BROKER_EPOCHS = "/brokers/epochs"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_IDS = "/latest_producer_id_block"
FEATURES = "/feature"

#: Name of the config node that holds for every broker.
DEFAULT_ENTITY = "<default>"

#: Empty nodes that are there before anything else, parents first.
SKELETON = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    TOPICS,
    CLUSTER,
    "/config",
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    GROUP_CONFIGS,
)


#: The same for a cluster of several brokers.
CLUSTER_SKELETON = (*SKELETON, BROKER_EPOCHS)


class PartitionState(NamedTuple):
    """Value of a partition's ``state`` node."""

    leader_id: BrokerId
    leader_epoch: int
    controller_epoch: int
    isr: tuple[BrokerId, ...]


class TopicAssignment(NamedTuple):
    """Value of a topic's node: its id, the replicas of every partition, and of those that are being
    reassigned which come and which go."""

    topic_id: TopicId
    partitions: Mapping[int, Sequence[BrokerId]]
    adding: Mapping[int, Sequence[BrokerId]] = MappingProxyType({})
    removing: Mapping[int, Sequence[BrokerId]] = MappingProxyType({})


class ProducerIdBlock(NamedTuple):
    """Producer ids ``first`` to ``last``, both in it, for one broker."""

    broker_id: BrokerId
    first: int
    last: int


# Paths


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def partition_state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker_id: BrokerId | None) -> str:
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def group_config_path(group_id: str) -> str:
    """Of any group: its id may have slashes in it, and be a dot."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='').replace('.', '%2E')}"


def group_of_path(name: str) -> str:
    return unquote(name)


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


# Values


def encode_topic(assignment: TopicAssignment) -> bytes:
    return _encode(
        {
            "version": 3,
            "partitions": _encode_replicas(assignment.partitions),
            "adding_replicas": _encode_replicas(assignment.adding),
            "removing_replicas": _encode_replicas(assignment.removing),
            "topic_id": topic_id_text(assignment.topic_id),
        }
    )


def decode_topic(data: bytes) -> TopicAssignment:
    value = _decode(data)
    return TopicAssignment(
        parse_topic_id(str(value["topic_id"])),
        _decode_replicas(value["partitions"]),
        _decode_replicas(value.get("adding_replicas", {})),
        _decode_replicas(value.get("removing_replicas", {})),
    )


def _encode_replicas(replicas: Mapping[int, Sequence[BrokerId]]) -> dict[str, list[BrokerId]]:
    return {str(index): list(brokers) for index, brokers in sorted(replicas.items())}


def _decode_replicas(value: Mapping[str, Sequence[BrokerId]]) -> dict[int, Sequence[BrokerId]]:
    return {int(index): tuple(replicas) for index, replicas in value.items()}


@lru_cache(maxsize=1024)
def encode_partition_state(state: PartitionState) -> bytes:
    # Cached: all partitions of a new topic on one broker have the same state, and one object then.
    return _encode(
        {
            "version": 1,
            "leader": state.leader_id,
            "leader_epoch": state.leader_epoch,
            "controller_epoch": state.controller_epoch,
            "isr": list(state.isr),
        }
    )


@lru_cache(maxsize=1024)
def decode_partition_state(data: bytes) -> PartitionState:
    value = _decode(data)
    return PartitionState(
        BrokerId(value["leader"]),
        value["leader_epoch"],
        value["controller_epoch"],
        tuple(value["isr"]),
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(sorted(configs.items()))})


def decode_configs(data: bytes) -> dict[str, str]:
    return {str(name): str(value) for name, value in _decode(data)["config"].items()}


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_decode(data)["id"])


def encode_controller(broker_id: BrokerId, wall_ms: int) -> bytes:
    return _encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(wall_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(_decode(data)["brokerid"])


def encode_controller_epoch(controller_epoch: int) -> bytes:
    return b"%d" % controller_epoch


def decode_controller_epoch(data: bytes) -> int:
    return int(data)


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    return _encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    value = _decode(data)
    return ProducerIdBlock(
        BrokerId(value["broker"]), int(value["block_start"]), int(value["block_end"])
    )


def encode_broker(broker: BrokerImage, wall_ms: int, directory_id: str = "") -> bytes:
    """``directory_id`` (ours) tells a broker's own stale node from a rival's."""
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    value: dict[str, object] = {
        "version": 5,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": -1,
        "timestamp": str(wall_ms),
        "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in broker.endpoints],
        "listener_security_protocol_map": {
            e.listener: e.security_protocol for e in broker.endpoints
        },
        "features": {
            name: {"min_version": levels.min_level, "max_version": levels.max_level}
            for name, levels in broker.features
        },
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if directory_id:
        value["directory_id"] = directory_id
    return _encode(value)


def decode_directory_id(data: bytes) -> str:
    """Empty when the registration tells none."""
    value = _decode(data)
    return str(value["directory_id"]) if "directory_id" in value else ""


def decode_registered_ms(data: bytes) -> int:
    """When the broker was registered, by its own wall clock."""
    return int(_decode(data)["timestamp"])


def encode_broker_epochs(epochs: Mapping[BrokerId, int]) -> bytes:
    return _encode({str(broker_id): epoch for broker_id, epoch in sorted(epochs.items())})


def decode_broker_epochs(data: bytes) -> dict[BrokerId, int]:
    if not data:
        return {}
    return {BrokerId(int(name)): int(epoch) for name, epoch in _decode(data).items()}


def decode_broker(broker_id: BrokerId, broker_epoch: int, data: bytes) -> BrokerImage:
    value = _decode(data)
    protocols = value["listener_security_protocol_map"]
    endpoints = []
    for text in value["endpoints"]:
        listener, _, address = str(text).partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(Endpoint(listener, host.strip("[]"), int(port), protocols[listener]))
    features = tuple(
        SupportedFeature(name, LevelRange(levels["min_version"], levels["max_version"]))
        for name, levels in sorted(value.get("features", {}).items())
    )
    return BrokerImage(broker_id, broker_epoch, tuple(endpoints), value.get("rack"), features)


def encode_features(levels: Mapping[str, int], epoch: int) -> bytes:
    """With our epoch: the version of a node begins anew where metadata are moved to."""
    features = {name: {"max_version_level": level} for name, level in sorted(levels.items())}
    return _encode({"version": 2, "status": 1, "features": features, "epoch": epoch})


def decode_features(data: bytes) -> tuple[dict[str, int], int]:
    """Levels and epoch; without those of Kafka's that mean nothing here: an adopted node's metadata may hold them, and
    bare levels."""
    found = _decode(data)
    levels = {}
    for name, value in found["features"].items():
        level = value if isinstance(value, int) else value["max_version_level"]
        if level > 0 and name not in FOREIGN:
            levels[str(name)] = int(level)
    return levels, int(found.get("epoch", 0))


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Kafka's text of a 128-bit id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Value(dict[str, Any]):
    """A JSON object; what it lacks is damage."""

    def __missing__(self, key: str) -> Any:
        raise ValueError(f"a metadata node lacks {key!r}: {str(dict(self))[:80]}")


def _decode(data: bytes) -> _Value:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"a metadata node is no JSON object: {data[:80]!r}")
    return _Value(value)
