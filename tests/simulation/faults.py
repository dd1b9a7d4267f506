"""What goes wrong, when, and for how long: by the world's dice, more often to who leads.

Most faults just come. An *ambush* waits for the moment when a leader asks for a larger ISR, because
what goes wrong there is worst: the proposal or its answer is late or lost, the joining replica is cut
off or restarted, the controller replaced, and then the leader is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.ids import BrokerId
from broker.model.leadership import IsrProposal
from broker.replication.leader import LeaderMachine

if TYPE_CHECKING:
    from tests.simulation.broker import Process
    from tests.simulation.cluster import Cluster
    from tests.simulation.partition import HostedPartition


class Faults:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng
        self._kinds = (
            self._kill,
            self._shut_down,
            self._power_loss,
            self._all_lose_power,
            self._stop,
            self._isolate,
            self._cut_pair,
            self._cut_one_way,
            self._cut_from_zookeeper,
            self._zookeeper_down,
            self._expire,
            self._suspect,
            self._slow_disk,
            self._step_clock,
            self._corrupt,
        )
        #: Where every acknowledged record is on disk, nothing excuses a loss.
        all_lose_power = 25 if cluster.is_flush_bound else 2
        self._weights = (10, 6, 12, all_lose_power, 8, 10, 8, 10, 10, 4, 5, 4, 4, 2, 4)
        self._is_over = False
        self._next_ambush_ms = 0
        self._world.call_later(cluster.settings.warm_up_ms, self._next)

    def _next(self) -> None:
        if self._is_over:
            return
        [kind] = self._rng.choices(self._kinds, self._weights)
        broker_id = self._victim()
        self._world.tell(f"fault: {kind.__name__[1:]} {broker_id}")
        self._world.fault_count += 1
        kind(broker_id)
        self._world.call_later(self._rng.randrange(100, 2200), self._next)

    def _victim(self) -> BrokerId:
        chance = self._rng.random()
        if chance < 0.35:
            for process in self._cluster.running():
                if process.is_leading:
                    return process.broker_id
        if chance < 0.5:
            controller_id = self._cluster.controller_id()
            if controller_id in self._cluster.broker_ids:
                return controller_id
        return self._rng.choice(self._cluster.broker_ids)

    def heal(self) -> None:
        """Everything comes back, and nothing more goes wrong."""
        self._is_over = True
        self._world.tell("everything heals")
        self._world.heal()
        self._reach_zookeeper_again(self._cluster.broker_ids)
        for broker_id in self._cluster.broker_ids:
            self._cluster.start(broker_id)

    def _for_a_while(self, longest_ms: int) -> int:
        return self._rng.randrange(50, longest_ms)

    # Processes

    def _kill(self, broker_id: BrokerId) -> None:
        self._crash(broker_id, False)

    def _shut_down(self, broker_id: BrokerId) -> None:
        """Others lead first, if the controller answers; then a clean stop."""
        process = self._cluster.processes.get(broker_id)
        if process is not None:
            down_ms = self._for_a_while(2500)

            def left(answer: bool | None) -> None:
                # However late that is, for a process that stood still meanwhile: it comes back.
                self._cluster.stop(process)
                self._world.call_later(down_ms, lambda: self._cluster.start(broker_id))

            process.leave(left)

    def _power_loss(self, broker_id: BrokerId) -> None:
        self._crash(broker_id, True)

    def _all_lose_power(self, broker_id: BrokerId) -> None:
        for each in self._cluster.broker_ids:
            self._slow_disk(each)
        self._world.call_later(self._rng.randrange(100, 1000), self._all_crash)

    def _all_crash(self) -> None:
        if not self._is_over:
            for each in self._cluster.broker_ids:
                self._crash(each, True)

    def _crash(self, broker_id: BrokerId, is_power_lost: bool) -> None:
        self._cluster.crash(broker_id, is_power_lost)
        # Often sooner than anybody noticed.
        is_soon = self._rng.random() < 0.35
        down_ms = self._rng.randrange(2, 40) if is_soon else self._for_a_while(2500)
        self._world.call_later(down_ms, lambda: self._cluster.start(broker_id))

    def _stop(self, broker_id: BrokerId) -> None:
        process = self._cluster.processes.get(broker_id)
        if process is None or process.schedule.is_stopped:
            return
        until_ms = self._world.now_ms + self._for_a_while(3000)
        process.schedule.stop_until(until_ms)
        if until_ms - self._world.now_ms > self._cluster.settings.session_timeout_ms:
            self._cluster.expire_later(process.store)

    # Network

    def _isolate(self, broker_id: BrokerId) -> None:
        """From the other brokers, not from ZooKeeper."""
        for other in self._cluster.broker_ids:
            if other != broker_id:
                self._world.cut(broker_id, other)
                self._world.cut(other, broker_id)
        self._heal_network_later()

    def _cut_pair(self, broker_id: BrokerId) -> None:
        other = self._other(broker_id)
        self._world.cut(broker_id, other)
        self._world.cut(other, broker_id)
        self._heal_network_later()

    def _cut_one_way(self, broker_id: BrokerId) -> None:
        self._world.cut(*self._rng.sample(self._cluster.broker_ids, 2))
        self._world.cut(broker_id, self._other(broker_id))
        self._heal_network_later()

    def _other(self, broker_id: BrokerId) -> BrokerId:
        return self._rng.choice([b for b in self._cluster.broker_ids if b != broker_id])

    def _heal_network_later(self) -> None:
        self._world.call_later(self._for_a_while(3000), self._world.heal)

    def _corrupt(self, broker_id: BrokerId) -> None:
        self._world.corruption = 0.3
        self._heal_network_later()

    # ZooKeeper

    def _cut_from_zookeeper(self, broker_id: BrokerId) -> None:
        zookeeper = self._cluster.zookeeper
        ways = self._rng.choice(("out", "in", "both"))
        if ways != "in":
            zookeeper.lost_requests.add(broker_id)
        if ways != "out":
            zookeeper.lost_answers.add(broker_id)
        process = self._cluster.processes.get(broker_id)
        duration_ms = self._for_a_while(3500)
        if process is not None:
            if duration_ms > self._cluster.settings.session_timeout_ms:
                self._cluster.expire_later(process.store)
            self._world.call_later(self._for_a_while(900), process.store.connection_lost)
        self._world.call_later(duration_ms, lambda: self._reach_zookeeper_again((broker_id,)))

    def _zookeeper_down(self, broker_id: BrokerId) -> None:
        self._cluster.zookeeper.is_up = False
        for process in self._cluster.processes.values():
            process.store.connection_lost()
        self._world.call_later(
            self._for_a_while(4000), lambda: self._reach_zookeeper_again(self._cluster.broker_ids)
        )

    def _reach_zookeeper_again(self, broker_ids: tuple[BrokerId, ...]) -> None:
        zookeeper = self._cluster.zookeeper
        if len(broker_ids) > 1:
            zookeeper.is_up = True
        for broker_id in broker_ids:
            if broker_id in zookeeper.lost_requests | zookeeper.lost_answers:
                zookeeper.lost_requests.discard(broker_id)
                zookeeper.lost_answers.discard(broker_id)
                process = self._cluster.processes.get(broker_id)
                if process is not None:
                    process.store.connection_lost()

    def _expire(self, broker_id: BrokerId) -> None:
        process = self._cluster.processes.get(broker_id)
        if process is not None:
            self._cluster.zookeeper.expire(process.store.session_id)

    def _suspect(self, broker_id: BrokerId) -> None:
        """Some broker takes the controller for dead, which does not notice at once."""
        controller_id = self._cluster.controller_id()
        zookeeper = self._cluster.zookeeper
        for process in self._cluster.running():
            if process.broker_id != controller_id:
                zookeeper.lost_answers.add(controller_id)
                self._world.call_later(
                    self._for_a_while(400), lambda: self._reach_zookeeper_again((controller_id,))
                )
                process.candidacy.suspect()
                return

    # Ambush

    def holds_back(self, hosted: HostedPartition) -> bool:
        """Whether a follower gets nothing of its leader now."""
        return False

    def on_proposal(
        self, process: Process, leader: LeaderMachine, proposal: IsrProposal
    ) -> tuple[int, bool]:
        """How late the proposal is to arrive, and whether its answer is lost."""
        joining = proposal.isr - leader.isr.committed
        if self._is_over or not joining or self._world.now_ms < self._next_ambush_ms:
            return 0, False
        if self._rng.random() > 0.3:
            return 0, False
        self._world.fault_count += 1
        ambush = self._rng.choice(
            (self._lose_answer, self._restart_joiner, self._replace_controller)
        )
        duration_ms, delay_ms, is_answer_lost = ambush(proposal.leader_id, min(joining))
        self._world.tell(
            f"fault: ambush {ambush.__name__[1:]} of {min(joining)} for {duration_ms} ms, "
            f"late {delay_ms} ms, answer lost {is_answer_lost}"
        )
        self._next_ambush_ms = self._world.now_ms + duration_ms + 1000
        process.pull_blocked_until = self._world.now_ms + duration_ms
        end = self._rng.choice((self._kill, self._expire, self._power_loss, None))
        if end is not None:
            self._world.call_later(
                duration_ms, lambda: None if self._is_over else end(proposal.leader_id)
            )
        return delay_ms, is_answer_lost

    def _lose_answer(self, leader_id: BrokerId, joiner_id: BrokerId) -> tuple[int, int, bool]:
        """The joiner may be in the ISR, and the leader does not know: for longer than it waits."""
        duration_ms = self._rng.randrange(300, 1300)
        if self._rng.random() < 0.8:
            self._part(leader_id, joiner_id, duration_ms)
        return duration_ms, 0, True

    def _restart_joiner(self, leader_id: BrokerId, joiner_id: BrokerId) -> tuple[int, int, bool]:
        """The proposal comes when the joiner has lost what it acknowledged, and is registered."""
        delay_ms = self._rng.randrange(80, 500)
        duration_ms = delay_ms + self._rng.randrange(20, 400)
        self._part(leader_id, joiner_id, duration_ms)
        self._cluster.crash(joiner_id, True)
        self._world.call_later(10, lambda: self._cluster.start(joiner_id))
        return duration_ms, delay_ms, self._rng.random() < 0.3

    def _replace_controller(
        self, leader_id: BrokerId, joiner_id: BrokerId
    ) -> tuple[int, int, bool]:
        """Two controllers have to do with it."""
        duration_ms = self._rng.randrange(300, 1300)
        self._suspect(joiner_id)
        if self._rng.random() < 0.5:
            self._part(leader_id, joiner_id, duration_ms)
        return duration_ms, self._rng.choice((0, 0, 100, 500)), self._rng.random() < 0.7

    def _part(self, broker_id: BrokerId, other_id: BrokerId, duration_ms: int) -> None:
        self._world.cut(broker_id, other_id)
        self._world.cut(other_id, broker_id)
        self._world.call_later(duration_ms + 300, self._world.heal)

    # Others

    def _slow_disk(self, broker_id: BrokerId) -> None:
        process = self._cluster.processes.get(broker_id)
        if process is not None:
            process.slow_disk_until = self._world.now_ms + self._for_a_while(3000)

    def _step_clock(self, broker_id: BrokerId) -> None:
        self._world.wall_step_ms += self._rng.randrange(-3_600_000, 3_600_000)
