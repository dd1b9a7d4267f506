"""How a metadata record is laid out: the types that the generated table is made of."""

from __future__ import annotations

from typing import NamedTuple

#: A field without an upper bound.
ANY_VERSION = 32767


class Field(NamedTuple):
    """One field. ``kind`` is Kafka's name of the type; ``[]`` in front makes it an array, and a
    kind that is no primitive has ``fields`` of its own."""

    name: str
    kind: str
    first_version: int = 0
    last_version: int = ANY_VERSION
    #: From this version on it may be null; -1 if never.
    nullable_from: int = -1
    #: Of a tagged field; -1 for one that is always there.
    tag: int = -1
    default: object = None
    fields: tuple[Field, ...] = ()


class Layout(NamedTuple):
    """One kind of record; every version is flexible (KIP-482)."""

    name: str
    last_version: int
    fields: tuple[Field, ...]
