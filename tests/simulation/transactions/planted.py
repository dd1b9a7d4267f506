"""Faults planted into what transactions are made of, as ``tests/simulation/planted.py`` does for replication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.records.header import BatchHeader
from broker.replication.partition import Partition
from broker.server.coordinator_log import CoordinatorLog
from broker.server.transactions import Transactions
from broker.storage.log import Log
from tests.simulation.transactions.coordination import TransactionTypes


def _types(**replaced: Any) -> type[TransactionTypes]:
    return type("Planted", (TransactionTypes,), replaced)


class HurriedLog(CoordinatorLog):
    def when_committed(self, done: Callable[[ErrorCode], None]) -> None:
        done(ErrorCode.NONE)


class ActsBeforeCommit(Transactions):
    """Markers follow from an outcome that may yet be lost."""

    def _log_of(self, partition: Partition) -> CoordinatorLog:
        log = super()._log_of(partition)
        log.__class__ = HurriedLog
        return log


class TakesAnyCoordinator(Log):
    __slots__ = ()

    def _check_marker(self, batch: memoryview | bytearray, header: BatchHeader) -> None:
        try:
            super()._check_marker(batch, header)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                raise


def _take_any_coordinator(log: Log) -> None:
    log.__class__ = TakesAnyCoordinator


PLANTED: dict[str, type[TransactionTypes]] = {
    "coordinator acts before its log is committed": _types(transactions=ActsBeforeCommit),
    "coordinator epoch of markers unchecked": _types(log_fault=staticmethod(_take_any_coordinator)),
}
