# SPDX-License-Identifier: Apache-2.0
"""Group members as applications have them: confluent-kafka consumers, each in a thread or in a process.

They note what they own and when records arrive. `python -m bench.group_consumers` is the member that a
measure kills. Knows no engine.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

CLASSIC, MODERN = "classic", "consumer"
"""As the setting group.protocol calls them."""
SESSION_MS = 6000
HEARTBEAT_MS = 100
_STABLE_SECONDS = 30.0


def consumer_settings(bootstrap: str, group: str, protocol: str) -> dict[str, Any]:
    """KIP-848 clients take interval and session from the broker: COORDINATOR_PROFILE has the same there."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    if protocol == CLASSIC:
        settings |= {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
    return settings


class GroupConsumer:
    """One consumer polled by a thread of its own from `start` on."""

    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        self.owned: set[int] = set()
        self.arrivals: list[tuple[float, int]] = []
        """When a record came, and of which partition."""
        self.failure: Exception | None = None
        self._consumer = Consumer(consumer_settings(bootstrap, group, protocol))
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{group} {protocol}")

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """In good order: it says so to the coordinator."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self._stopping.is_set():
                message = self._consumer.poll(0.02)
                if message is None or message.error():
                    continue
                if (partition := message.partition()) is not None:
                    self.arrivals.append((time.perf_counter(), partition))
        except Exception as error:  # noqa: BLE001 - shown by whoever waits for this consumer
            self.failure = error
        finally:
            self._consumer.close()

    def _assigned(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.owned |= {partition.partition for partition in partitions}

    def _revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.owned -= {partition.partition for partition in partitions}

    def longest_gap(self, since: float) -> float:
        """The longest time without a record from then on, in seconds."""
        times = [when for when, _ in self.arrivals if when >= since]
        if len(times) < 2:
            raise KafkaException("a survivor saw no records")
        return max(later - earlier for earlier, later in pairwise(times))

    def first_of(self, partitions: set[int], since: float) -> dict[int, float]:
        """When the first record of each of these partitions came after that moment."""
        recent = takewhile(lambda arrival: arrival[0] >= since, reversed(self.arrivals))
        return {partition: when for when, partition in recent if partition in partitions}


def wait_until_shared(
    consumers: Sequence[GroupConsumer], shares: Sequence[int], *, timeout_s: float = _STABLE_SECONDS
) -> None:
    """Until they own so many partitions each, in any order, and none twice."""

    def is_shared() -> bool:
        owned = [set(consumer.owned) for consumer in consumers]
        return sorted(map(len, owned)) == sorted(shares) and len(set().union(*owned)) == sum(shares)

    wait_for(is_shared, f"partitions shared as {shares}", consumers, timeout_s=timeout_s)


def wait_for(
    condition: Callable[[], bool],
    what: str,
    consumers: Sequence[GroupConsumer],
    *,
    timeout_s: float = _STABLE_SECONDS,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        for consumer in consumers:
            if consumer.failure is not None:
                raise consumer.failure
        if time.monotonic() > deadline:
            owned = [sorted(consumer.owned) for consumer in consumers]
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what}; owned are {owned}")
        time.sleep(0.002)


def wait_until_read(consumers: Sequence[GroupConsumer], since: float) -> None:
    """Until each has had a record of everything that it owns after that moment."""

    def is_read() -> bool:
        return all(
            consumer.owned and consumer.owned == consumer.first_of(consumer.owned, since).keys()
            for consumer in consumers
        )

    wait_for(is_read, "a record of every partition", consumers)


def start_process(bootstrap: str, topic: str, group: str, protocol: str) -> subprocess.Popen[str]:
    """A member in a process of its own; it prints what it owns whenever that changes."""
    command = [sys.executable, "-m", "bench.group_consumers", bootstrap, topic, group, protocol]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def wait_until_owned(process: subprocess.Popen[str], count: int) -> set[int]:
    assert process.stdout is not None
    for line in process.stdout:
        owned = {int(partition) for partition in line.split()}
        if len(owned) == count:
            return owned
    raise KafkaException(f"a member process ended with {process.wait()} before it owned {count} partitions")


def main() -> None:
    member = GroupConsumer(*sys.argv[1:5])
    member.start()
    shown: set[int] = set()
    while member.failure is None:
        if member.owned != shown:
            shown = set(member.owned)
            print(*sorted(shown), flush=True)
        member.arrivals.clear()
        time.sleep(0.01)
    raise member.failure


if __name__ == "__main__":
    main()
