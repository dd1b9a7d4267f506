"""Blocks of producer ids of a cluster: any broker takes one by compare-and-set of the node's version.

Not by the controller, which may be away when a producer begins. A write whose answer was lost may
have happened: then that block is nobody's, and the next one is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.metadata import znodes
from broker.metadata.requests import ProducerIds
from broker.metadata.store import Create, Done, Failed, MetadataStore, Node, Outcome, SetData
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId

BLOCK_SIZE: Final = 1000
#: Others take blocks at the same time.
MAX_ATTEMPTS: Final = 20


class ProducerIdBlocks:
    def __init__(self, store: MetadataStore, broker_id: BrokerId) -> None:
        self._store = store
        self._broker_id = broker_id

    def allocate(self, done: Callable[[ProducerIds], None]) -> None:
        self._try(done, MAX_ATTEMPTS)

    def _try(self, done: Callable[[ProducerIds], None], left: int) -> None:
        if not left:
            done(_failure("Other brokers take producer ids all the time."))
            return

        def found(node: Node | Failed | None) -> None:
            if isinstance(node, Failed):
                done(_failure(node.why))
                return
            first = 0 if node is None else znodes.decode_producer_ids(node.data).last + 1
            block = znodes.ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            data = znodes.encode_producer_ids(block)

            def written(outcome: Outcome) -> None:
                if isinstance(outcome, Done):
                    done(ProducerIds(first, BLOCK_SIZE))
                else:
                    self._try(done, left - 1)

            path = znodes.PRODUCER_IDS
            write = Create(path, data) if node is None else SetData(path, data, node.version)
            self._store.submit([write], written)

        self._store.get(znodes.PRODUCER_IDS, found)


def _failure(why: str) -> ProducerIds:
    return ProducerIds(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message=why)
