"""What exists in the cluster: topics, partitions, configs, brokers, and who decided it.

    image        immutable ``ClusterImage``: what everybody reads
    changes      the steps from one image to the next
    store        port: a small versioned tree (the contract of ``local_store``, later ZooKeeper)
    local_store  that tree in the data directory: journal, snapshots, group commit
    files        the few file operations that the local store needs, as a port
    znodes       paths and JSON values of the tree, in Kafka's documented ZooKeeper layout
    placement    which brokers hold the replicas of a new partition
    controller   requests to verdicts, store writes and changes; the only writer of the tree

Nothing here waits or knows an event loop: blocking work goes to an injected ``run_blocking``,
results come back by callback on the loop's thread.
"""
