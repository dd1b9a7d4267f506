"""A compaction that was interrupted is brought to its end, as Kafka does when it loads a log.

A ``.swap`` segment is whole and replaces what lies in its range of offsets; one at or above a
``.cleaned`` file belongs to a step that was not finished, and goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.storage.layout import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    parse_segment_file_name,
)


def finished_swap(
    names: Iterable[str], end_offset: Callable[[str, int], int]
) -> tuple[dict[str, str], set[str]]:
    """(final name to ``.swap`` name, names that the swaps replace or that were never finished).

    ``end_offset`` gives, by name and base offset, the offset behind a ``.log.swap`` file's last
    batch. Carried out in this order, removals first, it may be interrupted and asked for again.
    """
    names = list(names)
    swaps: dict[str, int] = {}
    cleaned: list[int] = []
    for name in names:
        parsed = parse_segment_file_name(name)
        if parsed is None:
            continue
        if name.endswith(SWAP_SUFFIX):
            swaps[name] = parsed[0]
        elif name.endswith(CLEANED_SUFFIX):
            cleaned.append(parsed[0])
    if not swaps:
        return {}, set()
    unfinished = min(cleaned, default=1 << 63)
    drop = {name for name, base_offset in swaps.items() if base_offset >= unfinished}
    finish = {name.removesuffix(SWAP_SUFFIX): name for name in swaps if name not in drop}
    ranges = [
        (swaps[swap], end_offset(swap, swaps[swap]))
        for name, swap in finish.items()
        if name.endswith(LOG_SUFFIX)
    ]
    if ranges:
        start, end = min(first for first, _ in ranges), max(last for _, last in ranges)
        for name in names:
            parsed = parse_segment_file_name(name)
            if parsed is not None and parsed[1] in SEGMENT_SUFFIXES and start <= parsed[0] < end:
                drop.add(name)
    return finish, drop
