# SPDX-License-Identifier: Apache-2.0
"""Streams of one group in threads of a test: they read, pause, and record what they were assigned and read.

A partition that is given to a second one while the first has it fails the test, unless it may be lost. Works
against any Kafka.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import headrace
from headrace.types import TopicPartition
from tests.harness.waiting import wait_until

TIMEOUT_S = 30
QUICK = {"heartbeat_interval_ms": 200, "session_timeout_ms": 2000, "refresh_ms": 300}
"""Options of streams that do not make tests wait."""


class StreamMember:
    """One stream; reads until it is stopped."""

    def __init__(self, group: StreamGroup, name: str, topics: Any, options: dict[str, Any]) -> None:
        self.name = name
        self.values: list[bytes] = []
        self.rebalances: list[tuple[str, list[int]]] = []
        self.owned: set[TopicPartition] = set()
        self.failure: Exception | None = None
        self.pause_s = 0.0
        self._group = group
        self.stream = headrace.stream(
            topics,
            on_assigned=lambda partitions: self._record("assigned", partitions),
            on_revoked=lambda partitions: self._record("revoked", partitions),
            on_lost=lambda partitions: self._record("lost", partitions),
            **options,
        )
        self._commits = options.get("commit", True)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._ending.is_set():
                batch = self.stream.poll(50)
                if batch is not None:
                    self.values += batch["value"].to_pylist()
                    self._ending.wait(self.pause_s)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.failure = error

    def _record(self, kind: str, partitions: list[TopicPartition]) -> None:
        self.rebalances.append((kind, [each.partition for each in partitions]))
        self._group.moved(self, kind, partitions)

    def stop_reading(self) -> None:
        self._ending.set()
        self._thread.join()

    def leave(self) -> None:
        """Done with all that it was given."""
        self.stop_reading()
        if self.failure is None and self._commits and self.stream.assignment():
            self.stream.commit()
        self.stream.close()


class StreamGroup:
    """Use it as a context manager: whoever is still there leaves at the end."""

    def __init__(
        self, bootstrap: str, group: str, topics: Any, *, may_lose: bool = False, **options: Any
    ) -> None:
        self._may_lose = may_lose
        self.members: dict[str, StreamMember] = {}
        self._topics = topics
        self._options = {"bootstrap": bootstrap, "group": group, **QUICK, **options}
        self._owners: dict[TopicPartition, str] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> StreamGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.members):
            self.leave(name)

    def join(self, name: str, **options: Any) -> StreamMember:
        member = StreamMember(self, name, self._topics, self._options | options)
        self.members[name] = member
        return member

    def leave(self, name: str) -> StreamMember:
        member = self.members.pop(name)
        member.leave()
        return member

    def moved(self, member: StreamMember, kind: str, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for each in partitions:
                if kind == "assigned":
                    owner = self._owners.get(each)
                    if owner is not None and not self._may_lose:
                        raise AssertionError(f"{each} was given to {member.name} while {owner} had it")
                    self._owners[each] = member.name
                    member.owned.add(each)
                else:
                    member.owned.discard(each)
                    if self._owners.get(each) == member.name:
                        del self._owners[each]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        def holds_or_fails() -> bool:
            if holds():
                return True
            for member in self.members.values():
                if member.failure is not None:
                    raise member.failure
            return False

        wait_until(holds_or_fails, lambda: f"{what}; owned: {self.shares()}", timeout_s=TIMEOUT_S)

    def until_shared(self, *sizes: int) -> None:
        """Until the members have so many partitions each, in any order."""
        self.until(
            lambda: sorted(len(m.owned) for m in self.members.values()) == sorted(sizes), f"shares {sizes}"
        )

    def until_read(self, values: Iterable[bytes], *, also: Callable[[], list[bytes]] = list) -> None:
        """Until all of these were read by anybody, by each member of the group just once."""
        wanted = Counter(values)
        self.until(lambda: not wanted - Counter(self.values() + also()), "everything is read")

    def values(self) -> list[bytes]:
        return [value for member in self.members.values() for value in member.values]

    def shares(self) -> dict[str, list[TopicPartition]]:
        return {name: sorted(member.owned) for name, member in self.members.items()}
