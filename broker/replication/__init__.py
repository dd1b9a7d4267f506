"""What a leader does with a log.

``Partition`` decides how far consumers may read (high watermark) and when a produce request is
acknowledged; ``ReplicaManager`` holds all of them; ``delayed`` holds what waits (produce for its
acknowledgement, fetch for more bytes); ``fetch_session`` remembers what incremental fetches asked.

Machines of a cluster, not wired yet (docs/replication.md): ``Replica`` is one partition here in its
role, ``LeaderMachine`` or ``FollowerMachine``; ``Isr`` and ``Lease`` are parts of a leader.

Everything here runs on the broker's loop thread, owns no socket and no timer of its own: the
server hands in a ``Scheduler``.
"""
