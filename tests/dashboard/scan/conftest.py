"""Brokers for the child that reads: Apache Kafka comes in the long run."""

from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import broker_in_the_long_run

broker = broker_in_the_long_run()
