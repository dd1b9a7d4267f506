"""The Odradek broker: an append-only log that speaks the Kafka protocol.

Packages, lowest first (each may import only what stands above it in this list):

    compiled      the hot path as machine code, when it has been built
    clock         the only reader of time
    model         words everybody uses: TopicPartition, ErrorCode, FileRegion
    config        tables of Kafka's topic and broker settings, and their typed results
    records       the record batch format (version 2), bytes in and out
    storage       one directory of logs: segments, indexes, recovery; blocking file I/O only
    protocol      frames and typed messages; no storage, no sockets
    metadata      what exists: topics, partitions, configs; the store below it, the controller
    replication   what a leader does with a log: high watermark, delayed operations, fetch sessions
    adopt         a stopped Apache Kafka's log directories become ours
    security      who may do what
    server        the only package with sockets and an event loop; wires everything in ``app.py``

Three rules hold everywhere:

1. One owner. Only this process changes a log directory, and it holds the directory's ``.lock``.
2. One loop. All broker state changes on one event-loop thread. Threads run blocking calls
   (fsync, codecs, cold reads) and hand their results back to the loop as events.
3. Work per batch, never per record, on every hot path.
"""

VERSION = "0.1.0"
"""The one place: pyproject.toml takes it from here (reading installed metadata would take 30 ms)."""
