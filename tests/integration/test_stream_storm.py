# SPDX-License-Identifier: Apache-2.0
"""Members of a group of streams come and go while records come in: every record is read once, in order."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.groups.stream_members import StreamGroup, StreamMember
from tests.harness.live.node import NodeProcess

PARTITIONS = 6
MOST_MEMBERS = 4

KINDS = {
    "eager": {"protocol": "classic", "assignor": "roundrobin"},
    "cooperative": {"protocol": "classic", "assignor": "cooperative-sticky"},
    "consumer": {"protocol": "consumer"},
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("storm"), settings=QUICK_GROUPS) as node:
        yield node.bootstrap


class Writer:
    """Writes numbers, each partition's in order, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: list[bytes] = []
        self._ending = threading.Event()
        self._bootstrap, self._topic = bootstrap, topic
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        for start in itertools.count(0, 30):
            if self._ending.is_set():
                return
            values = [b"%d %d" % (number % PARTITIONS, number) for number in range(start, start + 30)]
            places = [number % PARTITIONS for number in range(start, start + 30)]
            rows = pa.table({"value": values, "partition": places})
            headrace.write(rows, self._topic, bootstrap=self._bootstrap, partition="partition")
            self.written += values
            self._ending.wait(0.02)

    def end(self) -> list[bytes]:
        self._ending.set()
        self._thread.join()
        return self.written


def storm(bootstrap: str, topic: str, seed: int, steps: int, options: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    chance = random.Random(seed)
    gone: list[StreamMember] = []
    writer = Writer(bootstrap, topic)
    with StreamGroup(bootstrap, topic, topic, **options) as group:
        names = (f"member {number}" for number in itertools.count())
        group.join(next(names))
        for _ in range(steps):
            time.sleep(chance.uniform(0, 0.4))  # the next change comes at any moment
            if len(group.members) < MOST_MEMBERS and chance.random() < 0.55:
                group.join(next(names))
            elif len(group.members) > 1:
                gone.append(group.leave(chance.choice(sorted(group.members))))
        written = writer.end()
        everybody = [*gone, *group.members.values()]
        group.until_read(written, also=lambda: [value for member in gone for value in member.values])
    assert [member.failure for member in everybody] == [None] * len(everybody)
    assert Counter(value for member in everybody for value in member.values) == Counter(written)
    for member in everybody:
        for partition in range(PARTITIONS):
            own = [int(value.split()[1]) for value in member.values if value.startswith(b"%d " % partition)]
            assert own == sorted(own)


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(quick: str, topic: str, kind: str) -> None:
    storm(quick, topic, seed=1, steps=10, options=KINDS[kind])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go_for_long(quick: str, topic: str, kind: str, seed: int) -> None:
    storm(quick, topic, seed=seed, steps=60, options=KINDS[kind])
