"""One broker's part in a cluster through ZooKeeper; nothing of it is imported without one.

settings      where ZooKeeper is, from the broker's settings
joining       the cluster's id and secret, from the store; whose metadata lies in a data directory
membership    registration, candidacy, terms of office; the newest image, however it comes
private_wire  frames of the APIs between brokers, and the proof of the cluster's secret
private_apis  what a broker answers to others
peer          a connection to another broker
replication   replica_fetcher (one a leader) and isr_changes (what leaders propose)
refusals      what presence sees: processes that are dead, told to the controller and fenced
imports       what ``odradek import`` asks of partitions that another broker leads
preferred_leaders  the controller's timer
producer_ids  blocks of producer ids, by compare-and-set
"""

from typing import Final

#: Keys of the APIs between brokers; clients' are below.
PRIVATE_FROM: Final = 31_000
