"""What a client asks a controller, step by step; each conversation on a broker that starts empty.

Each step is (request, arguments); ``capture_metadata`` asks Apache Kafka, tests ask our controller,
and both must answer the same. ``"id of NAME"`` stands for that topic's id.
"""

from typing import Any

Step = tuple[str, dict[str, Any]]


def create(*topics: dict[str, Any], validate_only: bool = False) -> Step:
    return "create", {
        "topics": [
            {
                "name": topic["name"],
                "partitions": topic.get("partitions", 1),
                "replicas": topic.get("replicas", 1),
                "assignments": topic.get("assignments", []),
                "configs": topic.get("configs", []),
            }
            for topic in topics
        ],
        "validate_only": validate_only,
    }


def assigned(name: str, *assignments: tuple[int, list[int]], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": -1,
        "replicas": -1,
        "assignments": [list(each) for each in assignments],
        **more,
    }


def delete(*references: tuple[str | None, str | None]) -> Step:
    return "delete", {"topics": [{"name": name, "id": topic_id} for name, topic_id in references]}


def grow(*topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Step:
    return "grow", {
        "topics": [
            {"name": name, "partitions": count, "assignments": assignments}
            for name, count, assignments in topics
        ],
        "validate_only": validate_only,
    }


NAMES = ["", ".", "..", "...", "a b", "a/b", "ä", "x" * 249, "x" * 250, "a\x00", "-", "a:b", "A"]

TOPICS: list[Step] = [
    *(create({"name": name}) for name in NAMES),
    # Counts, as in case C010.
    create({"name": "c", "partitions": 3, "replicas": 3}),
    create({"name": "c", "partitions": 3, "replicas": 0}),
    create({"name": "c", "partitions": 3, "replicas": -2}),
    create({"name": "c", "partitions": 0}),
    create({"name": "c", "partitions": -2}),
    create({"name": "c", "partitions": 0, "replicas": 0}),
    create({"name": "c", "partitions": 3, "replicas": 32767}),
    create({"name": "default", "partitions": -1, "replicas": -1}),
    create({"name": "default", "partitions": -1, "replicas": -1}),
    create({"name": "dry", "partitions": 4}, validate_only=True),
    create({"name": "dry", "partitions": 0}, validate_only=True),
    create({"name": "default"}, validate_only=True),
    # Duplicates in a request: that topic is refused once, the others are made.
    create({"name": "twice"}, {"name": "once"}, {"name": "twice", "partitions": 2}),
    create({"name": "once"}, {"name": "once"}),
    create({"name": "a b"}, {"name": "a b"}),
    # Names that collide.
    create({"name": "my.topic"}),
    create({"name": "my_topic"}),
    create({"name": "my.topic"}),
    create({"name": "my_topic", "partitions": 0}),
    create({"name": "in.one"}, {"name": "in_one"}),
    create({"name": "my_topic"}, validate_only=True),
    create({"name": "__cluster_metadata"}),
    create({"name": "__cluster_metadata"}, {"name": "__cluster_metadata"}),
    create({"name": "__cluster_metadata", "partitions": 0}, {"name": "beside"}),
    create({"name": "__consumer_offsets", "partitions": 2}),
    # Manual assignments.
    create(assigned("m", (0, [1]), (1, [1]))),
    create(assigned("m2", (1, [1]), (0, [1]))),
    create(assigned("m3", (0, [9]))),
    create(assigned("m3", (0, [1, 9]))),
    create(assigned("m3", (0, [1, 1]))),
    create(assigned("m3", (0, []))),
    create(assigned("m3", (1, [1]))),
    create(assigned("m3", (0, [1]), (2, [1]))),
    create(assigned("m3", (0, [1]), (0, [1]))),
    create(assigned("m3", (-1, [1]), (0, [1]))),
    create(assigned("m3", (0, [1]), (1, [1, 9]))),
    create(assigned("m3", (0, [1]), (1, [1, 1]))),
    create(assigned("m3", (0, [-1]))),
    create(assigned("m3", (0, [1]), partitions=1)),
    create(assigned("m3", (0, [1]), replicas=1)),
    create(assigned("m3", (0, [1]), partitions=1, replicas=1)),
    create(assigned("m3", (0, [9]), configs=[["retention.ms", "x"]])),
    # Configs.
    create({"name": "k", "configs": [["retention.ms", "5000"], ["cleanup.policy", "compact"]]}),
    create({"name": "k2", "configs": [["retention.ms", None]]}),
    create({"name": "k2", "configs": [["retention.ms", None], ["segment.bytes", None]]}),
    create({"name": "k2", "configs": [["no.such", None], ["retention.ms", "x"]]}),
    create({"name": "k2", "partitions": 0, "configs": [["retention.ms", None]]}),
    create({"name": "k", "configs": [["retention.ms", None]]}),
    create({"name": "a b", "configs": [["retention.ms", None]]}),
    create(),
    # Partitions.
    grow(("default", 1, None)),
    grow(("default", 0, None)),
    grow(("default", -1, None)),
    grow(("default", 5, None), validate_only=True),
    grow(("default", 3, None)),
    grow(("default", 3, None)),
    grow(("default", 2, None)),
    grow(("no-such", 3, None)),
    grow(("default", 5, [[1]])),
    grow(("default", 5, [[1], [1], [1]])),
    grow(("default", 5, [])),
    grow(("default", 5, [[1], [9]])),
    grow(("default", 5, [[1], [1, 9]])),
    grow(("default", 5, [[1], [1, 1]])),
    grow(("default", 5, [[1], []])),
    grow(("default", 5, [[1], [1]])),
    grow(("default", 6, None), ("default", 7, None)),
    grow(("default", 6, None), ("no-such", 7, None), ("k", 2, None)),
    grow(("", 7, None)),
    grow(("a b", 7, None)),
    grow(),
    # Deletion.
    delete(("no-such", None)),
    delete(("", None)),
    delete(("a b", None)),
    delete(("dry", None)),
    delete((None, "unknown id")),
    delete((None, None)),
    delete((None, None), (None, None)),
    delete(("once", "id of once")),
    delete(("once", None), ("once", None), ("m", None)),
    delete((None, "id of once"), (None, "id of once")),
    delete(("once", None), (None, "id of once")),
    delete((None, "id of once"), ("k", None), ("no-such", None)),
    delete(("once", None)),
    delete(("my.topic", None)),
    create({"name": "my_topic"}),
    create({"name": "once", "partitions": 2}),
    delete(),
    # Kafka's bounds on one request.
    create({"name": "big", "partitions": 10_000}, validate_only=True),
    create({"name": "big", "partitions": 10_001}, validate_only=True),
    create(
        {"name": "b1", "partitions": 5_000}, {"name": "b2", "partitions": 5_001}, validate_only=True
    ),
    create(
        {"name": "b1", "partitions": 9_998}, {"name": "b2", "partitions": 0}, validate_only=True
    ),
    create({"name": "b0", "partitions": 2_147_483_647}, {"name": "b2"}, validate_only=True),
    create(*({"name": f"many-{n}", "partitions": 2} for n in range(5_001)), validate_only=True),
    create(*({"name": f"many-{n}", "partitions": 1} for n in range(10_001)), validate_only=True),
    create(*({"name": "b 1", "partitions": 9_000} for n in range(2)), validate_only=True),
    create(
        {"name": "b 1", "partitions": 9_000},
        {"name": "b 2", "partitions": 9_000},
        validate_only=True,
    ),
    create(
        {"name": "b1", "partitions": 4_999}, {"name": "b2", "partitions": 4_999}, validate_only=True
    ),
    create(
        {"name": "b1", "partitions": 4_999},
        {"name": "b2", "partitions": 4_999, "configs": [["retention.ms", "1"]]},
        validate_only=True,
    ),
    create({"name": "default", "partitions": 10_001}, validate_only=True),
    create({"name": "default", "partitions": 10_000}, {"name": "b2"}, validate_only=True),
    create({"name": "default", "partitions": 9_999}, {"name": "b2"}, validate_only=True),
    create(
        {"name": "b1", "partitions": 9_999}, {"name": "b2", "partitions": -1}, validate_only=True
    ),
    create(
        {"name": "b1", "partitions": 10_000}, {"name": "b2", "partitions": -1}, validate_only=True
    ),
    create(
        {"name": "b1", "partitions": 10_001}, {"name": "b2", "partitions": -2}, validate_only=True
    ),
    create({"name": "b1", "partitions": 10_002, "replicas": 9}, validate_only=True),
    create(assigned("b1", *((n, [1]) for n in range(10_000))), validate_only=True),
    create(assigned("b1", *((n, [1]) for n in range(10_001))), validate_only=True),
    create({"name": "__cluster_metadata", "partitions": 10_001}, validate_only=True),
    grow(("default", 10_006, None), validate_only=True),
    grow(("default", 10_007, None), validate_only=True),
    grow(("default", 5_006, None), ("my_topic", 5_001, None), validate_only=True),
    grow(("default", 5_006, None), ("my_topic", 5_002, None), validate_only=True),
    grow(("default", 10_006, None), ("no-such", 2, None), validate_only=True),
    grow(("default", 10_007, None), ("no-such", 2, None), validate_only=True),
    grow(("no-such", 20_000, None), validate_only=True),
    grow(("default", 10_006, None), ("my_topic", -5, None), validate_only=True),
    grow(("default", 10_010, None), ("my_topic", -5, None), validate_only=True),
    grow(("default", 10_007, [[1]]), validate_only=True),
    grow(("default", 2_147_483_647, None), validate_only=True),
    grow(("default", 2_147_483_647, None), ("my_topic", 2_147_483_647, None), validate_only=True),
    grow(("default", 10_007, None), ("default", 10_007, None), validate_only=True),
]

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Resource = tuple[int, str, list[list[Any]]]


def replace(*resources: Resource, validate_only: bool = False) -> Step:
    return "replace", _resources(resources, validate_only)


def alter(*resources: Resource, validate_only: bool = False) -> Step:
    return "alter", _resources(resources, validate_only)


def _resources(resources: tuple[Resource, ...], validate_only: bool) -> dict[str, Any]:
    return {
        "resources": [
            {"type": kind, "name": name, "configs": configs} for kind, name, configs in resources
        ],
        "validate_only": validate_only,
    }


SHORT = [["retention.ms", SET, "1000"]]
LONG = [["retention.ms", "1000"]]
LOG_SHORT = [["log.retention.ms", SET, "1000"]]
LOG_LONG = [["log.retention.ms", "1000"]]

#: Which resources can be altered; what a value may be is CONFIG's own matter (configs_*.json).
CONFIG_RESOURCES: list[Step] = [
    create({"name": "t"}, {"name": "u"}),
    alter((TOPIC, "t", SHORT)),
    alter((TOPIC, "t", SHORT), (TOPIC, "absent", SHORT), (TOPIC, "u", SHORT)),
    alter((TOPIC, "t", SHORT), (TOPIC, "t", [["retention.ms", DELETE, None]]), (TOPIC, "u", SHORT)),
    alter((TOPIC, "t", SHORT), (BROKER, "t", SHORT)),
    alter((TOPIC, "t", []), (TOPIC, "absent", [])),
    alter((TOPIC, "", SHORT)),
    alter((TOPIC, "", [["no.such", SET, "1"]])),
    alter((TOPIC, "a b", SHORT)),
    alter((TOPIC, "..", SHORT)),
    alter((TOPIC, "absent", [["no.such", SET, "1"]])),
    alter((TOPIC, "absent", [["retention.ms", APPEND, "1"]])),
    alter((TOPIC, "a b", [["retention.ms", APPEND, "1"]])),
    alter((TOPIC, "a b", [["retention.ms", SET, None]])),
    alter((TOPIC, "absent", SHORT), validate_only=True),
    alter((TOPIC, "t", [["retention.ms", SET, "5"]]), validate_only=True),
    alter((TOPIC, "t", [["retention.ms", 9, "5"]])),
    alter((BROKER, "", LOG_SHORT), (BROKER, "1", LOG_SHORT)),
    alter((BROKER, "1", LOG_SHORT), (BROKER, "1", LOG_SHORT)),
    alter((BROKER, "2", LOG_SHORT), (BROKER, "1", LOG_SHORT), (TOPIC, "t", SHORT)),
    alter((BROKER, "01", LOG_SHORT)),
    alter((BROKER, "+1", LOG_SHORT)),
    alter((BROKER, "-1", LOG_SHORT)),
    alter((BROKER, " 1", LOG_SHORT)),
    alter((BROKER, "1.0", LOG_SHORT)),
    alter((BROKER, "99999999999", LOG_SHORT)),
    alter((BROKER, "x", [["log.retention.ms", SET, None]])),
    alter((BROKER, "2", [["log.retention.ms", SET, "x"]])),
    alter((0, "t", SHORT)),
    alter((1, "t", SHORT)),
    alter((3, "t", SHORT)),
    alter((99, "t", SHORT)),
    alter((-1, "t", SHORT)),
    alter((0, "t", [["retention.ms", SET, None]])),
    alter(),
    replace((TOPIC, "t", LONG)),
    replace((TOPIC, "t", LONG), (TOPIC, "absent", LONG), (TOPIC, "u", LONG)),
    replace((TOPIC, "t", LONG), (TOPIC, "t", []), (TOPIC, "u", LONG)),
    replace((TOPIC, "t", []), (TOPIC, "absent", [])),
    replace((TOPIC, "", LONG)),
    replace((TOPIC, "a b", LONG)),
    replace((TOPIC, "absent", [["no.such", "1"]])),
    replace((TOPIC, "a b", [["retention.ms", None]])),
    replace((TOPIC, "t", [["retention.ms", "5"]]), validate_only=True),
    replace((BROKER, "", LOG_LONG), (BROKER, "1", LOG_LONG)),
    replace((BROKER, "1", LOG_LONG), (BROKER, "1", LOG_LONG)),
    replace((BROKER, "2", LOG_LONG)),
    replace((BROKER, "x", LOG_LONG)),
    replace((BROKER_LOGGER, "1", [["root", "INFO"]])),
    replace((0, "t", LONG)),
    replace((1, "t", LONG)),
    replace((99, "t", LONG)),
    replace(),
    alter((BROKER_LOGGER, "1", [["root", SET, "INFO"]])),
    alter((BROKER_LOGGER, "2", [["root", SET, "INFO"]])),
    alter((BROKER_LOGGER, "", [["root", SET, "INFO"]])),
    alter((CLIENT_METRICS, "m", [["interval.ms", SET, "1000"]])),
    alter((CLIENT_METRICS, "m", [["no.such", SET, "1000"]])),
    alter((GROUP, "g", [["consumer.session.timeout.ms", SET, "50000"]])),
    alter((GROUP, "g", [["no.such", SET, "1000"]])),
]
