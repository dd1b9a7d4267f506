"""Compaction: of each key only the latest record stays, as Kafka's log cleaner does it.

``plan`` says what of a log may be cleaned and whether it should; ``job`` is what a child process is
told. In the child (``__main__``) ``cleaner`` runs one round: it notes the keys of the dirty part
(``key_table``, ``record_scan``), filters batch after batch (``batch_filter``, ``transactions``) and
writes ``.cleaned`` segments. The broker puts them in place (``broker/storage/segment_swap.py``).
"""
