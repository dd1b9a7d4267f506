"""Compaction of a simulated broker's log: the real round and the real swap, in one go, and perhaps the broker's death amid
it (``tests/broker/storage`` has them step by step)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from broker.storage.cleaning.job import CleanedGroup
from broker.storage.cleaning.plan import Cleanable, CleanerLimits, cleanable, job_for
from broker.storage.cleaning.throttle import Throttle
from broker.storage.cold import ColdRead
from broker.storage.segment_swap import SegmentSwap, SwapRefused
from tests.support.faulty_filesystem import Crash

if TYPE_CHECKING:
    from broker.storage.log import Log
    from tests.simulation.transactions.coordination import TransactingProcess

#: Calls of the file system in a round are some dozens.
LATEST_DEATH: Final = 120
_LIMITS: Final = CleanerLimits(1 << 20, 0.9, 1 << 16, 1e18)


class _Unthrottled(Throttle):
    def __init__(self) -> None:
        """Takes no time."""

    def take(self, count: int) -> None:
        pass


def clean_log(process: TransactingProcess, log: Log, dies: bool, end_offset: int) -> bool:
    """One round, up to there at most. False: the process died amid it."""
    what = _cleanable(process, log, end_offset)
    if not what.dirty_bytes:
        return True
    fs = process.fs
    if dies:
        fs.fail_at(process.world.rng.randrange(1, LATEST_DEATH))
    try:
        _run(process, log, what)
    except Crash:
        return False
    finally:
        fs.fail_at(-1)
    return True


def _cleanable(process: TransactingProcess, log: Log, end_offset: int) -> Cleanable:
    while isinstance(what := cleanable(log, process.clock.wall_ms()), ColdRead):
        what.pull()
    kept = [
        segment
        for slot, segment in enumerate(what.segments)
        if log.segments.end_of(slot, log.log_end_offset) <= end_offset
    ]
    if len(kept) == len(what.segments):
        return what
    if not kept:
        return what._replace(segments=[], dirty_bytes=0)
    end = what.segments[len(kept)].base_offset
    first_dirty = min(what.first_dirty_offset, end)
    dirty_bytes = sum(each.size for each in kept) if end > first_dirty else 0
    return what._replace(
        segments=kept, first_dirty_offset=first_dirty, end_offset=end, dirty_bytes=dirty_bytes
    )


def _run(process: TransactingProcess, log: Log, what: Cleanable) -> None:
    logs = process.logs
    for work in logs.checkpoint_work():
        work.run()
    producers = list(log.producers.entries.values())
    job = job_for(log, what, producers, _LIMITS, process.clock.wall_ms())
    segments = {segment.base_offset: segment for segment in what.segments}

    def put_in_place(group: CleanedGroup) -> bool:
        for step in SegmentSwap(log, [segments[at] for at in group.old], group).steps():
            if step is not None:
                step.run()
        return True

    with contextlib.suppress(SwapRefused):
        result = process.types.clean(process.fs, job, put_in_place, _Unthrottled())
        log.cleaned_offset = min(result.end_offset, log.log_end_offset)
        logs.cleaner_work(log).run()
        process.cluster.cleaned_records += result.records_before - result.records_after
