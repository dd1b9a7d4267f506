"""Logs on disk, in Kafka's own format: segments, indexes, checkpoints, recovery.

Blocking file I/O only. Page-cache work is called on the loop; whatever waits for the disk is
handed out as an object with ``run()`` (see ``work.py``) and called in a thread. Start reading at
``log.py``, then ``segment.py``; ``recovery.py`` says what a crash may leave behind.
"""
