"""Transactional producers, which are replaced and go on as zombies."""

from __future__ import annotations

import asyncio

from broker.model.internal_topics import TRANSACTION_STATE
from tests.simulation.transactions.asking import TransactionalClient
from tests.simulation.transactions.ledger import Transfer


class TransactionalProducer(TransactionalClient):
    """Some records to one data topic or several at a time."""

    async def _work(self) -> None:
        rng = self._story.world.rng
        transfers = 0
        while not self._owner.is_ending:
            transfers += 1
            await self._transfer(transfers)
            await asyncio.sleep(rng.randrange(1, 120) / 1000)
            if rng.random() < 0.02 and not self._story.is_healed:
                await self._story.idle()

    async def _transfer(self, number: int) -> None:
        rng, topics = self._story.world.rng, self._story.data_topics
        if rng.random() > 0.8:
            topics = (rng.choice(topics),)
        transfer = self._new_transfer(number, {topic: rng.choice((1, 1, 2, 3)) for topic in topics})
        if self.is_classic:
            await self._until_known(TRANSACTION_STATE, self._add(topics), "add")
        for topic in sorted(transfer.counts, key=lambda _: rng.random()):
            for part in range(transfer.counts[topic]):
                if self.is_classic and not part and rng.random() < 0.08:
                    await self._give_up(transfer, topic, part)
                    return
                await self._write(transfer, topic, [transfer.value(part)])
            if rng.random() < 0.1 and not self._story.is_healed:
                await asyncio.sleep(rng.randrange(20, 2500) / 1000)
        await self._finish(transfer, rng.random() < 0.8)

    async def _give_up(self, transfer: Transfer, topic: str, part: int) -> None:
        """As a client whose time for a batch has run out: whatever becomes of it, the transaction is aborted. Where to
        go on counting is unknown then, so that it starts anew. It is the partition's first batch, for which its
        leader asks the coordinator."""
        story = self._story
        story.faults.on_impatience()
        leader_id = self._metadata[topic].refresh()
        serve = self._produce(topic, self._batch(topic, [transfer.value(part)]))
        story.client_request(leader_id, serve, lambda _: None, 1500)
        await asyncio.sleep(story.world.rng.randrange(1, 30) / 1000)
        await self._finish(transfer, False)
        await asyncio.sleep(story.world.rng.randrange(1, 400) / 1000)
        await self._init()
