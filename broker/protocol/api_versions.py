"""The one table of the APIs and versions that this broker serves.

What stands in ``SERVED`` is advertised by ApiVersions, decoded by ``schema`` and dispatched by
the server; nothing else is. The ranges are those of Apache Kafka 4.x (floors of KIP-896), so
APIs that carry topic ids rise together: a client that learned an id from Metadata may use it in
Produce and Fetch.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """APIs of Kafka's broker listener. ``ApiKey(key).wire_name`` is the name in Kafka's docs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94

    @property
    def wire_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


#: ``flexible_from`` of an API that never became flexible.
NEVER = 1 << 15


class ApiRange(NamedTuple):
    """Versions of one API. Flexible versions have compact lengths, tags and header version 2."""

    min_version: int
    max_version: int
    #: Lowest version told to clients; below ``min_version`` only where a client bug needs it.
    advertised_min: int
    flexible_from: int


SERVED: dict[int, ApiRange] = {
    # librdkafka before 2025 turns compression off unless versions 0-2 are advertised (KAFKA-18659);
    # Kafka 4 advertises and refuses them.
    ApiKey.PRODUCE: ApiRange(3, 13, 0, 9),
    ApiKey.FETCH: ApiRange(4, 18, 4, 12),
    ApiKey.LIST_OFFSETS: ApiRange(1, 11, 1, 6),
    ApiKey.METADATA: ApiRange(0, 13, 0, 9),
    ApiKey.OFFSET_COMMIT: ApiRange(2, 10, 2, 8),
    ApiKey.OFFSET_FETCH: ApiRange(1, 10, 1, 6),
    ApiKey.FIND_COORDINATOR: ApiRange(0, 6, 0, 3),
    ApiKey.JOIN_GROUP: ApiRange(0, 9, 0, 6),
    ApiKey.HEARTBEAT: ApiRange(0, 4, 0, 4),
    ApiKey.LEAVE_GROUP: ApiRange(0, 5, 0, 4),
    ApiKey.SYNC_GROUP: ApiRange(0, 5, 0, 4),
    ApiKey.DESCRIBE_GROUPS: ApiRange(0, 6, 0, 5),
    ApiKey.LIST_GROUPS: ApiRange(0, 5, 0, 3),
    ApiKey.SASL_HANDSHAKE: ApiRange(0, 1, 0, NEVER),
    ApiKey.API_VERSIONS: ApiRange(0, 5, 0, 3),
    ApiKey.CREATE_TOPICS: ApiRange(2, 7, 2, 5),
    ApiKey.DELETE_TOPICS: ApiRange(1, 6, 1, 4),
    ApiKey.DELETE_RECORDS: ApiRange(0, 2, 0, 2),
    # Version 6 is unstable in Kafka 4.4: not advertised there either.
    ApiKey.INIT_PRODUCER_ID: ApiRange(0, 5, 0, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiRange(2, 4, 2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiRange(0, 5, 0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiRange(0, 4, 0, 3),
    ApiKey.END_TXN: ApiRange(0, 5, 0, 3),
    ApiKey.WRITE_TXN_MARKERS: ApiRange(1, 2, 1, 1),
    ApiKey.TXN_OFFSET_COMMIT: ApiRange(0, 6, 0, 3),
    ApiKey.DESCRIBE_CONFIGS: ApiRange(1, 4, 1, 4),
    ApiKey.ALTER_CONFIGS: ApiRange(0, 2, 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiRange(1, 5, 1, 2),
    ApiKey.CREATE_PARTITIONS: ApiRange(0, 3, 0, 2),
    ApiKey.DELETE_GROUPS: ApiRange(0, 3, 0, 2),
    ApiKey.ELECT_LEADERS: ApiRange(0, 2, 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiRange(0, 1, 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiRange(0, 1, 0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiRange(0, 0, 0, 0),
    ApiKey.OFFSET_DELETE: ApiRange(0, 0, 0, NEVER),
    ApiKey.DESCRIBE_QUORUM: ApiRange(0, 2, 0, 0),
    ApiKey.UPDATE_FEATURES: ApiRange(0, 2, 0, 0),
    ApiKey.DESCRIBE_CLUSTER: ApiRange(0, 2, 0, 0),
    ApiKey.DESCRIBE_PRODUCERS: ApiRange(0, 0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiRange(0, 0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: ApiRange(0, 2, 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiRange(0, 1, 0, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiRange(0, 1, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: ApiRange(0, 1, 0, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiRange(0, 0, 0, 0),
}


def is_served(api_key: int, version: int) -> bool:
    api_range = SERVED.get(api_key)
    return api_range is not None and api_range.min_version <= version <= api_range.max_version


_FLEXIBLE_FROM = {int(key): api_range.flexible_from for key, api_range in SERVED.items()}


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a request at ``version`` has header 2; unknown APIs are read as header 1."""
    return version >= _FLEXIBLE_FROM.get(api_key, NEVER)


def advertised() -> Iterator[tuple[int, int, int]]:
    """``(api key, min version, max version)`` in the order of keys, for ApiVersions."""
    for api_key, api_range in sorted(SERVED.items()):
        yield int(api_key), api_range.advertised_min, api_range.max_version


_ALPHANUMERIC = frozenset(string.ascii_letters + string.digits)
_SOFTWARE_CHARACTERS = _ALPHANUMERIC | frozenset("-.")


def is_valid_client_software(text: str) -> bool:
    """Whether ApiVersions v3+ may name its client (or its version) so; else INVALID_REQUEST."""
    return (
        bool(text)
        and text[0] in _ALPHANUMERIC
        and text[-1] in _ALPHANUMERIC
        and _SOFTWARE_CHARACTERS.issuperset(text)
    )
