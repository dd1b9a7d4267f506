"""What exists in the cluster: topics, partitions, configs, brokers, and who decided it.

    image        immutable ``ClusterImage``: what everybody reads
    changes      the steps from one image to the next
    store        port: a small versioned tree (the contract of ``local_store``, later ZooKeeper)
    local_store  that tree in the data directory: journal, snapshots, group commit
    files        the few file operations that the local store needs, as a port
    znodes       paths and JSON values of the tree, in Kafka's documented ZooKeeper layout
    placement    which brokers hold the replicas of a new partition
    controller   requests to verdicts, store writes and changes; the only writer of the tree

Of a cluster of several brokers, not wired yet (docs/replication.md):

    registration   this broker's ephemeral node, and its broker epoch
    candidacy      who is controller; becoming it
    term           a term of office: controller, image feed, and the brokers that count
    fencing        registered brokers that do not, because their process is dead
    cluster_steps  in what order brokers part and are admitted; with ``leaders``, ``isr_proposals``
    image_feed     how images reach the brokers
    watching       a look at the store, repeated after each change

Nothing here waits or knows an event loop: blocking work goes to an injected ``run_blocking``,
results come back by callback on the loop's thread.
"""
