"""Bytes to send that lie in a file: what storage hands to the network without reading it."""

from __future__ import annotations

from typing import Protocol


class RegionFile(Protocol):
    """An open (or re-openable) log file.

    ``generation`` is raised by every physical truncation; whoever holds a region compares it
    before each read, because bytes past the cut may have been written anew.
    """

    generation: int

    def pin(self) -> int:
        """Descriptor of the file, kept open until ``unpin`` is called as often."""
        ...

    def unpin(self) -> None: ...

    def peek(self, length: int, position: int) -> bytes | None:
        """The bytes, or None when a page of them is not in memory (never blocks on the disk)."""
        ...

    def is_resident(self, position: int, length: int) -> bool:
        """Whether reading would be served from the page cache (never blocks on the disk)."""
        ...


class FileRegion:
    """``length`` bytes from ``position`` of ``file``, as of ``generation``."""

    __slots__ = ("file", "generation", "length", "position")

    def __init__(self, file: RegionFile, generation: int, position: int, length: int) -> None:
        self.file = file
        self.generation = generation
        self.position = position
        self.length = length

    @property
    def is_stale(self) -> bool:
        """True once the file was truncated after this region was made."""
        return self.file.generation != self.generation

    def __repr__(self) -> str:
        return f"FileRegion(position={self.position}, length={self.length}, generation={self.generation})"
