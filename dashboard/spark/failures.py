"""What to do about the failures that Spark is known for. Free of Django."""

from __future__ import annotations

import re
from typing import Final

_KNOWN: Final = (
    (r"Failed to find data source: kafka|KafkaSourceProvider|scala[./]\$less",
     "Spark's Kafka connector is missing or of another version: run `odradek spark prepare`, and "
     "set no spark.jars or SPARK_HOME of your own."),
    (r"OutOfMemoryError|GC overhead",
     "It needs more memory: set spark.driver.memory, choose a shorter range, or fewer groups."),
    (r"No space left on device|ENOSPC", "The disk is full: Spark keeps what it sorts beside the result."),
    (r"TimeoutException.*(topic|partition|metadata)|Timeout (of|expired).*ms|UnknownHostException|No resolvable bootstrap",
     "The brokers cannot be reached from Spark: the address that they advertise must be one that "
     "the Spark nodes can resolve and connect to."),
    (r"SaslAuthentication|SslAuthentication|TopicAuthorization|GroupAuthorization",
     "The cluster refuses Spark's login: the client_properties of this node are what it uses."),
    (r"CAST_INVALID_INPUT|NUMERIC_VALUE_OUT_OF_RANGE|ARITHMETIC_OVERFLOW",
     "A value does not have the type that the report expects: give the field another type in the schema."),
    (r"UNRESOLVED_COLUMN|FIELD_NOT_FOUND", "The report names a field that the records do not have."),
    (r"UnknownTopicOrPartition", "The topic was deleted while it was read, or a partition of it is not served."),
    (r"UnsupportedClassVersionError", "Spark needs Java 17 or newer: set JAVA_HOME to one."),
    (r"All masters are unresponsive|Connection refused", "The Spark master (spark_master) does not answer."),
)  # fmt: skip
_LOST_JAVA: Final = re.compile(
    r"Py4JNetworkError|Connection refused|Answer from Java side is empty|Connection reset|"
    r"ConnectionRefusedError|JAVA_GATEWAY_EXITED|gateway process exited",
    re.IGNORECASE,
)


def with_advice(text: str) -> str:
    """The failure, and what to do when it is a known one."""
    for pattern, advice in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            return f"{text}\n{advice}"
    return text


def is_lost_java(text: str, kind: str) -> bool:
    return bool(_LOST_JAVA.search(f"{kind}: {text}"))
