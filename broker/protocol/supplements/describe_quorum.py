"""DescribeQuorum's state of a replica with a tagged field of ours (decision 15); others skip it."""

from dataclasses import dataclass, field
from typing import Any, Final

import kio.schema.describe_quorum.v1.response as v1
import kio.schema.describe_quorum.v2.response as v2
from kio.static.primitive import i64

#: Far from the numbers that Apache Kafka gives, which begin with 0.
OBSERVED_SINCE_TAG: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStateV1(v1.ReplicaState):
    observed_since_timestamp: i64 = field(
        metadata={"kafka_type": "int64", "tag": OBSERVED_SINCE_TAG}, default=i64(-1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStateV2(v2.ReplicaState):
    observed_since_timestamp: i64 = field(
        metadata={"kafka_type": "int64", "tag": OBSERVED_SINCE_TAG}, default=i64(-1)
    )


#: Version 0 has no times.
REPLICA_STATES: Final[dict[int, type[Any]]] = {1: ReplicaStateV1, 2: ReplicaStateV2}
