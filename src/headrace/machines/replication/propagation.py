# SPDX-License-Identifier: Apache-2.0
"""Which other live nodes have applied a version of the cluster view, and which waits that completes.

A wait ends when every live node has confirmed its version, or when its time is over. A node that confirmed
nothing for the limit is late: waits no longer count it, but each new one asks it again, and its first
confirmation makes it count. A node that does not serve the question (an earlier release) is never counted.
Pure: the driver (broker/controller/change_propagation.py) sends the questions and keeps the timer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """To be sent to one registration of a node: has its view reached this version?"""

    node_id: int
    node_epoch: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    questions: tuple[Question, ...] = ()
    done: tuple[int, ...] = ()
    """Waits that have ended."""
    late: tuple[int, ...] = ()
    """Nodes that are not counted from now on."""
    next_ms: int | None = None
    """When to call `step` again, whatever happens."""


@dataclass(slots=True, kw_only=True)
class _Peer:
    epoch: int
    reached: int = -1
    asked: bool = False
    silent_since_ms: int | None = None
    """When the first question was sent that it has not confirmed yet."""
    ask_again_ms: int = 0
    late: bool = False
    serves: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    version: int
    deadline_ms: int


class Propagation:
    def __init__(self, *, limit_ms: int, retry_ms: int) -> None:
        self._limit_ms = limit_ms
        self._retry_ms = retry_ms
        self._peers: dict[int, _Peer] = {}
        self._waits: dict[int, _Wait] = {}
        self._begun = 0

    @property
    def waiting(self) -> bool:
        return bool(self._waits)

    # Events; `step` follows each

    def update_nodes(self, live: Mapping[int, int]) -> None:
        """The other live nodes, with their epochs. A new registration of a node has confirmed nothing."""
        self._peers = {
            node_id: peer
            if (peer := self._peers.get(node_id)) is not None and peer.epoch == epoch
            else _Peer(epoch=epoch)
            for node_id, epoch in live.items()
        }

    def begin(self, version: int, timeout_ms: int, now_ms: int) -> int:
        """A wait for this version; its number."""
        self._begun += 1
        deadline_ms = now_ms + min(timeout_ms, self._limit_ms)
        self._waits[self._begun] = _Wait(version=version, deadline_ms=deadline_ms)
        return self._begun

    def abandon(self, wait: int) -> None:
        self._waits.pop(wait, None)
        self._forget_silence()

    def confirmed(self, question: Question) -> None:
        peer = self._asked(question)
        if peer is not None:
            peer.asked = peer.late = False
            peer.silent_since_ms = None
            peer.reached = max(peer.reached, question.version)

    def failed(self, question: Question, now_ms: int) -> None:
        """No answer, or one that says "not yet": asked again after a pause, as long as somebody waits."""
        peer = self._asked(question)
        if peer is not None:
            peer.asked = False
            peer.ask_again_ms = now_ms + self._retry_ms

    def not_served(self, question: Question) -> None:
        peer = self._asked(question)
        if peer is not None:
            peer.asked = peer.serves = False

    def _asked(self, question: Question) -> _Peer | None:
        """None: an answer of an earlier registration."""
        peer = self._peers.get(question.node_id)
        return peer if peer is not None and peer.epoch == question.node_epoch else None

    # Decisions

    def step(self, now_ms: int) -> Step:
        newest = max((wait.version for wait in self._waits.values()), default=-1)
        questions = tuple(self._questions(newest, now_ms))
        late = tuple(self._become_late(now_ms))
        done = tuple(number for number, wait in self._waits.items() if self._is_done(wait, now_ms))
        for number in done:
            del self._waits[number]
        self._forget_silence()
        return Step(questions=questions, done=done, late=late, next_ms=self._next_ms(now_ms))

    def _questions(self, newest: int, now_ms: int) -> Iterator[Question]:
        """At most one per node at a time, for the newest version that is waited for."""
        for node_id, peer in self._peers.items():
            if peer.serves and not peer.asked and peer.reached < newest and now_ms >= peer.ask_again_ms:
                peer.asked = True
                if peer.silent_since_ms is None:
                    peer.silent_since_ms = now_ms
                yield Question(node_id=node_id, node_epoch=peer.epoch, version=newest)

    def _become_late(self, now_ms: int) -> Iterator[int]:
        for node_id, peer in self._peers.items():
            since_ms = peer.silent_since_ms
            if not peer.late and since_ms is not None and now_ms - since_ms >= self._limit_ms:
                peer.late = True
                yield node_id

    def _is_done(self, wait: _Wait, now_ms: int) -> bool:
        return now_ms >= wait.deadline_ms or not any(self._waited_for(wait))

    def _waited_for(self, wait: _Wait) -> Iterator[_Peer]:
        for peer in self._peers.values():
            if peer.serves and not peer.late and peer.reached < wait.version:
                yield peer

    def _forget_silence(self) -> None:
        """A question that failed and is not repeated, since nobody waits any more, makes no node late."""
        if not self._waits:
            for peer in self._peers.values():
                if not peer.asked and not peer.late:
                    peer.silent_since_ms = None

    def _next_ms(self, now_ms: int) -> int | None:
        if not self._waits:
            return None
        times = [wait.deadline_ms for wait in self._waits.values()]
        for wait in self._waits.values():
            for peer in self._waited_for(wait):
                if not peer.asked:
                    times.append(peer.ask_again_ms)
                if peer.silent_since_ms is not None:
                    times.append(peer.silent_since_ms + self._limit_ms)
        return max(min(times), now_ms)
