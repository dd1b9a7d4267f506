"""Groups whose members come, go, crash and stall at random: what must hold all the same."""

import random
import threading
import time
from collections import defaultdict

import pytest

from tests.support import groups, requests
from tests.support.fixtures import Broker
from tests.support.groups import (
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    committed_offset,
)
from tests.support.requests import create_topic
from tests.support.wire import Wire

PARTITIONS, WORKERS, SESSION_MS = 12, 6, 800
OUT = (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS)


class Churn:
    """Workers that live through one membership after another, and what all of them saw."""

    def __init__(self, broker: Broker, group: str, topic: str, seed: int, seconds: float) -> None:
        self.broker, self.group, self.topic, self.seed = broker, group, topic, seed
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.owners: dict[int, dict[int, str]] = defaultdict(dict)  # by generation, then partition
        self.committed = [-1] * PARTITIONS  # the largest that was acknowledged
        self.commit_count = 0
        self.generation_of: dict[str, int] = {}
        self.failures: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, args=(i,)) for i in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.failures, (self.seed, self.failures)

    def _work(self, index: int) -> None:
        dice = random.Random(f"{self.seed} {index}")
        try:
            while time.monotonic() < self.end and not self.failures:
                self._live(dice)
        except BaseException as error:
            self.failures.append(error)

    def _live(self, dice: random.Random) -> None:
        version = dice.choice((2, 5, 9))
        with Member(
            self.broker.address,
            self.group,
            version=version,
            session_timeout=SESSION_MS,
            rebalance_timeout=2 * SESSION_MS,
        ) as member:
            while time.monotonic() < self.end:
                mine = self._join(member)
                if mine is None:
                    return
                fate = dice.choice(("leave", "crash", "stall", "stay", "stay", "stay"))
                self._work_as_member(member, mine, dice, time.monotonic() + dice.uniform(0.1, 1.0))
                if fate == "leave":
                    member.leave()
                    return
                if fate == "crash":
                    return  # the connection closes, and nothing is said
                if fate == "stall":
                    time.sleep(SESSION_MS / 1000 * dice.uniform(0.5, 1.5))

    def _join(self, member: Member) -> bytes | None:
        """The partitions that were assigned; None when the group does not know the member."""
        member.ask_for_id()
        answer = member.try_join()
        if answer.error_code in OUT:
            return None
        assert answer.error_code == 0, answer
        before = self.generation_of.get(member.member_id, 0)
        assert answer.generation_id >= before
        self.generation_of[member.member_id] = answer.generation_id
        plan: dict[str, bytes] = {}
        if member.is_leader:
            names = sorted(entry.member_id for entry in answer.members)
            assert member.member_id in names
            for place, name in enumerate(names):
                plan[name] = bytes(range(place, PARTITIONS, len(names)))
        synced = member.try_sync(plan)
        if synced.error_code in OUT:
            return None if synced.error_code == UNKNOWN_MEMBER_ID else b""
        assert synced.error_code == 0, synced
        with self.lock:
            owners = self.owners[member.generation]
            for partition in synced.assignment:
                assert owners.setdefault(partition, member.member_id) == member.member_id
        assignment: bytes = synced.assignment
        return assignment

    def _work_as_member(
        self, member: Member, mine: bytes, dice: random.Random, until: float
    ) -> None:
        while time.monotonic() < until:
            code = member.heartbeat()
            assert code == 0 or code in OUT, code
            if code:
                return
            for partition in mine:
                with self.lock:
                    known = self.committed[partition]
                found = committed_offset(member.wire, self.group, self.topic, partition=partition)
                assert found >= known, (partition, found, known)
                code = member.commit(self.topic, found + 1, partition=partition)
                assert code == 0 or code in OUT, code
                if code:
                    return
                with self.lock:
                    self.commit_count += 1
                    self.committed[partition] = max(self.committed[partition], found + 1)
            time.sleep(dice.uniform(0, 0.05))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seconds", [pytest.param(8, id="short"), pytest.param(120, id="long", marks=pytest.mark.slow)]
)
def test_no_partition_has_two_owners_and_no_commit_is_lost(
    broker: Broker, wire: Wire, group: str, seconds: int
) -> None:
    topic = create_topic(wire, partitions=PARTITIONS)
    seed = requests.now_ms()
    churn = Churn(broker, group, topic, seed, seconds)
    churn.run()
    generations = len(churn.owners)
    assert generations > seconds / 2, generations
    assert churn.commit_count > 10 * seconds
    for partition in range(PARTITIONS):
        found = committed_offset(wire, group, topic, partition=partition)
        assert found >= churn.committed[partition]
    groups.wait_for_state(wire, group, "Empty")
    # Whoever comes next has the group for itself.
    with Member(broker.address, group) as member:
        member.join_alone()
        assert len(member.last_join.members) == 1
