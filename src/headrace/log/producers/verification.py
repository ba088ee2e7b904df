# SPDX-License-Identifier: Apache-2.0
"""Proof that the transaction coordinator knows of a producer's transaction in this partition (KIP-890).

A guard is taken before the coordinator is asked and handed in with the append that follows its answer. A
marker in between drops it: the answer then speaks of a transaction that has ended. Read next: state.py.
"""

from __future__ import annotations

from headrace.errors import ApiError


class NotVerified(ApiError):
    """The first batch of a transaction came without a guard that holds: its coordinator has to be asked."""


class VerificationGuard:
    """One verification under way. Compared by identity."""

    __slots__ = ("begins_at_zero", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, now_ms: int, *, begins_at_zero: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of the batches that wait for the answer: no other may be written before it."""
        self.begun_ms = now_ms
        self.begins_at_zero = begins_at_zero
        """Transaction version 2: each transaction has a new epoch, so its first sequence is 0."""

    def note(self, epoch: int, sequence: int) -> None:
        """One more batch waits for the same answer."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class VerificationGuards:
    """Those of one partition, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def get(self, producer_id: int) -> VerificationGuard | None:
        return self._guards.get(producer_id)

    def take(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, begins_at_zero: bool
    ) -> VerificationGuard:
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = VerificationGuard(epoch, sequence, now_ms, begins_at_zero=begins_at_zero)
            self._guards[producer_id] = guard
        else:
            guard.note(epoch, sequence)
        return guard

    def drop(self, producer_id: int) -> None:
        self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()

    def expire(self, begun_before_ms: int) -> None:
        self._guards = {
            producer_id: guard
            for producer_id, guard in self._guards.items()
            if guard.begun_ms > begun_before_ms
        }
