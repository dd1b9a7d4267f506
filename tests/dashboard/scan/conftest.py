"""Brokers for the child that reads: Apache Kafka comes in the long run."""

from tests.support.fixtures import *  # noqa: F403
