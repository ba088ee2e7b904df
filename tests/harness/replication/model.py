# SPDX-License-Identifier: Apache-2.0
"""One partition on a few nodes, in memory: the replication machines under seeded faults, each step checked.

The network drops, delays, doubles and reorders; nodes are killed, lose power (and what was not synced),
restart, and outlive their session. The store is one truth; nodes see it late. Read next:
machines/replication/leader.py.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from headrace.machines.replication import election, follower, isr, leader
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode
from tests.harness.replication.node import ModelLog, ModelNode, Violation

_MAX_MESSAGES = 40
_FETCH_RECORDS = 3


class ReplicationModel:
    def __init__(
        self, seed: int, *, nodes: int = 3, min_insync: int | None = None, flush_ack: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.min_insync = min_insync
        self.flush_ack = flush_ack
        self.now_ms = 0
        self.nodes = [ModelNode(node_id=n, epoch=n + 1) for n in range(nodes)]
        self.sessions = {n.node_id: n.epoch for n in self.nodes}
        self.next_epoch = nodes + 1
        replicas = tuple(range(nodes))
        self.state = PartitionState(replicas=replicas, leader=0, leader_epoch=0, isr=replicas)
        self.messages: list[tuple[Any, ...]] = []
        self.produced = 0
        self.acked: dict[int, str] = {}
        self.read: dict[int, str] = {}
        self.faulty = True
        pick = self.random.choice
        self.pace = (8, pick((8, 14, 25)), pick((2, 8, 12)), pick((0.5, 3)), pick((1, 4, 8)))
        often = pick((0.3, 1, 2))
        self.mishaps = tuple(often * weight for weight in (0.4, pick((0.3, 1.5)), 0.4, pick((0.2, 2))))
        self.control = pick((0.1, 0.3))

    # The store and its controller

    @property
    def live(self) -> leader.Nodes:
        return leader.Nodes(dict(self.sessions))

    @property
    def needed(self) -> int:
        return leader.effective_min_insync(self.min_insync, len(self.state.replicas))

    def prefer(self) -> None:
        state = election.preferred(self.state, self.live)
        self.state = state if isinstance(state, PartitionState) else self.state

    def move(self) -> None:
        """Another member in sync leads."""
        others = [n for n in self.state.isr if n in self.sessions and n != self.state.leader]
        if others and self.state.leader in self.sessions:
            first = self.random.choice(others)
            replicas = self.state.replicas
            turned = replace(self.state, replicas=(first, *(n for n in replicas if n != first)))
            moved = election.preferred(turned, self.live)
            assert isinstance(moved, PartitionState)
            self.state = replace(moved, replicas=replicas)

    def elect(self) -> None:
        contest = election.Contest(state=self.state, min_insync=self.min_insync)
        self.state = election.elect(contest, self.live, Counter()).state

    def register(self, node: ModelNode, *, lossless: bool) -> None:
        node.forget_role()
        self.sessions.pop(node.node_id, None)
        self.state = isr.registered(self.state, node.node_id, self.needed, lossless=lossless)
        node.epoch = self.next_epoch
        self.next_epoch += 1
        node.lost_power = False
        self.elect()
        self.sessions[node.node_id] = node.epoch
        self.elect()
        self.recover_if_all_lost()

    def recover_if_all_lost(self) -> None:
        ends = {
            n.node_id: election.LogEnd(n.log.values[-1][0] if n.log.values else -1, n.log.end)
            for n in self.nodes
            if n.alive
        }
        elected = election.recovered(self.state, self.live, ends)
        if elected is not None:
            self.state = elected.state

    # Faults

    def kill(self, node: ModelNode) -> None:
        node.forget_role()
        node.alive = False

    def cut_power(self, node: ModelNode) -> None:
        if self.promise_allows_loss(node):
            self.kill(node)
            node.lost_power = not self.flush_ack
            node.log.truncate(self.random.randint(node.log.synced, node.log.end))
            node.checkpoint = min(node.checkpoint, node.log.end)

    def promise_allows_loss(self, node: ModelNode) -> bool:
        """Fewer than min.insync.replicas may lose at a time: the others hold what is acknowledged."""
        if self.flush_ack:
            return True
        lost = sum(1 for n in self.nodes if n.lost_power or self.is_behind(n) or n is node)
        return lost < self.needed

    def is_behind(self, node: ModelNode) -> bool:
        """It lacks something committed: lost, or not fetched yet."""
        return node.node_id not in {*self.state.isr, *self.state.elr} and any(
            node.log.value_at(offset) != value for offset, value in self.read.items()
        )

    def restart(self, node: ModelNode) -> None:
        node.alive = True
        self.register(node, lossless=not node.lost_power)

    def expire(self, node: ModelNode) -> None:
        self.sessions.pop(node.node_id, None)

    def pause(self, node: ModelNode) -> None:
        """Its messages still reach it; it does nothing on its own."""
        node.paused = not node.paused

    # A node's shell

    def apply_view(self, node: ModelNode) -> None:
        """The node reads the whole view."""
        if self.sessions.get(node.node_id) != node.epoch:
            self.register(node, lossless=True)
        state = self.state
        if isinstance(node.role, leader.Leader):
            outcome = node.role.update(state, self.live, self.now_ms)
            if outcome is leader.EpochChange.RESIGN:
                node.drop_role()
            elif outcome is leader.EpochChange.NEW_EPOCH:
                node.log.epochs.assign(state.leader_epoch, node.log.end)
                node.proposed = None
            if outcome is not leader.EpochChange.RESIGN:
                return
        if state.leader == node.node_id:
            self.lead(node)
        else:
            self.trail(node)

    def lead(self, node: ModelNode) -> None:
        if isinstance(node.role, follower.Follower):
            node.drop_role()
        log = node.log
        log.epochs.assign(self.state.leader_epoch, log.end)  # R13
        own = leader.OwnLog(log_end=log.end, durable_end=self.reported(log), high_watermark=node.checkpoint)
        settings = leader.LeaderSettings(min_insync=self.min_insync, lag_max_ms=30 * len(self.nodes))
        node.role = leader.Leader(node.node_id, self.state, self.live, own, settings, self.now_ms)

    def trail(self, node: ModelNode) -> None:
        if node.role is None:
            node.role = follower.Follower(
                node.node_id,
                node.epoch,
                node.log.epochs,
                log_start=0,
                log_end=node.log.end,
                high_watermark=node.checkpoint,
            )
        assert isinstance(node.role, follower.Follower)
        node.role.update(self.state)

    def reported(self, log: ModelLog) -> int:
        return log.synced if self.flush_ack else log.end

    def sync(self, node: ModelNode) -> None:
        node.log.synced = node.log.end
        self.tell_leader(node)

    def tell_leader(self, node: ModelNode) -> None:
        if isinstance(node.role, leader.Leader):
            node.role.update_log_end(node.log.end, self.reported(node.log))

    def produce(self, node: ModelNode) -> None:
        role = node.role
        if not isinstance(role, leader.Leader) or role.refusal_before_append() is not None:
            return
        value = f"v{self.produced}"
        self.produced += 1
        node.waiting.append((node.log.end, value))
        node.log.append(role.leader_epoch, value)
        self.tell_leader(node)

    def act(self, node: ModelNode) -> None:
        if isinstance(node.role, leader.Leader):
            proposal = node.role.propose(self.now_ms)
            if proposal is not None:
                node.proposed = proposal
                self.send("alter", node.node_id, node.epoch, proposal)
        elif node.role is not None:
            asked = node.role.next_fetch()
            if asked is not None:
                node.asked = asked
                self.send("fetch", asked)

    def time_out(self, node: ModelNode) -> None:
        """Whatever the node waits for does not come."""
        if isinstance(node.role, leader.Leader) and node.proposed is not None:
            node.role.unknown(node.proposed)
        elif isinstance(node.role, follower.Follower) and node.asked is not None:
            node.role.lost(node.asked)

    # The network

    def send(self, *message: Any) -> None:
        if len(self.messages) < _MAX_MESSAGES:
            self.messages.append(message)

    def deliver(self) -> None:
        if not self.messages:
            return
        kind, *message = self.messages.pop(self.random.randrange(len(self.messages)))
        if self.faulty and self.random.random() < 0.1:
            return
        if self.faulty and self.random.random() < 0.1:
            self.send(kind, *message)
        getattr(self, f"on_{kind}")(*message)

    def on_fetch(self, asked: follower.FetchFrom) -> None:
        node = self.nodes[asked.leader]
        if node.alive:
            answer, records = self.answer(node, asked)
            self.send("answer", asked, answer, records)

    def answer(
        self, node: ModelNode, asked: follower.FetchFrom
    ) -> tuple[follower.FetchAnswer, list[tuple[int, str]]]:
        role, log = node.role, node.log
        if not isinstance(role, leader.Leader):
            return follower.FetchAnswer(error=ErrorCode.not_leader_or_follower), []
        fenced = role.check_epoch(asked.leader_epoch)
        if fenced is not None:
            return follower.FetchAnswer(error=fenced), []
        diverging = leader.divergence(log.epochs, log.end, asked.offset, asked.last_fetched_epoch)
        if diverging is not None:
            return follower.FetchAnswer(diverging=diverging), []
        stale = role.follower_fetched(asked.node, asked.node_epoch, asked.offset, self.now_ms)
        if stale is not None:
            return follower.FetchAnswer(error=stale), []
        records = log.values[asked.offset : asked.offset + _FETCH_RECORDS]
        return follower.FetchAnswer(high_watermark=role.high_watermark, has_records=bool(records)), records

    def on_answer(
        self, asked: follower.FetchFrom, answer: follower.FetchAnswer, records: list[tuple[int, str]]
    ) -> None:
        node = self.nodes[asked.node]
        if not node.alive or not isinstance(node.role, follower.Follower):
            return
        work = node.role.fetched(asked, answer)
        if work is None:
            return
        if work.truncate_to is not None:
            node.log.truncate(work.truncate_to)
        if work.append:
            for epoch, value in records:
                node.log.append(epoch, value)
        if self.flush_ack:
            node.log.synced = node.log.end
        node.role.worked(log_start=0, log_end=node.log.end)

    def on_alter(self, sender: int, sender_epoch: int, proposal: leader.IsrProposal) -> None:
        if self.sessions.get(sender) != sender_epoch:
            return  # STALE_BROKER_EPOCH (R3)
        outcome = isr.judged(self.state, proposal, self.live, self.needed)
        if isinstance(outcome, PartitionState):
            self.state = outcome
        self.send("altered", sender, sender_epoch, proposal, outcome)

    def on_altered(
        self,
        sender: int,
        sender_epoch: int,
        proposal: leader.IsrProposal,
        outcome: PartitionState | ErrorCode,
    ) -> None:
        node = self.nodes[sender]
        if not node.alive or node.epoch != sender_epoch or not isinstance(node.role, leader.Leader):
            return
        if isinstance(outcome, PartitionState):
            if outcome.leader_epoch == node.role.leader_epoch:
                node.role.update(outcome, self.live, self.now_ms)
        else:
            node.role.refused(proposal, outcome)

    # Steps and promises

    def step(self) -> None:
        node = self.random.choice(self.nodes)
        self.now_ms += self.random.choice((1, 1, 5, 20))
        if not node.alive:
            self.random.choices((self.restart, self.expire, _nothing), (2, 3, 8))[0](node)
        elif not node.paused or self.random.random() < 0.1:
            actions = (self.produce, self.act, self.apply_view, self.sync, self.time_out)
            faults = (self.kill, self.cut_power, self.expire, self.pause)
            self.random.choices((*actions, *faults), (*self.pace, *self.mishaps))[0](node)
        if self.random.random() < self.control:
            moves = (1, 1) if self.faulty else (0, 0)
            self.random.choices((self.elect, self.prefer, self.move), (6, *moves))[0]()
        for _ in range(self.random.randint(0, 3)):
            self.deliver()
            self.check()
        self.check()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.heal()

    def heal(self) -> None:
        """Everyone comes back, the network works: all that was acknowledged is there, writes go through."""
        self.faulty = False
        self.pace, self.mishaps, self.control = (8, 20, 8, 4, 1), (0, 0, 0, 0), 0.3
        for node in self.nodes:
            node.paused = False
            if not node.alive:
                self.restart(node)
        before = len(self.acked)
        for _ in range(3000):
            self.step()
            if self.is_well() and len(self.acked) > before:
                return
        raise Violation(f"no progress after all came back: {self.state}")

    def is_well(self) -> bool:
        return set(self.state.isr) == set(self.state.replicas) and self.state.leader != NO_NODE

    def check(self) -> None:
        for node in self.nodes:
            if isinstance(node.role, leader.Leader):
                self.answer_acks(node, node.role)
            if node.role is not None:
                self.check_readable(node)
        self.check_electable()

    def answer_acks(self, node: ModelNode, role: leader.Leader) -> None:
        for offset, value in list(node.waiting):
            code = role.answer_for(offset)
            if code is None:
                continue
            node.waiting.remove((offset, value))
            if code is ErrorCode.none and self.acked.setdefault(offset, value) != value:
                raise Violation(f"offset {offset} was acknowledged twice")

    def check_readable(self, node: ModelNode) -> None:
        """Below the high watermark every reader always sees the same (R18), on leaders and followers."""
        for offset in range(min(node.high_watermark, node.log.end)):
            value = node.log.values[offset][1]
            if self.read.setdefault(offset, value) != value:
                raise Violation(f"offset {offset} was read as {self.read[offset]} and as {value}")
        if node.high_watermark < node.shown:
            raise Violation(f"the high watermark of node {node.node_id} went back")
        node.shown = node.high_watermark
        if node.high_watermark > node.log.end:
            raise Violation(f"node {node.node_id} shows more than it has")

    def check_electable(self) -> None:
        """StrongIsr and LeaderInIsr: whoever may lead holds all that was acknowledged."""
        state = self.state
        if state.leader != NO_NODE and state.leader not in state.isr:
            raise Violation(f"leader {state.leader} is not in sync: {state}")
        for node_id in {*state.isr, *state.elr}:
            node = self.nodes[node_id]
            if node.lost_power:
                continue
            for offset, value in self.acked.items():
                if node.log.value_at(offset) != value:
                    raise Violation(f"node {node_id} may lead without the acknowledged offset {offset}")


def _nothing(_: ModelNode) -> None:
    """It stays dead a while."""


def run_seed(seed: int, steps: int = 250) -> ReplicationModel:
    """Settings vary with the seed: three to five nodes, minimum, flush mode."""
    model = ReplicationModel(
        seed,
        nodes=(3, 3, 3, 4, 5)[seed % 5],
        min_insync=(None, None, 1)[seed % 3],
        flush_ack=seed % 4 == 3,
    )
    model.run(steps)
    return model
