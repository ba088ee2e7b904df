# SPDX-License-Identifier: Apache-2.0
"""The broker of a test: one node or several in this process, used like an object.

All methods may be called from any thread; they return when the broker has done it.
Read next: nodes.py (what runs on the loop), world.py (what it runs on), testing/pytest_plugin.py (fixtures).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

from headrace.testing.embedded.durations import seconds
from headrace.testing.embedded.expectations import (
    Expected,
    difference,
    fields_expected,
    matches,
    too_few,
    wait_for,
)
from headrace.testing.embedded.faults import Fault, find_disconnect
from headrace.testing.embedded.loop_thread import LoopThread
from headrace.testing.embedded.names import find_api, find_error
from headrace.testing.embedded.nodes import Nodes
from headrace.testing.embedded.received import Request
from headrace.testing.embedded.records import Record

T = TypeVar("T")
Duration = str | float | timedelta
"""`"10m"`, seconds as a number, or a timedelta."""
Setting = str | int | float | bool


class Broker:
    """A Kafka broker in this process; `bootstrap` is its address.

        with headrace.testing.Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap})

    `nodes`: how many; with several, topics are replicated as in a cluster. `settings`: of each node, by their
    names in a configuration file. `port`: of the first node, 0 for a free one. `disk`: `"memory"`,
    `"temporary"` (a folder that is removed by `stop`), or the path of a folder, whose data is kept.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        port: int = 0,
        disk: str | os.PathLike[str] = "memory",
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a broker has at least one node, not {nodes}")
        self._count = nodes
        self._port = port
        self._disk = disk
        self._settings = {name: _setting(value) for name, value in (settings or {}).items()}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._nodes: Nodes

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # Start and stop

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this broker is already running")
        self._thread = LoopThread("headrace.testing")
        folder = self._folder()
        self._nodes = Nodes(self._thread.clock, self._settings, port=self._port, folder=folder)
        try:
            self._thread.call(self._nodes.start(self._count))
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Does nothing when it does not run."""
        if self._thread is not None:
            try:
                self._thread.call(self._nodes.stop())
            finally:
                self._end_thread()

    @property
    def bootstrap(self) -> str:
        """The addresses of the nodes, for `bootstrap.servers`."""
        self._running()
        return self._nodes.bootstrap

    def crash(self, node: int = 1, *, power_cut: bool = False) -> None:
        """Ends a node as SIGKILL does. `power_cut`: what it had not flushed to its disk is lost, too."""
        self._running().call(self._nodes.crash(node, power_cut=power_cut))

    def restart(self, node: int = 1) -> None:
        """Starts a crashed node again, on the same port and disk."""
        self._running().call(self._nodes.restart(node))

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, Setting] | None = None,
        **named: Setting,
    ) -> None:
        """Settings of the topic by name, or by keyword with underscores for dots (`retention_ms=1000`)."""
        given = {**(configs or {}), **{key.replace("_", "."): value for key, value in named.items()}}
        texts = {key: _setting(value) for key, value in given.items()}
        self._running().call(self._nodes.create_topic(name, partitions, texts))

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Makes the node `to` the leader of a partition that it has an in-sync replica of."""
        self._running().call(self._nodes.move_leader(topic, partition, to))

    # Time

    def advance(self, duration: Duration, *, expire: str | Iterable[str] = ()) -> None:
        """Moves the broker's time: retention, transactions and sessions expire as if that time had passed.

        Members of consumer groups count as having sent their heartbeats meanwhile, but for those whose client
        id, member id or group `expire` names.
        """
        names = (expire,) if isinstance(expire, str) else tuple(expire)
        thread = self._running()
        thread.call(self._nodes.advance(thread.loop, seconds(duration), names))

    # Faults

    def fail(
        self,
        *,
        api: str | None = None,
        client: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = 1,
        error: str | None = None,
        disconnect: Literal["before", "after"] | None = None,
        drop: bool = False,
        delay: Duration = 0,
        move_leader_to: int | None = None,
    ) -> Fault:
        """Lets the next `times` requests fail (None: all): of this API (`"Produce"`), client id, topic and
        partition, or any.

        `error`: the broker does nothing and answers with this error of Kafka's.
        `disconnect`: the connection ends before the broker has seen the request, or after it has carried it
        out. `drop`: it is carried out and never answered. `delay`: the reply comes later.
        `move_leader_to`: before the broker sees the request, this node becomes the leader of the partition.
        The attribute `met` of the result counts the requests that have failed.
        """
        fault = Fault(
            api=None if api is None else find_api(api),
            client=client,
            topic=topic,
            partition=partition,
            times=times,
            error=None if error is None else find_error(error),
            disconnect=None if disconnect is None else find_disconnect(disconnect),
            drop=drop,
            delay_s=seconds(delay),
            move_leader_to=move_leader_to,
        )
        fault.check()
        self._now(lambda: self._nodes.plan.ordered.append(fault))
        return fault

    def heal(self) -> None:
        """Forgets all faults: requests succeed from now on."""
        self._now(self._nodes.plan.ordered.clear)

    @property
    def faults(self) -> list[Fault]:
        """Those ordered by `fail` that are not over."""
        return self._now(lambda: [each for each in self._nodes.plan.ordered if not each.is_over])

    def assert_faults_met(self) -> None:
        """Every fault has been met by a request at least once: otherwise the test has not tested it."""
        report = self._now(self._nodes.plan.unmet_report)
        if report is not None:
            raise AssertionError(report)

    # Inspection

    def records(self, topic: str, partition: int | None = None, *, committed: bool = False) -> list[Record]:
        """What is stored, by partition and offset.

        `committed`: what a consumer with `isolation.level=read_committed` gets: nothing of open and aborted
        transactions.
        """
        return self._now(lambda: self._nodes.records(topic, partition, committed=committed))

    def wait_for_records(
        self,
        topic: str,
        count: int = 1,
        *,
        partition: int | None = None,
        committed: bool = False,
        timeout: Duration = 10,
    ) -> list[Record]:
        """All records of a topic, when there are at least `count`. AssertionError when there are not in time.

        The topic may be created meanwhile.
        """
        allowed = seconds(timeout)
        found, enough = wait_for(
            lambda: self._records_if_any(topic, partition, committed),
            lambda records: len(records) >= count,
            allowed,
        )
        if not enough:
            raise AssertionError(too_few(_place(topic, partition), found, count, allowed))
        return found

    def assert_records(
        self,
        topic: str,
        expected: Sequence[Expected],
        *,
        partition: int | None = None,
        committed: bool = False,
        in_order: bool = True,
        timeout: Duration = 10,
    ) -> None:
        """A topic holds exactly these records, now or within the time.

        Each is expected as its value, as (key, value), or as a dict with some of its fields (`key`, `value`,
        `headers`, `partition`, `offset`, `timestamp_ms`); texts stand for their UTF-8 bytes.
        """
        wanted = [fields_expected(each) for each in expected]
        allowed = seconds(timeout)
        found, enough = wait_for(
            lambda: self._records_if_any(topic, partition, committed),
            lambda records: matches(records, wanted, in_order=in_order),
            allowed,
        )
        if not enough:
            raise AssertionError(difference(_place(topic, partition), found, wanted, allowed))

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition."""
        return self._now(lambda: self._nodes.offsets(group))

    def lag(self, group: str, topic: str | None = None) -> dict[tuple[str, int], int]:
        """How far a group's committed offsets are behind the ends of a topic, or of all that it has read."""
        return self._now(lambda: self._nodes.lag(group, topic))

    def members(self, group: str) -> list[str]:
        """The client ids of a group's members."""
        return self._now(lambda: self._nodes.members(group))

    def wait_for_members(self, group: str, count: int = 1, *, timeout: Duration = 10) -> list[str]:
        """The members of a group, when there are `count`. AssertionError when there are not in time."""
        allowed = seconds(timeout)
        found, enough = wait_for(lambda: self.members(group), lambda seen: len(seen) == count, allowed)
        if not enough:
            raise AssertionError(
                f"group {group} has {len(found)} of {count} expected members after {allowed:g} s: {found}"
            )
        return found

    def wait_until_consumed(self, group: str, topic: str, *, timeout: Duration = 10) -> None:
        """Until a group has committed what a topic holds. AssertionError when it has not."""
        allowed = seconds(timeout)
        left, enough = wait_for(lambda: self._unread(group, topic), lambda seen: not seen, allowed)
        if not enough:
            raise AssertionError(
                f"group {group} has not committed {len(left)} records of {topic} after {allowed:g} s, first "
                f"{left[0]}; committed: {self.offsets(group)}, members: {self.members(group)}"
            )

    def requests(
        self, *, api: str | None = None, client: str | None = None, topic: str | None = None
    ) -> list[Request]:
        """The requests of clients, oldest first; the last ten thousand are kept."""
        wanted = None if api is None else find_api(api)

        def found() -> list[Request]:
            return [each.plain() for each in self._nodes.plan.requests.matching(wanted, client, topic)]

        return self._now(found)

    def wait_for_requests(
        self,
        count: int = 1,
        *,
        api: str | None = None,
        client: str | None = None,
        topic: str | None = None,
        timeout: Duration = 10,
    ) -> list[Request]:
        """Those requests, when there are at least `count`. AssertionError when there are not in time."""
        allowed = seconds(timeout)
        found, enough = wait_for(
            lambda: self.requests(api=api, client=client, topic=topic),
            lambda requests: len(requests) >= count,
            allowed,
        )
        if not enough:
            asked = {"api": api, "client": client, "topic": topic}
            which = ", ".join(f"{name}={value!r}" for name, value in asked.items() if value is not None)
            raise AssertionError(
                f"{len(found)} of {count} expected requests ({which or 'any'}) after {allowed:g} s: {found}"
            )
        return found

    def _records_if_any(self, topic: str, partition: int | None, committed: bool) -> list[Record]:
        def found() -> list[Record]:
            if not self._nodes.has_topic(topic):
                return []
            return self._nodes.records(topic, partition, committed=committed)

        return self._now(found)

    def _unread(self, group: str, topic: str) -> list[Record]:
        def found() -> list[Record]:
            committed = self._nodes.offsets(group)
            records = self._nodes.records(topic, None, committed=True)
            return [each for each in records if each.offset >= committed.get((topic, each.partition), 0)]

        return self._now(found)

    def _now(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return self._running().call(run())

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("this broker is not running: use it in a with statement, or call start()")
        return self._thread

    def _folder(self) -> Path | None:
        if self._disk == "memory":
            return None
        if self._disk == "temporary":
            self._temporary = tempfile.TemporaryDirectory(prefix="headrace-")
            return Path(self._temporary.name)
        return Path(self._disk).absolute()

    def _end_thread(self) -> None:
        assert self._thread is not None
        self._thread.end()
        self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def _setting(value: Setting) -> str:
    """As a configuration file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(topic: str, partition: int | None) -> str:
    return f"topic {topic}" if partition is None else f"partition {partition} of {topic}"
