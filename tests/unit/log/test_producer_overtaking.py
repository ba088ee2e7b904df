# SPDX-License-Identifier: Apache-2.0
"""A producer's first batch that found no room is not overtaken by those sent right behind it."""

from __future__ import annotations

import pytest

from headrace.errors import ApiError
from headrace.log.producers.state import ProducerState
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch


def batch(sequence: int) -> BatchHeader:
    record = Record(0, 0, None, b"x", ())
    return read_header(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence))


def test_the_second_batch_waits_for_the_first_that_was_refused() -> None:
    producers = ProducerState(expiration_ms=1000)
    assert producers.check(batch(0)) is None
    producers.refused(batch(0))
    with pytest.raises(ApiError) as refusal:
        producers.check(batch(1))
    assert refusal.value.code is ErrorCode.out_of_order_sequence_number
    assert producers.check(batch(0)) is None
    producers.update(batch(0), 0)
    assert producers.check(batch(1)) is None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState(expiration_ms=1000).check(batch(5)) is None


def test_a_refused_batch_does_not_block_its_producer() -> None:
    producers = ProducerState(expiration_ms=1000)
    producers.refused(batch(0))
    producers.expire(0)
    assert producers.check(batch(1)) is None
