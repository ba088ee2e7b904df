"""The broker of a test: one node or several in this process, used like an object.

All methods may be called from any thread; they return when the broker has done it.
Read next: nodes.py (what runs on the loop), world.py (what it runs on), testing/pytest_plugin.py (fixtures).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Literal, TypeVar

from headrace.testing.embedded.durations import seconds
from headrace.testing.embedded.faults import Disconnect, Fault, FaultPlan, Request, find_api, find_error
from headrace.testing.embedded.loop_thread import LoopThread
from headrace.testing.embedded.nodes import Nodes
from headrace.testing.embedded.records import Record
from headrace.wire.api_key import ApiKey

T = TypeVar("T")
Duration = str | float | timedelta
"""`"10m"`, seconds as a number, or a timedelta."""


class Broker:
    """A Kafka broker in this process; `bootstrap` is its address.

        with headrace.testing.Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap})

    `nodes`: how many; with several, topics are replicated as in a cluster. `settings`: of each node, by their
    names in a configuration file. `port`: of the first node, 0 for a free one.
    """

    def __init__(self, *, nodes: int = 1, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        if nodes < 1:
            raise ValueError(f"a broker has at least one node, not {nodes}")
        self._count = nodes
        self._port = port
        self._settings = dict(settings or {})
        self._plan = FaultPlan()
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
            raise RuntimeError("this broker runs already")
        self._thread = LoopThread("headrace.testing")
        self._nodes = Nodes(self._thread.clock, self._plan, self._settings, self._port)
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

    def create_topic(self, name: str, *, partitions: int = 1, **configs: str) -> None:
        """`configs`: of the topic; underscores stand for dots (`retention_ms="1000"`)."""
        given = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self._running().call(self._nodes.create_topic(name, partitions, given))

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
        times: int = 1,
        error: str | None = None,
        disconnect: Literal["before", "after"] | None = None,
        drop: bool = False,
        delay: Duration = 0,
    ) -> None:
        """Lets the next `times` requests fail: those of this API (`"Produce"`) and client id, or of any.

        `error`: the broker does nothing and answers with this error of Kafka's.
        `disconnect`: the connection ends before the broker has seen the request, or after it has carried it
        out. `drop`: it is carried out and never answered. `delay`: the reply comes later.
        """
        if error is None and disconnect is None and not drop and not delay:
            raise ValueError("say how it fails: error=, disconnect=, drop= or delay=")
        if error is not None and api is not None and find_api(api) is ApiKey.METADATA:
            raise ValueError("Metadata cannot fail with an error: its reply has to name the nodes")
        fault = Fault(
            api=None if api is None else find_api(api),
            client=client,
            left=times,
            error=None if error is None else find_error(error),
            disconnect=None if disconnect is None else Disconnect(disconnect),
            drop=drop,
            delay_s=seconds(delay),
        )
        self._now(lambda: self._plan.faults.append(fault))

    # Inspection

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """What is stored, by partition and offset; also records of aborted transactions."""
        return self._now(lambda: self._nodes.records(topic, partition))

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a group has committed, by topic and partition."""
        return self._now(lambda: self._nodes.offsets(group))

    def requests(self, *, api: str | None = None, client: str | None = None) -> list[Request]:
        """The requests of clients, oldest first; the last ten thousand are kept."""
        wanted = None if api is None else find_api(api)
        return self._now(lambda: self._plan.matching(wanted, client))

    def _now(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return self._running().call(run())

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("this broker does not run: use it in a with statement, or call start()")
        return self._thread

    def _end_thread(self) -> None:
        assert self._thread is not None
        self._thread.end()
        self._thread = None
