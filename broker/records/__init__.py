"""The record batch format (magic 2): bytes in, bytes out.

    header        the 61 bytes in front of every batch: peek, stamp, check sum
    varint        zigzag integers as records use them
    record        one record: ``Record`` and its encoding
    batch         the records of one batch, decompressed and decoded
    builder       a batch from records
    compression   the five codecs, every output bounded
    control       transaction markers
    produce_rules what a topic's configuration asks of produced batches
    validation    what a leader checks before it appends a client's batch
    refusal       why it refuses one

Pure computation: no files, no sockets, no clock (``now_ms`` is an argument). Everything here may
run in a thread. Bytes that are not a batch raise ``MalformedBatch`` (decoders) or ``InvalidBatch``
(produce validation), and nothing else.
"""
