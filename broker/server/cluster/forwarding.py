"""Requests that only the controller can do, asked of another broker: passed on as they came.

As Kafka's brokers do. The controller sees a connection that has proved the cluster's secret, and never
passes on what came over one: who is asked by mistake answers NOT_CONTROLLER.
"""

from __future__ import annotations

from contextlib import closing
from struct import Struct
from typing import TYPE_CHECKING, Final

from broker.protocol.api_versions import ApiKey
from broker.protocol.request import RequestHeader
from broker.server.cluster.peer import PeerError
from broker.server.connection import Connection, ResponseSlot

if TYPE_CHECKING:
    from broker.server.cluster.membership import Membership

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        # Or who has just begun one might be told that nothing is under way.
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
    }
)
_LENGTH: Final = Struct(">i")


def is_forwarded(membership: Membership, connection: Connection, api_key: int) -> bool:
    return (
        api_key in FORWARDED
        and not membership.is_in_office
        and (connection.proving is None or not connection.proving.is_proved)
    )


async def forward(
    membership: Membership, header: RequestHeader, frame: bytes, slot: ResponseSlot
) -> bool:
    """``frame`` without its length. Gives whether the controller answered."""
    try:
        with closing(await membership.connect_to_controller()) as peer:
            answer = await peer.relay(frame)
    except PeerError:
        return False
    correlation_id = _LENGTH.pack(header.correlation_id)
    slot.complete([_LENGTH.pack(len(answer)) + correlation_id + answer[_LENGTH.size :]])
    return True
