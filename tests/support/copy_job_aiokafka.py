"""``copy_job`` by aiokafka, which speaks the classic transaction protocol.

Whatever goes wrong ends the process: the next one takes over under the same transactional id.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

BATCH = 20


async def copy(bootstrap: str, group: str, transactional_id: str, source: str, target: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
    )
    # First: it ends what the last job left open, so that the offsets below are settled.
    await producer.start()
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6000,
    )
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        if not found:
            continue
        async with producer.transaction():
            for partition, records in found.items():
                for record in records:
                    await producer.send(
                        target, b"copy of " + record.value, partition=partition.partition
                    )
            ends = {partition: records[-1].offset + 1 for partition, records in found.items()}
            await producer.send_offsets_to_transaction(ends, group)
        print(sum(map(len, found.values())), flush=True)


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:]))
