# SPDX-License-Identifier: Apache-2.0
"""Go clients in groups, unmodified: franz-go (both protocols), sarama, kafka-go; members come and go."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.wire.error_codes import ErrorCode
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import poll, wait_until

pytestmark = [pytest.mark.compat_go, pytest.mark.row("D12"), pytest.mark.row("D17")]

CONSUMER_GROUP_DESCRIBE = 69
PARTITIONS = 4
WITHIN_S = 40
NODE_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}
BALANCERS = [
    *(("franz", balancer) for balancer in ("range", "roundrobin", "sticky", "cooperative", "server")),
    *(("sarama", balancer) for balancer in ("range", "roundrobin", "sticky")),
    *(("segmentio", balancer) for balancer in ("range", "roundrobin")),
]


class GoMember:
    """A member in a process of its own until its standard input is closed."""

    def __init__(self, program: Path, bootstrap: str, topic: str, balancer: str) -> None:
        command = [str(program), "-mode", "group", "-bootstrap", bootstrap, "-topic", topic]
        command += ["-group", f"group-of-{topic}", "-balancer", balancer]
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def leave(self) -> None:
        """In good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(WITHIN_S) == 0, self.lines
        self._reader.join()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def records(self) -> list[tuple[int, int]]:
        """Partition and value of each that it processed."""
        found = [re.fullmatch(r"record (\d+) \d+ (\d+)", line) for line in list(self.lines)]
        return [(int(match[1]), int(match[2])) for match in found if match]

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for line in list(self.lines):
            if match := re.fullmatch(r"(assigned|revoked|lost) (\d+)", line):
                owned = owned | {int(match[2])} if match[1] == "assigned" else owned - {int(match[2])}
        return owned


def wait_for(condition: Callable[[], bool], *members: GoMember) -> None:
    wait_until(condition, lambda: [member.lines[-10:] for member in members], timeout_s=WITHIN_S)


@pytest.fixture(scope="module")
def group_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("groups"), settings=NODE_SETTINGS) as node:
        yield node


@pytest.mark.parametrize(("client", "balancer"), BALANCERS)
def test_go_members_come_and_go_and_every_record_is_processed(
    go_program: Callable[[str], Path], group_node: NodeProcess, topic: str, client: str, balancer: str
) -> None:
    producer = Producer({"bootstrap.servers": group_node.bootstrap})
    sent = 0

    def produce(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        sent += count
        assert producer.flush(20) == 0

    with RawClient(group_node.bootstrap) as admin, ExitStack() as stack:
        admin.create_topic(topic, PARTITIONS)

        def start() -> GoMember:
            member = GoMember(go_program(client), group_node.bootstrap, topic, balancer)
            stack.callback(member.end)
            return member

        first = start()
        produce(20)
        wait_for(lambda: len(set(first.records)) == 20, first)
        second = start()
        both_read(first, second, produce)
        if client != "segmentio":  # its Reader does not tell
            wait_for(lambda: len(first.owned) == len(second.owned) == 2, first, second)
            assert not first.owned & second.owned
        described = admin.call(CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [f"group-of-{topic}"]}).groups[0]
        assert (described.error_code is ErrorCode.none) == (balancer == "server"), "the protocol asked for"
        second.leave()
        produce(20)
        wait_for(lambda: len(set(first.records + second.records)) == sent, first, second)
        values = {value for _, value in first.records + second.records}
        assert values == set(range(sent))


def both_read(first: GoMember, second: GoMember, produce: Callable[[int], None]) -> None:
    """Records flow until both members have had some of two partitions that the other does not read."""

    def share() -> bool:
        first_had, second_had = len(first.records), len(second.records)
        produce(8)
        return poll(lambda: _are_apart(first.records[first_had:], second.records[second_had:]), timeout_s=0.7)

    wait_for(share, first, second)


def _are_apart(of_first: Sequence[tuple[int, int]], of_second: Sequence[tuple[int, int]]) -> bool:
    partitions = [{partition for partition, _ in records} for records in (of_first, of_second)]
    return [len(each) for each in partitions] == [2, 2] and not partitions[0] & partitions[1]
