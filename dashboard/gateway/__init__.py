"""The only importer of a Kafka client library: everything asked of a cluster goes through here.

Free of Django, so that the command line starts fast; speaks the Kafka protocol alone, so it
works against any Kafka cluster. Blocking: the command line calls it directly, the dashboard from
threads. Every call has a timeout. Failures of one item are ``KafkaFailure`` values in the
answer; a failure of the whole call is raised as one.
"""

from dashboard.gateway.cluster_gateway import Gateway, OffsetAt, library_version
from dashboard.gateway.group_reader import GroupReader
from dashboard.gateway.record_reader import ConsumerReader, RecordReader
from dashboard.gateway.record_writer import RecordWriter

__all__ = [
    "ConsumerReader",
    "Gateway",
    "GroupReader",
    "OffsetAt",
    "RecordReader",
    "RecordWriter",
    "library_version",
]
