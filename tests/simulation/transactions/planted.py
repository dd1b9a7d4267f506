"""Faults planted into what transactions are made of, as ``tests/simulation/planted.py`` does for replication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from broker.coordinator.group.offsets import OffsetTable
from broker.coordinator.group.requests import CommitRequest
from broker.coordinator.group.shard import GroupShard
from broker.coordinator.result import CoordinatorResult, nothing
from broker.coordinator.runtime import Hosted
from broker.coordinator.transaction.shard import TransactionShard
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.records.header import BatchHeader
from broker.replication.partition import Partition
from broker.server.coordination import Coordination
from broker.server.coordinator_log import CoordinatorLog
from broker.server.transactions import Transactions
from broker.server.verification import Verifications
from broker.storage.cleaning.cleaner import clean
from broker.storage.cleaning.job import RoundResult
from broker.storage.cleaning.transactions import CleanedTransactions
from broker.storage.log import Log
from tests.simulation.transactions.coordination import TransactionTypes

#: As if nobody had looked whether it is at rest.
OPEN_TOO_LONG_MS = 500


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


class FollowsUpAtOnce(Transactions):
    """What the last leader had appended last counts before it is committed."""

    async def _on_loaded(self, hosted: Hosted[TransactionShard]) -> None:
        await self._for_each(hosted, hosted.shard.entries, hosted.shard.on_loaded)


class UnguardedVerifications(Verifications):
    def on_marker(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """The coordinator's word holds whatever came in between."""


class VerifiesUnguarded(Transactions):
    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self.verifications = UnguardedVerifications()


def _with_shard(host: type[Any], change: Callable[[Any], None]) -> type[Any]:
    """The coordinator's host, each of whose shards is changed when it is made."""

    class Changed(host):  # type: ignore[misc]
        def __init__(self, broker: Any) -> None:
            super().__init__(broker)
            new = self.runtime._new_shard

            def new_shard(timers: Any, log: Any) -> Any:
                shard = new(timers, log)
                change(shard)
                return shard

            self.runtime._new_shard = new_shard

    return Changed


class ForgetsOpenTransactions(TransactionShard):
    def expire(self, transactional_id: str) -> CoordinatorResult[None]:
        entry = self.entries.get(transactional_id)
        if entry is None or entry.is_pending:
            return nothing()
        if self._clock.wall_ms() - entry.current.started_ms < OPEN_TOO_LONG_MS:
            return super().expire(transactional_id)
        return self._forget([transactional_id])


class EagerOffsets(OffsetTable):
    """In effect before the transaction is committed."""

    __slots__ = ()

    def replay_pending_commit(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: Any
    ) -> None:
        self.replay_commit(group_id, topic, partition, committed)


class TellsUnsettledOffsets(OffsetTable):
    __slots__ = ()

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return False


class LosesOffsetsOfTransactions(OffsetTable):
    """Every marker is taken for one that aborts."""

    __slots__ = ()

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        super().replay_marker(producer_id, False)


class TakesOffsetsOfAnyGeneration(GroupShard):
    def _check_transactional_commit(self, request: CommitRequest) -> None:
        pass


def _of_class(name: str, planted: type[Any]) -> Callable[[Any], None]:
    def change(shard: Any) -> None:
        (getattr(shard, name) if name else shard).__class__ = planted

    return change


def _keeps_aborted(*arguments: Any) -> RoundResult:
    """An aborted record takes the place of what its key had before."""
    with mock.patch.object(CleanedTransactions, "is_aborted", return_value=False):
        return clean(*arguments)


def _groups(name: str, planted: type[Any]) -> type[TransactionTypes]:
    return _types(coordination=_with_shard(Coordination, _of_class(name, planted)))


PLANTED: dict[str, type[TransactionTypes]] = {
    "coordinator acts before its log is committed": _types(transactions=ActsBeforeCommit),
    "coordinator epoch of markers unchecked": _types(log_fault=staticmethod(_take_any_coordinator)),
    "new coordinator follows up before its log is committed": _types(transactions=FollowsUpAtOnce),
    "verification without its guard": _types(transactions=VerifiesUnguarded),
    "transactional id forgotten amid its transaction": _types(
        transactions=_with_shard(Transactions, _of_class("", ForgetsOpenTransactions))
    ),
    "offsets of a transaction at once in effect": _groups("offsets", EagerOffsets),
    "unsettled offsets told": _groups("offsets", TellsUnsettledOffsets),
    "offsets of committed transactions dropped": _groups("offsets", LosesOffsetsOfTransactions),
    "offsets of any generation taken": _groups("", TakesOffsetsOfAnyGeneration),
    "aborted records kept by compaction": _types(clean=staticmethod(_keeps_aborted)),
}
