# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.broker.partition.time_search import search_in_time
from headrace.broker.partition.validation import record_validation as deep_check
from headrace.errors import ApiError
from headrace.log.time_lookup import Ask, BatchQuestion, Found, search_batch
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch

GZIP = 1


class Worker:
    """Does its work at once, and remembers that it had some."""

    def __init__(self) -> None:
        self.questions: list[BatchQuestion] = []

    async def bulk(
        self, job: Callable[[BatchQuestion], Found | None], question: BatchQuestion
    ) -> Found | None:
        self.questions.append(question)
        return job(question)


def batch(count: int, value: bytes = b"v", codec: int = 0) -> bytes:
    records = [Record(number, 1_000 + number, None, value, ()) for number in range(count)]
    return bytes(build_batch(records, codec=codec))


def search(worker: Worker, *questions: BatchQuestion) -> Found | None:
    def look(ask: Ask) -> Found | None:
        found = None
        for question in questions:
            found = ask(question)
        return found

    return asyncio.run(search_in_time(look, worker.bulk))


def test_a_small_batch_is_looked_into_at_once() -> None:
    worker = Worker()
    assert search(worker, BatchQuestion(batch(10), 1_003, 0)) == (1_003, 3)
    assert worker.questions == []


@pytest.mark.parametrize(
    ("long", "at_once"),
    [
        pytest.param(batch(501), deep_check.ONE_BY_ONE, id="many"),
        pytest.param(batch(1, b"v" * 70_000), deep_check.ONE_BY_ONE, id="large"),
        pytest.param(batch(3, b"v" * 50_000, GZIP), deep_check.ONE_BY_ONE, id="packed"),
        pytest.param(batch(11_000, b"v" * 100), deep_check.BY_KERNELS, id="large even for kernels"),
        pytest.param(batch(3, b"v" * 50_000, GZIP), deep_check.BY_KERNELS, id="packed even for kernels"),
    ],
)
def test_an_expensive_search_goes_to_the_worker_once(
    long: bytes, at_once: deep_check.AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_check, "AT_ONCE", at_once)
    worker = Worker()
    question = BatchQuestion(long, 1_000, 0)
    assert search(worker, question, BatchQuestion(batch(2), 5_000, 0), question) == (1_000, 0)
    assert worker.questions == [question]


def test_a_batch_that_cannot_be_decoded_is_corrupt_wherever_that_is_found() -> None:
    for count in (3, 600):
        broken = bytearray(batch(count))
        broken[61:] = b"\xff" * (len(broken) - 61)
        with pytest.raises(ApiError) as raised:
            search(Worker(), BatchQuestion(bytes(broken), 1_000, 0))
        assert raised.value.code is ErrorCode.corrupt_message


def test_without_a_timestamp_the_latest_record_is_found_and_of_equals_the_first() -> None:
    records = [Record(0, 5, None, b"", ()), Record(1, 9, None, b"", ()), Record(2, 9, None, b"", ())]
    assert search_batch(BatchQuestion(bytes(build_batch(records)), None, 0)) == (9, 1)
    assert search_batch(BatchQuestion(bytes(build_batch(records)), None, 2)) == (9, 2)
    assert search_batch(BatchQuestion(bytes(build_batch(records)), None, 3)) is None
