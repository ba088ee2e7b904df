# SPDX-License-Identifier: Apache-2.0
"""A blocking client for tests on real sockets: any bytes out, whole frames in. Knows no retries, no metadata.

`RawClient.call` sends a proper request; `send` anything at all. Canary is a well-behaved client that works
and measures beside whatever a test does to the node.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply, encode_request
from headrace.wire.records import Record, build_batch
from tests.harness.waiting import poll

_LENGTH = struct.Struct(">i")


class RawClient:
    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 10,
        receive_buffer: int | None = None,
        address: str | None = None,
    ) -> None:
        """`address`: the client's own, another one of 127.0.0.0/8."""
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        if address is not None:
            self.socket.bind((address, 0))
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next frame without its length; None when the node closed the connection."""
        head = self._receive_exactly(4)
        return None if head is None else self._receive_exactly(_LENGTH.unpack(head)[0])

    def _receive_exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            data += chunk
        return bytes(data)

    def is_closed_by_node(self, within_s: float) -> bool:
        """Whether the node ends the connection in time; what it still sends is read and dropped."""
        deadline = time.monotonic() + within_s
        try:
            while (left := deadline - time.monotonic()) > 0:
                self.socket.settimeout(left)
                if not self.socket.recv(1 << 16):
                    return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return False

    def frame(self, api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        self._correlation_id += 1
        return encode_request(api_key, version, self._correlation_id, "raw", fields)

    def call(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        self.send(self.frame(api_key, version, fields))
        frame = self.receive()
        if frame is None:
            raise ConnectionResetError("the node closed the connection")
        correlation_id, reply = decode_reply(api_key, version, memoryview(frame))
        assert correlation_id == self._correlation_id
        return reply

    # -- what tests often need ------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        reply = self.call(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000})
        code = reply.topics[0].error_code
        if code is not ErrorCode.none:
            raise AssertionError(f"{name} was not created: {code.name}")

    def produce_frame(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> bytes:
        data = {"index": partition, "records": batch}
        topics = [{"name": topic, "partition_data": [data]}]
        fields = {"transactional_id": None, "acks": acks, "timeout": 30_000, "topic_data": topics}
        return self.frame(ApiKey.PRODUCE, 8, fields)

    def produce(
        self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1
    ) -> tuple[ErrorCode, int]:
        """(error, base offset)."""
        self.send(self.produce_frame(topic, batch, partition=partition, acks=acks))
        frame = self.receive()
        if frame is None:
            raise ConnectionResetError("the node closed the connection")
        result = decode_reply(ApiKey.PRODUCE, 8, memoryview(frame))[1].responses[0].partition_responses[0]
        return result.error_code, result.base_offset

    def fetch(
        self, topic: str, offset: int, *, partition: int = 0, max_bytes: int = 1 << 20, max_wait: int = 100
    ) -> bytes:
        place = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        fields = {
            "replica_id": -1,
            "max_wait": max_wait,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [place]}],
        }
        data = self.call(ApiKey.FETCH, 11, fields).responses[0].partitions[0]
        if data.error_code is not ErrorCode.none:
            raise AssertionError(f"fetch of {topic}-{partition} at {offset}: {data.error_code.name}")
        return bytes(data.records or b"")

    def end_offset(self, topic: str, partition: int = 0) -> int:
        place = {"partition_index": partition, "timestamp": -1}
        fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [place]}]}
        answer = self.call(ApiKey.LIST_OFFSETS, 5, fields).topics[0].partitions[0]
        if answer.error_code is not ErrorCode.none:
            raise AssertionError(f"end offset of {topic}-{partition}: {answer.error_code.name}")
        return int(answer.offset)


def simple_batch(*values: bytes, **options: Any) -> bytes:
    now_ms = int(time.time() * 1000)
    records = [Record(place, now_ms, None, value) for place, value in enumerate(values)]
    return bytes(build_batch(records, **options))


class Canary:
    """Produces and fetches beside a test, a round trip every few milliseconds. Use as a context manager."""

    def __init__(self, bootstrap: str, *, topic: str = "canary", pause_s: float = 0.005) -> None:
        self.latencies_s: list[float] = []
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._topic = topic
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary")

    def __enter__(self) -> Canary:
        with RawClient(self._bootstrap) as client:
            client.create_topic(self._topic)
        self._thread.start()
        self.wait_for_rounds(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_rounds(self, count: int, *, within_s: float = 20) -> None:
        """Returns after that many further round trips."""
        goal = len(self.latencies_s) + count
        poll(lambda: len(self.latencies_s) >= goal or self.failure, timeout_s=within_s)
        assert len(self.latencies_s) >= goal, f"the well-behaved client got stuck: {self.failure!r}"

    def begin(self) -> int:
        """A mark: `check` looks at what came after it."""
        return len(self.latencies_s)

    def check(self, since: int = 0, *, p99_ms: float = 2_000) -> float:
        """Fails when a round trip failed or the slowest hundredth took too long; returns that p99 in ms."""
        if self.failure is not None:
            raise AssertionError(f"the well-behaved client failed: {self.failure!r}")
        latencies = sorted(self.latencies_s[since:])
        assert latencies, "the well-behaved client made no round trip"
        worst_ms = latencies[int(len(latencies) * 0.99)] * 1000
        assert worst_ms <= p99_ms, f"p99 of the well-behaved client: {worst_ms:.0f} ms"
        return worst_ms

    def _run(self) -> None:
        try:
            with RawClient(self._bootstrap) as client:
                number = 0
                while not self._stopping.is_set():
                    self._one_round(client, f"canary {number}".encode())
                    number += 1
                    self._stopping.wait(self._pause_s)
        except BaseException as error:  # noqa: BLE001 - shown by check()
            self.failure = error

    def _one_round(self, client: RawClient, value: bytes) -> None:
        started = time.monotonic()
        batch = simple_batch(value)
        code, offset = client.produce(self._topic, batch)
        if code is not ErrorCode.none:
            raise AssertionError(f"produce: {code.name}")
        found = client.fetch(self._topic, offset)
        if value not in found:
            raise AssertionError(f"{value!r} is not at offset {offset}")
        self.latencies_s.append(time.monotonic() - started)
