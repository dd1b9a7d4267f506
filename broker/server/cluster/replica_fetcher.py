"""Fetches from one leader for all partitions that this broker follows it in.

One connection, one incremental session (KIP-227), one request at a time. A request counts for every
partition in the session, named or not: so each of them has a fetch under way by its machine, or is
forgotten in that very request (it waits for the disk, or was backed off). A fetch stays under way until an answer
names its partition, and only what is *due* (it is new, was answered, has changed, or waits) is looked at
before a request: one with no news costs nothing, however many partitions there are. A request with partitions that
the leader does not know yet is answered at once, as the lease needs it; a poll that waits is broken off for
them. What fails for one partition is that partition's: it is backed off, later each time, and the others are
fetched on; it falls out of the ISR, if it is in it. Whatever else goes wrong ends the session: the next one begins anew, at
once after what can be expected of a connection, else when ``TaskGroup.keep`` lets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import DiskFullError, KafkaError, StorageError
from broker.model.ids import BrokerId, TopicId
from broker.protocol.errors import MalformedRequest
from broker.protocol.hot.replica_fetch import (
    FetchedPartition,
    WantedPartition,
    decode_answer,
    encode_request,
)
from broker.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from broker.replication.followed_partition import FollowedPartition
from broker.replication.replica import FetchClock
from broker.replication.replica_fetch import (
    NO_ANSWER,
    Accepted,
    Diverged,
    FetchAnswer,
    FetchRefused,
    FetchVerdict,
    ReplicaFetch,
)
from broker.replication.throttle import is_throttled
from broker.server.cluster.peer import ANSWER_SECONDS, Peer, PeerError
from broker.server.cluster.private_wire import CLIENT_ID
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)

Key = tuple[TopicId, int]
Fetches = dict[Key, tuple[FollowedPartition, ReplicaFetch]]

BACK_OFF_MS: Final = 50
#: Of a partition that fails again and again. Shorter than a lease, which its leader would lose before the ISR shrinks.
LAST_BACK_OFF_MS: Final = 1600
#: The long poll while some partitions wait for the disk.
SHORT_WAIT_MS: Final = 10
NEVER_MS: Final = 1 << 31
#: Once may be a leader that was being cut; whoever gets the same again and again says so, after 3 s.
DAMAGES_UNTOLD: Final = 6
#: Partitions that are added one after the other break a poll off once.
GATHER_SECONDS: Final = 0.01


class ReplicaFetcher:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership, leader_id: BrokerId) -> None:
        self._broker = broker
        self._membership = membership
        self._leader_id = leader_id
        self._partitions: dict[Key, FollowedPartition] = {}
        #: To be looked at before the next request.
        self._due: dict[Key, None] = {}
        self._backed_off: dict[Key, int] = {}
        #: How often in a row what came could not be taken, or the partition failed otherwise.
        self._failures: dict[Key, int] = {}
        self._task_name = f"fetch from broker {leader_id}"
        #: A partition came, or may be fetched on.
        self._is_woken = asyncio.Event()
        self._peer: Peer | None = None
        self._is_polling = False
        self._is_broken_off = False
        self._breaking_off: asyncio.TimerHandle | None = None
        self._was_told = False
        #: How soon some of those that ``next_fetches`` left out may be fetched.
        self.rest_ms = NEVER_MS

    def add(self, followed: FollowedPartition) -> None:
        key = _key_of(followed)
        self._forget(key)  # what became of an earlier leader epoch's
        self._partitions[key] = followed
        self.note_due(key)
        followed.on_changed = partial(self.note_due, key)
        followed.on_disk_caught_up = self._is_woken.set
        self._is_woken.set()
        if self._is_polling and self._breaking_off is None:
            loop = self._broker.loop
            self._breaking_off = loop.call_later(GATHER_SECONDS, self._break_off)

    def note_due(self, key: Key) -> None:
        self._due[key] = None

    def _break_off(self) -> None:
        self._breaking_off = None
        if self._is_polling and self._peer is not None:
            self._is_broken_off = True
            self._peer.close()  # the session is told

    async def run(self) -> None:
        """Raises what nobody expects; what is followed is kept, and may be fetched by another call."""
        while True:
            self._is_broken_off = False
            self._forget_closed()
            if not self._partitions:
                self._is_woken.clear()
                await self._is_woken.wait()
                continue
            try:
                with closing(await self._membership.connect_by_image(self._leader_id)) as peer:
                    self._peer = peer
                    await _Session(self._broker, self._membership, peer, self).go_on()
                self._was_told = False
            except (PeerError, MalformedRequest) as error:
                if not self._is_broken_off and not self._was_told:
                    self._was_told = True
                    logger.info("no fetch from broker %d: %s", self._leader_id, error)
            finally:
                self._peer = None
                self.end_poll()
                self.begin_anew()
            if not self._is_broken_off:
                await asyncio.sleep(BACK_OFF_MS / 1000)

    def begin_anew(self) -> None:
        """The next request is a session's first: what was under way is so no more."""
        for followed in self._partitions.values():
            followed.machine.on_no_answer()
        self._due = dict.fromkeys(self._partitions)

    def _forget_closed(self) -> None:
        for key in [key for key, followed in self._partitions.items() if followed.is_closed]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        self._partitions.pop(key, None)
        self._backed_off.pop(key, None)
        self._failures.pop(key, None)

    # What a session asks -----------------------------------------------------------------------

    def next_fetches(
        self, broker_epoch: int, now_ms: int, clock: FetchClock
    ) -> tuple[Fetches, list[Key]]:
        """Of those that are due: what may be fetched now, and what may not, or not any more."""
        fetches: Fetches = {}
        left: list[Key] = []
        throttle_ms = self._membership.replication.follower_throttle.wait_ms(now_ms)
        self.rest_ms = NEVER_MS
        due, self._due = self._due, {}
        for key in due:
            followed = self._partitions.get(key)
            if followed is None or followed.is_closed:
                self._forget(key)
                left.append(key)
                continue
            followed.machine.on_no_answer()
            fetch: ReplicaFetch | None = None
            rest_ms = self._backed_off.get(key, 0) - now_ms
            if rest_ms <= 0:
                try:
                    if throttle_ms and self.is_throttled(followed):
                        rest_ms = throttle_ms
                    else:
                        fetch = followed.next_fetch(broker_epoch, now_ms, clock)
                        rest_ms = SHORT_WAIT_MS
                except Exception as error:  # noqa: BLE001 - told there
                    self.note_fault(followed, error)
                    rest_ms = self.back_off(key)
            if fetch is None:
                self.rest_ms = min(self.rest_ms, rest_ms)
                left.append(key)
                self._due[key] = None
            else:
                fetches[key] = followed, fetch
        return fetches, left

    def is_throttled(self, followed: FollowedPartition) -> bool:
        """Whether its bytes count, as the replica is not in sync and its topic names it."""
        throttled = followed.log.config.follower_replication_throttled_replicas
        if not throttled:
            return False
        name, mine = followed.topic_partition, self._membership.broker_id
        partition = self._membership.image.partition(name.topic, name.partition)
        is_in_sync = partition is not None and mine in partition.isr
        return not is_in_sync and is_throttled(throttled, name.partition, mine)

    @property
    def has_failures(self) -> bool:
        return bool(self._failures)

    @property
    def partition_count(self) -> int:
        return len(self._partitions)

    async def woken(self, seconds: float) -> None:
        self._is_woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._is_woken.wait()
        except TimeoutError:
            pass

    def begin_poll(self) -> None:
        self._is_polling = True

    def end_poll(self) -> None:
        self._is_polling = False
        if self._breaking_off is not None:
            self._breaking_off.cancel()
            self._breaking_off = None

    def note_taken(self, followed: FollowedPartition, damage: str) -> None:
        """``damage`` empty: all of it was taken."""
        if not damage:
            self._failures.pop(_key_of(followed), None)
        elif self.count_failure(followed) == DAMAGES_UNTOLD:
            what = f"{followed.topic_partition} cannot follow broker {self._leader_id}: {damage}"
            self._broker.maintenance.report_once(what)

    def note_fault(self, followed: FollowedPartition, error: Exception) -> None:
        """It is nobody's but this partition's, as far as is known; nobody expected it."""
        self._broker.tasks.note(self._task_name, error)
        if self.count_failure(followed) == 1:
            what = f"{followed.topic_partition} cannot follow broker {self._leader_id}"
            logger.error("%s, and goes on trying", what, exc_info=error)

    def count_failure(self, followed: FollowedPartition) -> int:
        """Gives how many there were in a row."""
        key = _key_of(followed)
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return count

    def back_off(self, key: Key) -> int:
        """Gives for how long."""
        doublings = max(0, self._failures.get(key, 0) - 1)
        rest_ms = min(BACK_OFF_MS << min(doublings, 10), LAST_BACK_OFF_MS)
        self._backed_off[key] = self._broker.clock.monotonic_ms() + rest_ms
        return rest_ms


class _Session:
    """One connection's."""

    def __init__(
        self, broker: Broker, membership: Membership, peer: Peer, fetcher: ReplicaFetcher
    ) -> None:
        self._broker = broker
        self._membership = membership
        self._peer = peer
        self._fetcher = fetcher
        self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._broker_epoch = -1
        self._clock = FetchClock()
        #: Everything that a request counts for.
        self._under_way: Fetches = {}
        #: What it did before, and the leader may not know yet.
        self._left: dict[Key, None] = {}
        #: What the leader holds of each partition: leader epoch, offset, epoch before it, log start.
        self._known: dict[Key, tuple[int, int, int, int]] = {}
        #: Every partition that it has ever heard of.
        self._seen: set[Key] = set()
        #: Done when an answer was not followed by a request, or none will come.
        self._is_idle: asyncio.Future[None] | None = None
        self._is_over = False
        #: By the loop's time: when the answer that is awaited has to be here.
        self._deadline = 0.0

    async def go_on(self) -> None:
        """Until nothing is left to fetch. Raises PeerError and MalformedRequest."""
        fetcher = self._fetcher
        self._peer.begin_fetches(self._on_answer, self._end)
        try:
            while fetcher.partition_count:
                is_idle: asyncio.Future[None] = self._broker.loop.create_future()
                self._is_idle = is_idle
                if self._fetch_on():
                    await self._until_idle(is_idle)
                else:
                    await fetcher.woken(BACK_OFF_MS / 1000)
                    if is_idle.done():  # the connection was lost while nothing was asked
                        is_idle.result()
        finally:
            self._is_over = True

    async def _until_idle(self, is_idle: asyncio.Future[None]) -> None:
        """While each answer is followed by the next request, which needs no task."""
        loop = self._broker.loop
        while not is_idle.done():
            await asyncio.wait((is_idle,), timeout=self._deadline - loop.time())
            if not is_idle.done() and loop.time() >= self._deadline:
                raise PeerError("no answer in time")
        is_idle.result()

    def _fetch_on(self) -> bool:
        """Send the next request; gives whether there was anything to fetch."""
        fetcher = self._fetcher
        broker_epoch = self._membership.broker_epoch
        if broker_epoch is None or not fetcher.partition_count:
            return False
        if broker_epoch != self._broker_epoch:
            self._begin_anew()
            self._broker_epoch = broker_epoch
        now_ms = self._broker.clock.monotonic_ms()
        fetches, left = fetcher.next_fetches(broker_epoch, now_ms, self._clock)
        self._under_way.update(fetches)
        for key in left:
            self._under_way.pop(key, None)
            self._left[key] = None
        if not self._under_way:
            return False
        wait_ms = self._wait_ms(fetches)
        request = self._encode(fetches, wait_ms)
        self._clock.sent_ms = now_ms
        self._deadline = self._broker.loop.time() + wait_ms / 1000 + ANSWER_SECONDS
        fetcher.begin_poll()
        self._peer.fetch(request)
        return True

    def _end(self, error: Exception | None) -> None:
        """The task goes on: by itself, or with what happened."""
        is_idle = self._is_idle
        if is_idle is None or is_idle.done() or self._is_over:
            return
        if error is None:
            is_idle.set_result(None)
        else:
            is_idle.set_exception(error)

    def _on_answer(self, frame: memoryview) -> None:
        self._fetcher.end_poll()
        try:
            answer = decode_answer(frame)
            if answer.error_code:
                self._begin_anew()
                self._go_on_fetching()
                return
            self._id = answer.session_id
            self._epoch = next_epoch(self._epoch) if self._id else INITIAL_EPOCH
            self._take(answer.partitions, 0)
        except Exception as error:  # noqa: BLE001 - the task's to judge
            self._end(error)

    def _go_on_fetching(self) -> None:
        if not self._fetch_on():
            self._end(None)

    def _wait_ms(self, fetches: Fetches) -> int:
        if not fetches.keys() <= self._seen:
            return 0
        return min(self._fetcher.rest_ms, self._broker.config.replica_fetch_wait_max_ms)

    def _begin_anew(self) -> None:
        self._id, self._epoch = INVALID_SESSION_ID, INITIAL_EPOCH
        self._under_way.clear()
        self._left.clear()
        self._known.clear()
        self._seen.clear()
        self._fetcher.begin_anew()

    def _encode(self, fetches: Fetches, wait_ms: int) -> bytes:
        config = self._broker.config
        known = self._known
        topics: dict[TopicId, list[WantedPartition]] = {}
        for key, (followed, fetch) in fetches.items():
            start = followed.log.log_start_offset
            at = (fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch, start)
            if known.get(key) == at:
                continue
            known[key] = at
            self._seen.add(key)
            wanted = WantedPartition(key[1], *at, config.replica_fetch_max_bytes)
            topics.setdefault(key[0], []).append(wanted)
        forgotten: dict[TopicId, list[int]] = {}
        for key in self._left:
            if key not in self._under_way and known.pop(key, None) is not None:
                forgotten.setdefault(key[0], []).append(key[1])
        self._left.clear()
        return encode_request(
            CLIENT_ID,
            replica_id=self._membership.broker_id,
            replica_epoch=self._broker_epoch,
            max_wait_ms=wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session=(self._id, self._epoch),
            topics=topics.items(),
            forgotten=forgotten.items(),
        )

    def _take(self, results: Sequence[FetchedPartition], first: int) -> None:
        """What is not named stays under way. Others get their turns of the loop."""
        turn = Turn()
        for number in range(first, len(results)):
            if turn.is_over:
                self._broker.loop.call_soon(self._take_later, results, number)
                return
            result = results[number]
            key = (result.topic_id, result.index)
            followed, fetch = self._under_way.pop(key, (None, None))
            if followed is None or fetch is None:
                continue
            self._fetcher.note_due(key)
            if followed.is_closed or not self._append(followed, fetch, result):
                self._fetcher.back_off(key)
        self._go_on_fetching()

    def _take_later(self, results: Sequence[FetchedPartition], first: int) -> None:
        if self._is_over:
            return
        try:
            self._take(results, first)
        except Exception as error:  # noqa: BLE001 - as above
            self._end(error)

    def _append(
        self, followed: FollowedPartition, fetch: ReplicaFetch, result: FetchedPartition
    ) -> bool:
        """Gives whether to go on at once."""
        broker = self._broker
        broker.replicas.followed_answers += 1
        try:
            answer = FetchAnswer(
                fetch.leader_epoch,
                NO_ANSWER,
                _verdict(fetch, result),
                result.records,
                result.high_watermark,
                result.log_start_offset,
            )
            if result.records and broker.logs.is_below_replication_floor(followed.topic_partition):
                raise DiskFullError("free disk space is below odradek.disk.floor.replication.bytes")
            if self._fetcher.is_throttled(followed):
                throttle = self._membership.replication.follower_throttle
                throttle.record(len(result.records), broker.clock.monotonic_ms())
            taken = followed.machine.on_answer(fetch, answer, broker.clock.wall_ms())
            if followed.reader is not None:
                followed.reader.advance_high_watermark()
            if taken.appended is not None:
                broker.replicas.after_follower_append(followed, taken.appended)
            if taken.damage or self._fetcher.has_failures:
                self._fetcher.note_taken(followed, taken.damage)
        except StorageError as error:
            broker.replicas.take_offline(error)
            return False
        except (DiskFullError, KafkaError, OSError) as error:
            what = f"{followed.topic_partition} cannot follow: {error}"
            broker.maintenance.report_once(what)
            self._fetcher.count_failure(followed)
            return False
        except Exception as error:  # noqa: BLE001 - told there
            self._fetcher.note_fault(followed, error)
            return False
        return not taken.is_back_off


def _key_of(followed: FollowedPartition) -> Key:
    return followed.topic_id, followed.topic_partition.partition


def _verdict(fetch: ReplicaFetch, result: FetchedPartition) -> FetchVerdict:
    if result.error_code:
        return FetchRefused(ErrorCode(result.error_code))
    if result.diverging_epoch is not None:
        return Diverged(*result.diverging_epoch)
    return Accepted(fetch.fetch_offset)
