"""Features of KIP-584: what this process can, by levels.

Which level counts in a cluster is finalised in its metadata (``metadata/features.py``): never one that a
registered broker cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"


class LevelRange(NamedTuple):
    """Both ends are in it."""

    min_level: int
    max_level: int

    def has(self, level: int) -> bool:
        return self.min_level <= level <= self.max_level

    def __str__(self) -> str:
        low, high = self
        return str(low) if low == high else f"{low}-{high}"


class SupportedFeature(NamedTuple):
    """A feature that a broker knows, as it tells in its registration."""

    name: str
    levels: LevelRange


#: A client looks at the finalised level before it uses what needs it: Produce 12, EndTxn 5 and
#: TxnOffsetCommit 5 mean something else from ``transaction.version`` 2 on.
SUPPORTED: Final = (
    SupportedFeature(GROUP_VERSION, LevelRange(0, 1)),
    SupportedFeature(TRANSACTION_VERSION, LevelRange(0, 2)),
)
#: Features of Kafka's own that an adopted node's metadata may name: they finalise nothing here.
FOREIGN: Final = frozenset(
    {
        "metadata.version",
        "kraft.version",
        "eligible.leader.replicas.version",
        "share.version",
        "streams.version",
    }
)


def why_unsupported(finalised: Mapping[str, int]) -> str | None:
    """Why this process may not take part in a cluster where these levels count."""
    known = dict(SUPPORTED)
    for name, level in sorted(finalised.items()):
        levels = known.get(name, LevelRange(0, 0))
        if not levels.has(level):
            return f"{name} is finalised at level {level}, and this version supports {levels}"
    return None
