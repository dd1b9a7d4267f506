"""What a leader says of a batch that waits for its replicas. An enumeration of its own: they are not compiled."""

from enum import Enum


class Acknowledgement(Enum):
    """What became of a batch that was appended with acks=all."""

    WAITING = "waiting"
    COMMITTED = "committed"
    #: It is on the whole ISR, which has shrunk below ``min.insync.replicas`` meanwhile.
    TOO_FEW_REPLICAS = "too few replicas"
