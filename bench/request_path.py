# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.request_path produce|fetch|join|replica-fetch`: the functions one request runs through.

Starts a node in this process with its default settings, warms it up, then records by `sys.setprofile` every
function of the package that one request enters, from the socket to the socket, in all threads. Prints for
each step (a callback of the event loop or a job of a thread) modules and functions in order of first entry;
the step that handles the request and the step that sends the reply are marked. Then the modules that are
entered more than once: called from a function of another module, or by the event loop or a thread.
Comprehensions and generated methods of dataclasses and named tuples do not count as functions, nor does
`realworld`, the boundary to the operating system. Of several requests the one with the fewest functions is
shown: timers of the node may interfere.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any, NamedTuple

import uvloop

import headrace
from bench.payloads import plain_batch
from bench.raw_client import RawConnection
from headrace.broker.node import Broker, start_node
from headrace.config import load_config
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.realworld import RealWorld
from headrace.types import Endpoint
from headrace.wire.messages import decode_reply, encode_request

PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, CREATE_TOPICS = 0, 1, 10, 11, 19
PRODUCE_VERSION, FETCH_VERSION, REPLICA_FETCH_VERSION, JOIN_VERSION, CREATE_VERSION = 9, 12, 16, 3, 5
TOPIC, LEADER, FOLLOWER = "request-path", 1, 2
WARM_UP, ATTEMPTS = 20, 10
_PACKAGE = str(headrace.__path__[0])
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_BOUNDARY = "headrace.realworld"
PARTS = {"request": "KafkaConnection.buffer_updated", "reply": "SendQueue.send"}
"""A step that runs through the function handles that part."""


class Entry(NamedTuple):
    """A call of a function; `caller` is the module that called it, None at the begin of a step."""

    module: str
    function: str
    caller: str | None


class Recorder:
    """Records calls of functions of the package while `entries` is a list."""

    def __init__(self) -> None:
        self.entries: list[Entry] | None = None

    def install(self) -> None:
        """For this thread and those that start later."""
        sys.setprofile(self._profile)
        threading.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        entries, code = self.entries, frame.f_code
        if entries is None or event != "call" or not code.co_filename.startswith(_PACKAGE):
            return
        module = frame.f_globals["__name__"]
        if code.co_name not in _COMPREHENSIONS and module != _BOUNDARY:
            entries.append(Entry(module, code.co_qualname, _caller(frame)))

    def record(self, connection: RawConnection, request: bytes) -> list[Entry]:
        recorded: list[Entry] = []
        self.entries = recorded
        connection.call(request)
        self.entries = None
        return recorded


def _caller(frame: FrameType) -> str | None:
    caller = frame.f_back
    while caller is not None:
        name = str(caller.f_globals["__name__"])
        if name.startswith("headrace.") and name != _BOUNDARY:
            return name
        caller = caller.f_back
    return None


# Requests


def _produce(_broker: Broker, acks: int = -1) -> Iterator[bytes]:
    """One batch for one partition, acks=all."""
    partition = {"index": 0, "records": plain_batch(1, 100)}
    topic = {"name": TOPIC, "partition_data": [partition]}
    fields = {"transactional_id": None, "acks": acks, "timeout": 5000, "topic_data": [topic]}
    while True:
        yield encode_request(PRODUCE, PRODUCE_VERSION, 0, "path", fields)


def _fetch(_broker: Broker) -> Iterator[bytes]:
    """A consumer that finds records."""
    while True:
        fields = {"topics": [_fetched(topic=TOPIC)], **_limits()}
        yield encode_request(FETCH, FETCH_VERSION, 0, "path", fields)


def _replica_fetch(broker: Broker) -> Iterator[bytes]:
    """The follower, which has nothing yet and finds records."""
    view = broker.cluster.view
    epoch = view.nodes[FOLLOWER].epoch
    state = {"replica_id": FOLLOWER, "replica_epoch": epoch}
    topic = _fetched(topic_id=view.topics[TOPIC].topic_id)
    while True:
        fields = {"topics": [topic], "replica_state": state, **_limits()}
        yield encode_request(FETCH, REPLICA_FETCH_VERSION, 0, "path", fields)


def _fetched(**topic: Any) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    return {**topic, "partitions": [partition]}


def _limits() -> dict[str, Any]:
    return {
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _join(_broker: Broker) -> Iterator[bytes]:
    """The first member of a new classic group."""
    for number in count():
        fields = {
            "group_id": f"group-{number}",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        yield encode_request(JOIN_GROUP, JOIN_VERSION, 0, "path", fields)


REQUESTS: dict[str, Callable[[Broker], Iterator[bytes]]] = {
    "produce": _produce,
    "fetch": _fetch,
    "join": _join,
    "replica-fetch": _replica_fetch,
}


# The node


async def _run(kind: str, recorder: Recorder) -> list[Entry]:
    with tempfile.TemporaryDirectory() as directory:
        world = RealWorld()
        state = MemoryState(world)
        port = _free_port()
        settings = {
            "node.id": str(LEADER),
            "log.dirs": directory,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "headrace.metrics.port": "-1",
            "headrace.disk.reserve.bytes": "0",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
        }
        broker = await start_node(world, load_config(None, settings, None), MemoryStore(state, world))
        follower = await _register_follower(state) if kind == "replica-fetch" else None
        try:
            return await asyncio.to_thread(_shortest, kind, recorder, broker, port)
        finally:
            if follower is not None:
                await follower.close()
            await broker.stop()


async def _register_follower(state: MemoryState) -> ClusterMetadata:
    """A node that is only known, so that this process does not fetch by itself."""
    world = RealWorld()
    cluster = await ClusterMetadata.open(MemoryStore(state, world), world)
    endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=_free_port())
    await cluster.register_node(
        node_id=FOLLOWER, host_id="h", hostname="h", endpoints=[endpoint], session_ttl_ms=60_000
    )
    return cluster


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _shortest(kind: str, recorder: Recorder, broker: Broker, port: int) -> list[Entry]:
    replicated = kind == "replica-fetch"
    with RawConnection("127.0.0.1", port) as connection:
        _create_topic(connection, replicas=[LEADER, FOLLOWER] if replicated else [LEADER])
        if kind == "join":
            _create_offsets_topic(connection)
        # With acks=all a replicated partition would wait for the follower.
        produce, requests = _produce(broker, 1 if replicated else -1), REQUESTS[kind](broker)
        for _ in range(WARM_UP):
            connection.call(next(produce))
            connection.call(next(requests))
        recorded = [recorder.record(connection, next(requests)) for _ in range(ATTEMPTS)]
    return min(recorded, key=lambda entries: len({(each.module, each.function) for each in entries}))


def _create_topic(connection: RawConnection, replicas: list[int]) -> None:
    assignment = {"partition_index": 0, "broker_ids": replicas}
    topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1}
    topic |= {"assignments": [assignment], "configs": []}
    fields = {"topics": [topic], "timeout": 5000, "validate_only": False}
    reply = connection.call(encode_request(CREATE_TOPICS, CREATE_VERSION, 0, "path", fields))
    code = decode_reply(CREATE_TOPICS, CREATE_VERSION, reply)[1].topics[0].error_code
    if code:
        raise RuntimeError(f"the topic was not created: {code!r}")


def _create_offsets_topic(connection: RawConnection) -> None:
    request = encode_request(FIND_COORDINATOR, 2, 0, "path", {"key": "group", "key_type": 0})
    while decode_reply(FIND_COORDINATOR, 2, connection.call(request))[1].error_code:
        time.sleep(0.1)


# The report


def report(entries: list[Entry]) -> str:
    lines = []
    for step in _steps(entries):
        title = f"{step[0].function}{_part(step)}"
        again = ["  " + _entered_again(step)] if _part(step) else []
        lines += [f"step: {title}", *_modules(step), f"  {_size(step)}", *again, ""]
    return "\n".join([*lines, f"all steps: {_size(entries)}", _entered_again(entries)])


def _part(step: list[Entry]) -> str:
    functions = {each.function for each in step}
    parts = [part for part, function in PARTS.items() if function in functions]
    return f" ({' and '.join(parts)})" if parts else ""


def _entered_again(entries: list[Entry]) -> str:
    entered = Counter(each.module for each in entries if each.module != each.caller)
    again = [f"{module} ({number})" for module, number in entered.items() if number > 1]
    return f"entered more than once: {', '.join(again) or 'none'}"


def _steps(entries: list[Entry]) -> list[list[Entry]]:
    steps: list[list[Entry]] = []
    for entry in entries:
        if entry.caller is None or not steps:
            steps.append([])
        steps[-1].append(entry)
    return steps


def _modules(step: list[Entry]) -> Iterator[str]:
    for module in dict.fromkeys(each.module for each in step):
        yield f"  {module}"
        yield from (f"    {name}" for name in dict.fromkeys(e.function for e in step if e.module == module))


def _size(entries: list[Entry]) -> str:
    functions = {(each.module, each.function) for each in entries}
    return f"{len(functions)} functions in {len({each.module for each in entries})} modules"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.request_path", description=__doc__)
    parser.add_argument("request", choices=REQUESTS)
    recorder = Recorder()
    recorder.install()
    print(report(uvloop.run(_run(parser.parse_args().request, recorder))))


if __name__ == "__main__":
    main()
