"""Which topic names are legal, and which cannot live side by side.

``.`` and ``_`` collide: metric names turn both into the same character, so ``a.b`` and ``a_b`` may
not both exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 249

#: The topic of Kafka's own metadata log, which has no meaning here and may not be created.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    """The reason as clients see it, or None for a legal name."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than "
            f"the max allowed length {MAX_NAME_LENGTH}"
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str | None:
    """Names with an equal key collide; None for names that collide with nothing."""
    return name.replace(".", "_") if "." in name or "_" in name else None


class CollisionIndex:
    """Names that exist, by their collision key."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        key = collision_key(name)
        if key is not None:
            self._names[key] = (*self._names.get(key, ()), name)

    def remove(self, name: str) -> None:
        key = collision_key(name)
        if key is not None:
            left = tuple(other for other in self._names.pop(key) if other != name)
            if left:
                self._names[key] = left

    def colliding(self, name: str) -> str | None:
        """An existing name that ``name`` collides with (itself included)."""
        key = collision_key(name)
        return None if key is None else min(self._names.get(key, ()), default=None)
