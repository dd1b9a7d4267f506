"""The gateway against real brokers: ours and Apache Kafka."""

from tests.support.fixtures import *  # noqa: F403
