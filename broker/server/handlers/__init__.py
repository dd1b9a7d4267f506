"""The one table from API key to handler.

``HOT_HANDLERS`` take ``(broker, connection, header, frame)`` and return finished bytes, or None
when the answer comes later; ``HOT_DECODED`` are the halves of those whose large requests are decoded
in a thread. ``HANDLERS`` take ``(broker, context, request)`` and return a response
entity of the request's version, or a coroutine that does. A test holds both tables against
``protocol.api_versions.SERVED``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.protocol.api_versions import ApiKey
from broker.protocol.hot.fetch import decode_request as decode_fetch
from broker.protocol.hot.list_offsets import decode_request as decode_list_offsets
from broker.protocol.hot.metadata import decode_request as decode_metadata
from broker.protocol.hot.produce import decode_request as decode_produce
from broker.server.handlers import (
    api_versions,
    cluster,
    configs,
    consumer_groups,
    delete_records,
    features,
    fetch,
    find_coordinator,
    group_admin,
    group_membership,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    quorum,
    reassignment,
    sasl,
    topics,
    transactions,
)

HotHandler = Callable[..., Any]
Handler = Callable[..., Any]

HOT_HANDLERS: Final[dict[int, HotHandler]] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
}

#: The decoder, and the handler of what it gives: ``(broker, connection, header, request, frame)``.
HOT_DECODED: Final[dict[int, tuple[Callable[..., Any], HotHandler]]] = {
    ApiKey.PRODUCE: (decode_produce, produce.handle_decoded),
    ApiKey.FETCH: (decode_fetch, fetch.handle_decoded),
    ApiKey.LIST_OFFSETS: (decode_list_offsets, list_offsets.handle_decoded),
    ApiKey.METADATA: (decode_metadata, metadata.handle_decoded),
}

HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.OFFSET_COMMIT: offsets.handle_commit,
    ApiKey.OFFSET_FETCH: offsets.handle_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator.handle,
    ApiKey.JOIN_GROUP: group_membership.handle_join,
    ApiKey.HEARTBEAT: group_membership.handle_heartbeat,
    ApiKey.LEAVE_GROUP: group_membership.handle_leave,
    ApiKey.SYNC_GROUP: group_membership.handle_sync,
    ApiKey.DESCRIBE_GROUPS: group_admin.handle_describe,
    ApiKey.LIST_GROUPS: group_admin.handle_list,
    ApiKey.SASL_HANDSHAKE: sasl.handle_handshake,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: topics.handle_create,
    ApiKey.DELETE_TOPICS: topics.handle_delete,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.INIT_PRODUCER_ID: producers.handle_init,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: leader_epochs.handle,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets,
    ApiKey.END_TXN: transactions.handle_end,
    ApiKey.WRITE_TXN_MARKERS: transactions.handle_write_markers,
    ApiKey.TXN_OFFSET_COMMIT: offsets.handle_commit_in_transaction,
    ApiKey.DESCRIBE_CONFIGS: configs.handle_describe,
    ApiKey.ALTER_CONFIGS: configs.handle_alter,
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: topics.handle_create_partitions,
    ApiKey.DELETE_GROUPS: group_admin.handle_delete,
    ApiKey.ELECT_LEADERS: reassignment.handle_elect,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.handle_incremental_alter,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignment.handle_alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignment.handle_list,
    ApiKey.OFFSET_DELETE: offsets.handle_delete,
    ApiKey.DESCRIBE_QUORUM: quorum.handle,
    ApiKey.UPDATE_FEATURES: features.handle_update,
    ApiKey.DESCRIBE_CLUSTER: cluster.handle_describe,
    ApiKey.DESCRIBE_PRODUCERS: producers.handle_describe,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.handle_describe,
    ApiKey.LIST_TRANSACTIONS: transactions.handle_list,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.handle_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.handle_describe,
    ApiKey.LIST_CONFIG_RESOURCES: configs.handle_list_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: cluster.handle_describe_topic_partitions,
}
