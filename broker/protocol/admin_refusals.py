"""Refusals of requests about topics, settings and where partitions lie: see ``error_responses``.

One function per API: (types of the version, error code, message, request) to the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.protocol.api_versions import ApiKey


def _create_topics(types: Any, code: int, message: str | None, request: Any) -> Any:
    topics = [
        types.CreatableTopicResult(
            name=topic.name, topic_id=None, error_code=code, error_message=message, configs=()
        )
        for topic in (request.topics if request else ())
    ]
    return types.CreateTopicsResponse(throttle_time=0, topics=topics)


def _delete_topics(types: Any, code: int, message: str | None, request: Any) -> Any:
    named: list[tuple[str | None, Any]] = []
    if request is not None:
        if hasattr(request, "topic_names"):  # to version 5
            named = [(name, None) for name in request.topic_names]
        else:
            named = [(topic.name, topic.topic_id) for topic in request.topics]
    results = [
        types.DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=code, error_message=message
        )
        for name, topic_id in named
    ]
    return types.DeleteTopicsResponse(throttle_time=0, responses=results)


def _delete_records(types: Any, code: int, _message: str | None, request: Any) -> Any:
    topics = [
        types.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                types.DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index, low_watermark=-1, error_code=code
                )
                for partition in topic.partitions
            ],
        )
        for topic in (request.topics if request else ())
    ]
    return types.DeleteRecordsResponse(throttle_time=0, topics=topics)


def _describe_configs(types: Any, code: int, message: str | None, request: Any) -> Any:
    results = [
        types.DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
        )
        for resource in (request.resources if request else ())
    ]
    return types.DescribeConfigsResponse(throttle_time=0, results=results)


def _alter_configs(types: Any, code: int, message: str | None, request: Any) -> Any:
    return types.AlterConfigsResponse(
        throttle_time=0, responses=_altered_resources(types, code, message, request)
    )


def _incremental_alter_configs(types: Any, code: int, message: str | None, request: Any) -> Any:
    return types.IncrementalAlterConfigsResponse(
        throttle_time=0, responses=_altered_resources(types, code, message, request)
    )


def _altered_resources(types: Any, code: int, message: str | None, request: Any) -> list[Any]:
    return [
        types.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in (request.resources if request else ())
    ]


def _describe_log_dirs(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.DescribeLogDirsResponse(throttle_time=0, error_code=code, results=())


def _create_partitions(types: Any, code: int, message: str | None, request: Any) -> Any:
    results = [
        types.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
        for topic in (request.topics if request else ())
    ]
    return types.CreatePartitionsResponse(throttle_time=0, results=results)


def _describe_cluster(types: Any, code: int, message: str | None, _request: Any) -> Any:
    return types.DescribeClusterResponse(
        throttle_time=0, error_code=code, error_message=message, cluster_id="", brokers=()
    )


def _list_config_resources(types: Any, code: int, _message: str | None, _request: Any) -> Any:
    return types.ListConfigResourcesResponse(throttle_time=0, error_code=code, config_resources=())


def _describe_topic_partitions(types: Any, code: int, _message: str | None, request: Any) -> Any:
    topics = [
        types.DescribeTopicPartitionsResponseTopic(
            error_code=code, name=topic.name, topic_id=None, partitions=()
        )
        for topic in (request.topics if request else ())
    ]
    return types.DescribeTopicPartitionsResponse(throttle_time=0, topics=topics)


def _elect_leaders(types: Any, code: int, message: str | None, request: Any) -> Any:
    results = [
        types.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                types.PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in ((request.topic_partitions if request else None) or ())
    ]
    return types.ElectLeadersResponse(
        throttle_time=0, error_code=code, replica_election_results=results
    )


def _alter_partition_reassignments(types: Any, code: int, message: str | None, request: Any) -> Any:
    responses = [
        types.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                types.ReassignablePartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=code,
                    error_message=message,
                )
                for partition in topic.partitions
            ],
        )
        for topic in (request.topics if request else ())
    ]
    return types.AlterPartitionReassignmentsResponse(
        throttle_time=0, error_code=code, error_message=message, responses=responses
    )


def _update_features(types: Any, code: int, message: str | None, _request: Any) -> Any:
    results = {"results": ()} if hasattr(types, "UpdatableFeatureResult") else {}
    return types.UpdateFeaturesResponse(
        throttle_time=0, error_code=code, error_message=message, **results
    )


def _list_partition_reassignments(types: Any, code: int, message: str | None, request: Any) -> Any:
    topics = [
        types.OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                types.OngoingPartitionReassignment(
                    partition_index=index, replicas=(), adding_replicas=(), removing_replicas=()
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in ((request.topics if request else None) or ())
    ]
    return types.ListPartitionReassignmentsResponse(
        throttle_time=0, error_code=code, error_message=message, topics=topics
    )


def _describe_quorum(types: Any, code: int, message: str | None, _request: Any) -> Any:
    return types.DescribeQuorumResponse(error_code=code, error_message=message, topics=(), nodes=())


ADMIN_ANSWERS: dict[int, Callable[[Any, int, str | None, Any], Any]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.LIST_CONFIG_RESOURCES: _list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
}
