# SPDX-License-Identifier: Apache-2.0
"""The raw client against the wire layer and against a peer that answers in awkward pieces."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.payloads import compressed_batch, plain_batch
from bench.raw_client import RawConnection, produce_pipelined, send_each
from bench.raw_requests import (
    FetchReply,
    InitProducerIdReply,
    ProduceReply,
    RawReplyError,
    fetch_request,
    init_producer_id_request,
    metadata_request,
    produce_request,
)
from headrace.wire.api_table import read_request_header
from headrace.wire.batch import split_batches
from headrace.wire.messages import decode_request
from headrace.wire.requests.fetch import FetchResult, read_fetch, write_fetch_reply
from headrace.wire.requests.produce import ProduceResult, read_produce, write_produce_reply


def test_produce_bytes_are_what_the_broker_reads() -> None:
    batch = plain_batch(3, 50)
    view = memoryview(produce_request("t", {0: batch, 7: batch}, acks=-1))[4:]
    header = read_request_header(view, 0, len(view))
    request = read_produce(view, header.body_position, len(view), header.api_version)
    assert (header.api_key, request.acks, request.topics[0].name) == (0, -1, "t")
    assert [bytes(view[part.start : part.end]) for part in request.topics[0].partitions] == [batch, batch]


def test_fetch_bytes_are_what_the_broker_reads() -> None:
    view = memoryview(fetch_request("t", 42, partition=3, max_bytes=1000, max_wait_ms=5))[4:]
    header = read_request_header(view, 0, len(view))
    request = read_fetch(view, header.body_position, len(view), header.api_version)
    partition = request.topics[0].partitions[0]
    assert (partition.index, partition.fetch_offset, partition.max_bytes) == (3, 42, 1000)
    assert (request.max_wait_ms, request.session_epoch, request.topics[0].name) == (5, -1, "t")


def test_metadata_bytes_are_what_the_broker_reads() -> None:
    view = memoryview(metadata_request("t"))[4:]
    header = read_request_header(view, 0, len(view))
    request = decode_request(3, header.api_version, view, header.body_position, len(view))
    assert [topic.name for topic in request.topics] == ["t"]


def test_isolation_level_is_what_the_broker_reads() -> None:
    for committed_only in (False, True):
        view = memoryview(fetch_request("t", 0, committed_only=committed_only))[4:]
        header = read_request_header(view, 0, len(view))
        request = read_fetch(view, header.body_position, len(view), header.api_version)
        assert request.isolation_level == committed_only


@pytest.mark.parametrize("transactional_id", [None, "copier"])
def test_init_producer_id_bytes_are_what_the_broker_reads(transactional_id: str | None) -> None:
    view = memoryview(init_producer_id_request(transactional_id))[4:]
    header = read_request_header(view, 0, len(view))
    request = decode_request(22, header.api_version, view, header.body_position, len(view))
    assert request.transactional_id == transactional_id
    assert (request.producer_id, request.producer_epoch) == (-1, -1)


def test_init_producer_id_reply_is_read() -> None:
    reply = struct.pack(">iBihqhB", 1, 0, 0, 51, 4242, 7, 0)
    assert InitProducerIdReply().error_code(reply) == 51
    assert InitProducerIdReply().producer_id(reply) == 4242


def test_payloads_are_valid_batches() -> None:
    compressed, value_bytes = compressed_batch("zstd", 20)
    assert value_bytes > 3 * len(compressed)
    for batch, records in ((plain_batch(5, 10), 5), (compressed, 20), (plain_batch(1, 9, producer_id=4), 1)):
        ((_, header),) = split_batches(memoryview(batch), 0, len(batch), max_batch_bytes=None)
        assert header.record_count == records


def produce_reply(topic: str, error_code: int) -> bytes:
    result = ProduceResult(index=0, error_code=error_code, base_offset=99)
    return write_produce_reply(9, 1, [(topic, None, [result])])


def test_an_error_in_a_produce_reply_is_not_overlooked() -> None:
    reply_of = ProduceReply("orders")
    reply_of.check(produce_reply("orders", 0)[4:])
    assert reply_of.base_offset(produce_reply("orders", 0)[4:]) == 99
    with pytest.raises(RawReplyError, match="orders was refused with error code 6"):
        reply_of.check(produce_reply("orders", 6)[4:])


def test_an_error_in_a_fetch_reply_is_not_overlooked() -> None:
    reply_of = FetchReply("orders")

    def reply(top_level: int, error_code: int, records: bytes) -> bytes:
        result = FetchResult(index=0, error_code=error_code, high_watermark=5, size=len(records))
        chunks = write_fetch_reply(12, 1, top_level, 0, [("orders", None, [result])])
        return records.join(chunks)[4:]

    reply_of.check(reply(0, 0, b""))
    assert not reply_of.has_records(reply(0, 0, b""))
    assert reply_of.has_records(reply(0, 0, plain_batch(1, 10)))
    with pytest.raises(RawReplyError, match="error code 1"):
        reply_of.check(reply(0, 1, b""))
    with pytest.raises(RawReplyError, match="error code 70"):
        reply_of.check(reply(70, 0, b""))


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[RawConnection]:
    """A server that hands its one connection to `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            accepted, _ = listener.accept()
            with accepted:
                serve(accepted)

        thread = threading.Thread(target=run)
        thread.start()
        with RawConnection(*listener.getsockname(), buffer_bytes=64) as connection:
            yield connection
        thread.join()


def test_replies_in_awkward_pieces_and_larger_than_the_buffer_arrive_whole() -> None:
    replies = [bytes([number]) * size for number, size in enumerate([1, 60, 64, 500, 2, 3000, 7])]
    stream = b"".join(struct.pack(">i", len(reply)) + reply for reply in replies)

    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        for start in range(0, len(stream), 7):
            connection.sendall(stream[start : start + 7])

    with peer(serve) as connection:
        connection.send(b"x")
        assert [bytes(connection.receive()) for _ in replies] == replies


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def test_pipelining_counts_every_answer_and_keeps_its_window() -> None:
    request = struct.pack(">i", 5) + b"hello"
    answers: list[bytes] = []
    with peer(echo) as connection:
        answered, _ = produce_pipelined(
            connection,
            request * 4,
            lambda reply: answers.append(bytes(reply)),
            in_flight=8,
            requests_per_send=4,
            count=40,
        )
    assert answered == len(answers) == 40
    assert set(answers) == {b"hello"}


def test_each_request_is_sent_once_and_in_order() -> None:
    requests = [struct.pack(">ii", 4, number) for number in range(50)]
    answers: list[int] = []
    with peer(echo) as connection:
        received, _ = send_each(
            connection, requests, lambda reply: answers.append(struct.unpack(">i", reply)[0]), in_flight=3
        )
    assert answers == list(range(50))
    assert received == 200


def test_a_closed_connection_is_an_error() -> None:
    with peer(lambda connection: None) as connection, pytest.raises(ConnectionResetError):
        connection.receive()
