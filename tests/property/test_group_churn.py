"""Members that come, go, crash and stall at random, a log that refuses or takes its time, restarts.

Whatever happens: in no generation do two members own a partition, no committed offset goes back, and
nobody is answered twice. Once calm returns, the members that are left soon share all partitions.
Every number below comes from the seed, so a failure can be had again: GROUP_CHURN_SEED=7.
"""

from __future__ import annotations

import os
import random
import struct
from typing import Any

import pytest

from broker.model.error_code import ErrorCode
from tests.broker.coordinator.build import NONE, REBALANCE_MS, SESSION_MS, GroupWorld, Member

PARTITIONS = 6
STEPS = 800
SEEDS = [int(os.environ["GROUP_CHURN_SEED"])] if "GROUP_CHURN_SEED" in os.environ else range(60)
#: After these a client begins anew, as a new member.
REBORN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
AGAIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Client:
    """A consumer as clients are: joins, assigns if it leads, heartbeats, commits what it has read."""

    def __init__(self, churn: Churn, number: int, instance_id: str | None) -> None:
        self.churn = churn
        self.member = churn.world.member(f"c{number}", instance_id=instance_id)
        self.state = "join"
        self.owned: list[int] = []
        self.positions: dict[int, int] = {}

    def step(self) -> None:
        """What it would do next; nothing while it waits for an answer."""
        getattr(self, f"_{self.state}")()

    def _join(self) -> None:
        self.owned = []
        self.member.join()
        self.state = "joining"

    def _joining(self) -> None:
        joined = self.member.joined
        if joined is None:
            return
        if joined.error is NONE:
            self.member.sync(self._assign() if joined.members else {})
            self.state = "syncing"
        elif joined.error is ErrorCode.MEMBER_ID_REQUIRED:  # the log took its time to say so
            self.member.send_join()
        else:
            self._begin_anew(joined.error)

    def _assign(self) -> dict[str, bytes]:
        assert self.member.joined is not None
        members = [each.member_id for each in self.member.joined.members]
        shares: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in range(PARTITIONS):
            shares[members[partition % len(members)]].append(partition)
        return {k: struct.pack(f">{len(v)}B", *v) for k, v in shares.items()}

    def _syncing(self) -> None:
        synced = self.member.synced
        if synced is None:
            return
        if synced.error is not NONE:
            self._begin_anew(synced.error)
            return
        self.owned = list(synced.assignment)
        self.churn.note_owner(self)
        self.positions.clear()
        self.state = "reading"

    def _reading(self) -> None:
        code = self.member.beat()
        if code is not NONE:
            self._begin_anew(code)
            return
        for partition in self.owned:
            if partition not in self.positions:
                self._seek(partition)
        self._commit()

    def _seek(self, partition: int) -> None:
        found = self.churn.world.fetch("g", ("t", partition))
        if isinstance(found, dict):
            self.positions[partition] = max(found["t", partition], 0)

    def _commit(self) -> None:
        if not self.positions:
            return
        for partition in self.positions:
            self.positions[partition] += self.churn.dice.randrange(3)
        codes = self.member.commit({("t", p): offset for p, offset in self.positions.items()})
        if isinstance(codes, list):
            self.churn.note_committed(self.positions)
        elif codes is not None:
            self._begin_anew(codes)

    def _begin_anew(self, code: ErrorCode) -> None:
        assert code in (*REBORN, *AGAIN), code
        if code in REBORN:
            self.member.member_id = ""
        self.state = "join"


class Churn:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = GroupWorld(group_initial_rebalance_delay_ms="1000")
        self.clients: list[Client] = []
        self.count = 0
        #: (life of the group, generation, partition) to the member that was given it.
        self.owners: dict[tuple[int, int, int], str] = {}
        self.committed: dict[int, int] = {}
        self.life = 0

    def run(self) -> None:
        events = [self.arrive, self.go_on, self.go_on, self.go_on, self.pass_time, self.leave,
                  self.crash, self.stall, self.restart, self.break_log]  # fmt: skip
        weights = [4, 20, 20, 20, 12, 3, 2, 1, 1, 3]
        for _ in range(STEPS):
            if (self.world.log.holds or self.world.log.refusal) and self.dice.random() < 0.2:
                self.heal_log()
            self.dice.choices(events, weights)[0]()
            self.check()
        self.calm()

    # -- events -------------------------------------------------------------------------------

    def arrive(self) -> None:
        if len(self.clients) < 8:
            self.count += 1
            is_static = self.dice.random() < 0.3
            free = {"i1", "i2", "i3"} - {each.member.instance_id for each in self.clients}
            instance_id = self.dice.choice(sorted(free)) if is_static and free else None
            self.clients.append(Client(self, self.count, instance_id))

    def go_on(self) -> None:
        for client in self.dice.sample(self.clients, len(self.clients)):
            client.step()

    def pass_time(self) -> None:
        self.world.advance(self.dice.choice((50, 500, 2_000, SESSION_MS // 2)))

    def leave(self) -> None:
        if self.clients:
            gone = self.clients.pop(self.dice.randrange(len(self.clients)))
            if gone.state == "reading":
                gone.member.leave()

    def crash(self) -> None:
        if self.clients:
            self.clients.pop(self.dice.randrange(len(self.clients)))

    def stall(self) -> None:
        """One client does nothing for so long that it is thrown out; it does not know."""
        if self.clients:
            stalled = self.dice.choice(self.clients)
            for _ in range(6):
                self.world.advance(SESSION_MS // 4)
                for client in self.clients:
                    if client is not stalled:
                        client.step()

    def restart(self) -> None:
        """The broker is killed: answers under way never come."""
        self.world.log.holds = False
        self.world.log.refusal = None
        self.world.log._waiting.clear()
        self.world.restart()
        for client in self.clients:
            if client.state in ("joining", "syncing"):
                client.state = "join"

    def break_log(self) -> None:
        """It refuses what is appended, or takes its time."""
        if self.dice.random() < 0.5:
            self.world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self.world.log.holds = True

    def heal_log(self) -> None:
        log = self.world.log
        log.holds, log.refusal = False, None
        log.release(self.dice.choice((NONE, NONE, ErrorCode.REQUEST_TIMED_OUT)))

    # -- what must hold -----------------------------------------------------------------------

    def note_owner(self, client: Client) -> None:
        generation_id = client.member.generation_id
        for partition in client.owned:
            place = (self.life, generation_id, partition)
            owner = client.member.instance_id or client.member.member_id
            assert self.owners.setdefault(place, owner) == owner, f"two own {place}"

    def note_committed(self, positions: dict[int, int]) -> None:
        for partition, offset in positions.items():
            assert offset >= self.committed.get(partition, 0), "a commit of an owner of old"
            self.committed[partition] = offset

    def check(self) -> None:
        group = self.shard.groups.get("g")
        if group is not None:
            waiting = sum(member.is_awaiting_join for member in group.members.values())
            assert group.awaiting_join_count == waiting
            assert set(group.pending_sync) <= set(group.members)
            assert not group.members or group.leader_id in group.members
            assert not set(group.pending_join) & set(group.members)
        for partition, offset in self.committed.items():
            known = self.shard.offsets.get("g", "t", partition)
            assert known is not None
            assert known.offset >= offset, "a committed offset went back"

    @property
    def shard(self) -> Any:
        (hosted,) = self.world.groups.runtime.all_hosted()
        return hosted.shard

    def calm(self) -> None:
        """No more trouble: who is left shares everything, and the log says so."""
        self.restart()
        self.arrive()
        for _ in range(2 * REBALANCE_MS // 500):
            self.world.advance(500)
            for client in self.clients:
                client.step()
            self.check()
        assert {each.state for each in self.clients} == {"reading"}
        owned = sorted(partition for each in self.clients for partition in each.owned)
        assert owned == list(range(PARTITIONS))
        assert len({each.member.generation_id for each in self.clients}) == 1
        self.world.restart()
        for each in self.clients:
            assert each.member.beat() is NONE
            assert list(each.member.sync({}).synced.assignment) == each.owned
        assert self.world.state() == "Stable"


@pytest.mark.parametrize("seed", SEEDS)
def test_members_in_turmoil(seed: int) -> None:
    Churn(seed).run()


def test_the_turmoil_is_one() -> None:
    """What the seeds reach: otherwise the test above says little."""
    churns = [Churn(seed) for seed in range(10)]
    for churn in churns:
        churn.run()
    generations = {(id(churn), *place[:2]) for churn in churns for place in churn.owners}
    assert len(generations) > 120
    assert all(sum(churn.committed.values()) > 50 for churn in churns)


def test_a_member_knows_what_it_was_told_once() -> None:
    member: Member = GroupWorld().stable(1)[0]
    with pytest.raises(AssertionError, match="answered twice"):
        member._on_joined(member.joined)  # type: ignore[arg-type]
