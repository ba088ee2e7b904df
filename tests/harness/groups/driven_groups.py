# SPDX-License-Identifier: Apache-2.0
"""Groups under a real driver, whose log is bytes in memory: what it appends is what a load reads.

Everything is committed when it is appended. Time and turns of the event loop pass when the test says so.
Read next: broker/coordinators/machine_driver.py, broker/coordinators/machine_loading.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from headrace.broker.coordinators.machine_driver import Check, MachineDriver, MachineKind
from headrace.broker.coordinators.machine_loading import MachineLoading
from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.broker.groups.group_log import pack_group_record, read_group_record
from headrace.errors import ApiError
from headrace.machines.groups.events import GroupRequest, OffsetCommit, OffsetToCommit
from headrace.machines.groups.group import Group, GroupSettings
from headrace.machines.groups.offsets import OffsetsSettings
from headrace.machines.machine import Event, Loaded, Question, ReplyBody, ReplyToken
from headrace.types import ClusterView, TopicPartition
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.coordinator.group_records import TransactionMarkerRecord
from headrace.wire.coordinator.record import BatchProducer
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch, read_records

RETENTION_MS = 60_000
SETTINGS = GroupSettings(offsets=OffsetsSettings(retention_ms=RETENTION_MS))
VIEW = ClusterView(version=1, cluster_id="c")


class LoggedRecord(NamedTuple):
    header: BatchHeader
    record: Record

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional and not self.header.is_control

    def alone(self) -> bytearray:
        """A batch of this record only."""
        header = self.header
        return build_batch(
            [self.record],
            base_offset=self.record.offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )


class MemoryLog:
    """A partition that this node leads alone."""

    topic_partition = TopicPartition("__consumer_offsets", 0)
    leads = True

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_end_offset = 0
        self.role = SimpleNamespace(needs_insync=False)

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    def append_own(self, batch: bytearray) -> int:
        count = read_header(batch).record_count
        batch[:8] = self.log_end_offset.to_bytes(8, "big")
        self.batches.append(bytes(batch))
        self.log_end_offset += count
        return self.log_end_offset - 1

    def append_marker(self, producer: BatchProducer, *, committed: bool) -> int:
        record = Record(0, 1, b"\0\0\0%c" % committed, b"\0\0\0\0\0\x09")
        return self.append_own(
            build_batch(
                [record],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                is_transactional=True,
                is_control=True,
            )
        )

    def wait_for_ack(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None:
        raise AssertionError("all that is appended is committed")

    def records(self) -> list[LoggedRecord]:
        return [
            LoggedRecord(read_header(batch), record)
            for batch in self.batches
            for record in read_records(memoryview(batch))
        ]


class _Tasks:
    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.soon.append(partial(callback, *args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Any:
        return SimpleNamespace(cancel=lambda: None)


class DrivenGroups:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.log = MemoryLog()
        self.tasks = _Tasks()
        clock = SimpleNamespace(monotonic=lambda: self.now_ms / 1000, wall_ms=lambda: self.now_ms)
        self._world: Any = SimpleNamespace(clock=clock, tasks=self.tasks)
        self.driver = self._new_driver()
        self.driver.serve()

    def _new_driver(self) -> MachineDriver[Group]:
        return MachineDriver(
            world=self._world,
            partition=self.log,
            kind=MachineKind(
                make=new_group,
                pack=pack_group_record,
                answer_question=_no_question,
                committed=lambda *_: None,
            ),
            timers=MachineTimers(self._world.clock, self._world.tasks),
            commit_timeout_ms=5_000,
            on_end=lambda: None,
        )

    def turn(self) -> None:
        """The end of the turn of the event loop: open batches are appended."""
        while self.tasks.soon:
            self.tasks.soon.pop(0)()

    @property
    def all_written(self) -> bool:
        return not self.tasks.soon

    def ask(
        self, group_id: str, request: type[GroupRequest], *, check: Check | None = None, **fields: Any
    ) -> ReplyBody:
        def make_event(token: ReplyToken) -> Event:
            return request(token=token, **{"version": 9, **fields})

        return self._answer_to(partial(self.driver.submit, group_id, make_event, check=check))

    def commit(
        self,
        group_id: str,
        *offsets: OffsetToCommit,
        producer: BatchProducer | None = None,
        wait: bool = True,
        **fields: Any,
    ) -> ReplyBody | None:
        def make_event(token: ReplyToken) -> Event:
            if producer is not None:
                fields.update(producer_id=producer.producer_id, producer_epoch=producer.epoch)
            return OffsetCommit.of(offsets, token=token, version=9, **fields)

        submit = partial(self.driver.submit, group_id, make_event, check=(lambda: None) if producer else None)
        if wait:
            return self._answer_to(submit)
        submit(lambda _: None)
        return None

    def end_transaction(self, producer: BatchProducer, *, committed: bool) -> None:
        marker = TransactionMarkerRecord(producer_id=producer.producer_id, committed=committed)
        append = partial(self.log.append_marker, producer, committed=committed)
        self._answer_to(partial(self.driver.end_transaction, producer.producer_id, marker, append))

    def _answer_to(self, submit: Callable[[Callable[[ReplyBody | ApiError], None]], None]) -> ReplyBody:
        answers: list[ReplyBody | ApiError] = []
        submit(answers.append)
        self.turn()
        (answer,) = answers
        if isinstance(answer, ApiError):
            raise answer
        return answer

    # Another coordinator

    def loaded(self, batches: Iterable[bytes | bytearray]) -> MachineLoading[Group]:
        loading = MachineLoading[Group]("the log", new_group, read_group_record)
        for batch in batches:
            loading._apply_batch(read_header(batch), memoryview(batch))
        return loading

    def reload(self) -> None:
        self.turn()
        loading = self.loaded(self.log.batches)
        self.driver.end()
        self.driver = self._new_driver()
        self.driver.set_machines(loading.machines, 1, loading.transactions)
        for name in self.driver.names():
            self.driver.notify(name, Loaded())
        self.driver.serve()

    def snapshots(self) -> dict[str, Any]:
        return {name: group.snapshot() for name in self.driver.names() if (group := self.driver.get(name))}

    def replayed_snapshots(self) -> dict[str, Any]:
        return present(self.loaded(self.log.batches))

    def compacted_snapshots(self) -> dict[str, Any]:
        return present(self.loaded(record.alone() for record in compacted(self.log.records())))


def new_group(group_id: str) -> Group:
    return Group(group_id, SETTINGS, VIEW)


async def _no_question(question: Question) -> Event:
    raise AssertionError(question)


def present(loading: MachineLoading[Group]) -> dict[str, Any]:
    return {name: group.snapshot() for name, group in loading.machines.items() if not group.is_gone}


def compacted(records: list[LoggedRecord]) -> list[LoggedRecord]:
    """What compaction may leave at the least: the last committed record of each key below the last stable
    offset, and all markers and tombstones."""
    stable = next((place for place, each in enumerate(records) if _end(records, place) is None), len(records))
    last = {
        each.record.key: place
        for place, each in enumerate(records[:stable])
        if not each.header.is_control and _end(records, place)
    }
    return [
        each
        for place, each in enumerate(records)
        if place >= stable or each.header.is_control or last.get(each.record.key) == place
    ]


def _end(records: list[LoggedRecord], place: int) -> bool | None:
    """Whether the record counts; None while its transaction is open."""
    found = records[place]
    if not found.is_transactional:
        return True
    for later in records[place:]:
        if later.header.is_control and later.header.producer_id == found.header.producer_id:
            return (later.record.key or b"")[3] == 1
    return None
