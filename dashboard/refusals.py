"""What a cluster refused, in words for a page: which field it is about, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dashboard.cluster import KafkaFailure

_FIELDS = {
    "TOPIC_ALREADY_EXISTS": "name",
    "INVALID_TOPIC_EXCEPTION": "name",
    "INVALID_PARTITIONS": "partitions",
    "INVALID_REPLICATION_FACTOR": "replicas",
}
_WORDS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "There is no such topic or partition any more.",
    "POLICY_VIOLATION": "The topic's cleanup policy does not allow this.",
    "TOPIC_DELETION_DISABLED": "This cluster does not allow topics to be deleted.",
    "TOPIC_AUTHORIZATION_FAILED": "The dashboard's own Kafka user may not do this to the topic.",
    "CLUSTER_AUTHORIZATION_FAILED": "The dashboard's own Kafka user may not do this here.",
    "MSG_SIZE_TOO_LARGE": "The record is larger than this topic takes.",
    "MESSAGE_TOO_LARGE": "The record is larger than this topic takes.",
    "RECORD_LIST_TOO_LARGE": "The records together are larger than a segment of this topic.",
    "INVALID_RECORD": "The topic does not take this record.",
    "NOT_ENOUGH_REPLICAS": "Fewer replicas are in sync than the topic's min.insync.replicas.",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (
        "The record is written, but fewer replicas hold it than min.insync.replicas asks for."
    ),
    "KAFKA_STORAGE_ERROR": "The broker could not use its disk.",
    "OFFSET_OUT_OF_RANGE": "That offset is not in the log.",
    "REQUEST_TIMED_OUT": "The brokers did not do it in time; it may still happen.",
}
_HINTS = {
    "TOPIC_ALREADY_EXISTS": "Choose another name, or change the topic that is there.",
    "INVALID_TOPIC_EXCEPTION": (
        "A name has 1 to 249 letters, digits, dots, underscores or hyphens, is not . or .., and"
        " does not differ from another only by dots and underscores."
    ),
    "INVALID_PARTITIONS": "Partitions can be added, never taken away: ask for a higher total.",
    "INVALID_REPLICATION_FACTOR": "There cannot be more replicas than brokers that are up.",
    "INVALID_CONFIG": "The description of the setting says which values it takes.",
    "INVALID_REQUEST": "The broker does not take the request as it is: look at the values.",
    "POLICY_VIOLATION": (
        "A topic that is only compacted keeps the last record of every key: add delete to its"
        " cleanup.policy first, or delete records by key with tombstones."
    ),
    "TOPIC_DELETION_DISABLED": "The brokers run with delete.topic.enable=false.",
    "TOPIC_AUTHORIZATION_FAILED": "Give that user the right by an ACL.",
    "CLUSTER_AUTHORIZATION_FAILED": "Give that user the right by an ACL.",
    "MSG_SIZE_TOO_LARGE": "Raise max.message.bytes of the topic, or send less.",
    "MESSAGE_TOO_LARGE": "Raise max.message.bytes of the topic, or send less.",
    "INVALID_RECORD": "A compacted topic takes only records with a key.",
    "NOT_ENOUGH_REPLICAS": "The page Problems shows which replicas are behind.",
    "KAFKA_STORAGE_ERROR": "The disk may be full: the page Brokers shows what is free.",
    "UNSUPPORTED_VERSION": "This cluster does not offer it.",
}
_TRANSPORT_HINT = (
    "The cluster may be starting or overloaded: look at the page again before you repeat a change."
)


class Refusal(NamedTuple):
    field: str
    """The form's field that it is about, a setting's by its name; empty: none of them."""
    text: str
    hint: str


def refusal_of(failure: KafkaFailure, settings: Iterable[str] = ()) -> Refusal:
    """``settings`` are the names that the form asked about: a refused one is named in the message."""
    text = failure.message.strip()
    # A code without a message comes as its own words ("policy violation"), which say little.
    is_bare = text.lower().replace(" ", "_").rstrip(".") == failure.code.lower()
    if failure.is_transport:
        text = f"The cluster did not answer: {text}"
    elif (is_bare or len(text.split()) < 4) and failure.code in _WORDS:
        text = _WORDS[failure.code]
    elif is_bare:
        text = text.capitalize()
    field = _FIELDS.get(failure.code, "")
    if failure.code == "INVALID_CONFIG":
        named = [name for name in settings if name in failure.message]
        field = max(named, key=len, default="")
    hint = _TRANSPORT_HINT if failure.is_transport else _HINTS.get(failure.code, "")
    return Refusal(field, text if text.endswith(".") else f"{text}.", hint)
