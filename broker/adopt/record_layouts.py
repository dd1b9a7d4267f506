"""Layouts of Kafka's metadata records, by API key. Generated: do not edit.

Made by tests/golden/make_metadata_layouts.py from the specifications of Apache Kafka 4.4.
"""

from __future__ import annotations

from broker.adopt.layout_types import Field, Layout

LAYOUTS: dict[int, Layout] = {
    0: Layout(
        "RegisterBrokerRecord",
        4,
        (
            Field("BrokerId", "int32", default=0),
            Field("IsMigratingZkBroker", "bool", first_version=2, default=False),
            Field("IncarnationId", "uuid"),
            Field("BrokerEpoch", "int64", default=0),
            Field(
                "EndPoints",
                "[]BrokerEndpoint",
                default=(),
                fields=(
                    Field("Name", "string", default=""),
                    Field("Host", "string", default=""),
                    Field("Port", "uint16", default=0),
                    Field("SecurityProtocol", "int16", default=0),
                ),
            ),
            Field(
                "Features",
                "[]BrokerFeature",
                default=(),
                fields=(
                    Field("Name", "string", default=""),
                    Field("MinSupportedVersion", "int16", default=0),
                    Field("MaxSupportedVersion", "int16", default=0),
                ),
            ),
            Field("Rack", "string", nullable_from=0, default=""),
            Field("Fenced", "bool", default=True),
            Field("InControlledShutdown", "bool", first_version=1, default=False),
            Field("LogDirs", "[]uuid", first_version=3, tag=0, default=()),
            Field("CordonedLogDirs", "[]uuid", first_version=4, nullable_from=4, tag=1),
        ),
    ),
    1: Layout(
        "UnregisterBrokerRecord",
        0,
        (
            Field("BrokerId", "int32", default=0),
            Field("BrokerEpoch", "int64", default=0),
        ),
    ),
    2: Layout(
        "TopicRecord",
        0,
        (
            Field("Name", "string", default=""),
            Field("TopicId", "uuid"),
        ),
    ),
    3: Layout(
        "PartitionRecord",
        2,
        (
            Field("PartitionId", "int32", default=-1),
            Field("TopicId", "uuid"),
            Field("Replicas", "[]int32", default=()),
            Field("Isr", "[]int32", default=()),
            Field("RemovingReplicas", "[]int32", default=()),
            Field("AddingReplicas", "[]int32", default=()),
            Field("Leader", "int32", default=-1),
            Field("LeaderRecoveryState", "int8", tag=0, default=0),
            Field("LeaderEpoch", "int32", default=-1),
            Field("PartitionEpoch", "int32", default=-1),
            Field("Directories", "[]uuid", first_version=1, default=()),
            Field("EligibleLeaderReplicas", "[]int32", first_version=2, nullable_from=2, tag=1),
            Field("LastKnownElr", "[]int32", first_version=2, nullable_from=2, tag=2),
        ),
    ),
    4: Layout(
        "ConfigRecord",
        0,
        (
            Field("ResourceType", "int8", default=0),
            Field("ResourceName", "string", default=""),
            Field("Name", "string", default=""),
            Field("Value", "string", nullable_from=0, default=""),
        ),
    ),
    5: Layout(
        "PartitionChangeRecord",
        2,
        (
            Field("PartitionId", "int32", default=-1),
            Field("TopicId", "uuid"),
            Field("Isr", "[]int32", nullable_from=0, tag=0),
            Field("Leader", "int32", tag=1, default=-2),
            Field("Replicas", "[]int32", nullable_from=0, tag=2),
            Field("RemovingReplicas", "[]int32", nullable_from=0, tag=3),
            Field("AddingReplicas", "[]int32", nullable_from=0, tag=4),
            Field("LeaderRecoveryState", "int8", tag=5, default=-1),
            Field("Directories", "[]uuid", first_version=1, nullable_from=1, tag=8),
            Field("EligibleLeaderReplicas", "[]int32", first_version=2, nullable_from=2, tag=6),
            Field("LastKnownElr", "[]int32", first_version=2, nullable_from=2, tag=7),
        ),
    ),
    9: Layout("RemoveTopicRecord", 0, (Field("TopicId", "uuid"),)),
    10: Layout(
        "DelegationTokenRecord",
        0,
        (
            Field("Owner", "string", default=""),
            Field("Requester", "string", default=""),
            Field("Renewers", "[]string", default=()),
            Field("IssueTimestamp", "int64", default=0),
            Field("MaxTimestamp", "int64", default=0),
            Field("ExpirationTimestamp", "int64", default=0),
            Field("TokenId", "string", default=""),
        ),
    ),
    11: Layout(
        "UserScramCredentialRecord",
        0,
        (
            Field("Name", "string", default=""),
            Field("Mechanism", "int8", default=0),
            Field("Salt", "bytes"),
            Field("StoredKey", "bytes"),
            Field("ServerKey", "bytes"),
            Field("Iterations", "int32", default=0),
        ),
    ),
    12: Layout(
        "FeatureLevelRecord",
        0,
        (
            Field("Name", "string", default=""),
            Field("FeatureLevel", "int16", default=0),
        ),
    ),
    14: Layout(
        "ClientQuotaRecord",
        0,
        (
            Field(
                "Entity",
                "[]EntityData",
                default=(),
                fields=(
                    Field("EntityType", "string", default=""),
                    Field("EntityName", "string", nullable_from=0, default=""),
                ),
            ),
            Field("Key", "string", default=""),
            Field("Value", "float64"),
            Field("Remove", "bool", default=False),
        ),
    ),
    15: Layout(
        "ProducerIdsRecord",
        0,
        (
            Field("BrokerId", "int32", default=0),
            Field("BrokerEpoch", "int64", default=-1),
            Field("NextProducerId", "int64", default=0),
        ),
    ),
    17: Layout(
        "BrokerRegistrationChangeRecord",
        3,
        (
            Field("BrokerId", "int32", default=0),
            Field("BrokerEpoch", "int64", default=0),
            Field("Fenced", "int8", tag=0, default=0),
            Field("InControlledShutdown", "int8", first_version=1, tag=1, default=0),
            Field("LogDirs", "[]uuid", first_version=2, tag=2, default=()),
            Field("CordonedLogDirs", "[]uuid", first_version=3, nullable_from=3, tag=3),
        ),
    ),
    18: Layout(
        "AccessControlEntryRecord",
        0,
        (
            Field("Id", "uuid"),
            Field("ResourceType", "int8", default=0),
            Field("ResourceName", "string", default=""),
            Field("PatternType", "int8", default=0),
            Field("Principal", "string", default=""),
            Field("Host", "string", default=""),
            Field("Operation", "int8", default=0),
            Field("PermissionType", "int8", default=0),
        ),
    ),
    19: Layout("RemoveAccessControlEntryRecord", 0, (Field("Id", "uuid"),)),
    22: Layout(
        "RemoveUserScramCredentialRecord",
        0,
        (
            Field("Name", "string", default=""),
            Field("Mechanism", "int8", default=0),
        ),
    ),
    23: Layout("BeginTransactionRecord", 0, (Field("Name", "string", nullable_from=0, tag=0),)),
    24: Layout("EndTransactionRecord", 0, ()),
    25: Layout("AbortTransactionRecord", 0, (Field("Reason", "string", nullable_from=0, tag=0),)),
    26: Layout("RemoveDelegationTokenRecord", 0, (Field("TokenId", "string", default=""),)),
}
