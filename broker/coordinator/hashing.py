"""Java's hash of a string, which decides what coordinator a key has and how some ties end."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MIN_VALUE = 1 << 31


def java_hash(text: str) -> int:
    """``String.hashCode()`` as an unsigned number: over UTF-16 units, like Java's."""
    result = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            result = (31 * result + unit) & _MASK
        return result
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        result = (31 * result + (data[index] << 8 | data[index + 1])) & _MASK
    return result


def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that holds ``key``: by the absolute value of its hash.

    The one number without an absolute value in Java stands for 0.
    """
    number = java_hash(key)
    if number > _MIN_VALUE:
        number = (1 << 32) - number
    elif number == _MIN_VALUE:
        number = 0
    return number % partition_count


def hash_map_order(texts: list[str]) -> list[str]:
    """In the order in which a small Java ``HashMap`` with these keys is walked."""

    def bucket(text: str) -> int:
        number = java_hash(text)
        return (number ^ (number >> 16)) & 15

    return sorted(texts, key=bucket)
