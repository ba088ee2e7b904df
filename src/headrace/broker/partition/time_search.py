# SPDX-License-Identifier: Apache-2.0
"""Finds records by timestamp without blocking the event loop: large batches are searched in a worker process.

A lookup that reaches such a batch is repeated with the worker's answer. Independent of the protocol.
Read next: log/time_lookup.py, handlers/offsets.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.broker.partition.validation import record_validation
from headrace.errors import ApiError, DecodeError
from headrace.log.time_lookup import Ask, BatchQuestion, Found, search_batch
from headrace.wire.batch import read_header
from headrace.wire.compression import ExpandsTooFar
from headrace.wire.error_codes import ErrorCode

Bulk = Callable[[Callable[[BatchQuestion], Found | None], BatchQuestion], Awaitable[Found | None]]


class _TakesLong(Exception):
    def __init__(self, question: BatchQuestion) -> None:
        super().__init__("too much to search on the event loop")
        self.question = question


async def search_in_time(search: Callable[[Ask], Found | None], bulk: Bulk) -> Found | None:
    """What `search` finds. Raises ApiError when a batch that it meets cannot be decoded."""
    answers: dict[BatchQuestion, Found | None] = {}

    def ask(question: BatchQuestion) -> Found | None:
        return answers[question] if question in answers else _search_at_once(question)

    try:
        while True:
            try:
                return search(ask)
            except _TakesLong as long:
                question = long.question
            answers[question] = await bulk(search_batch, question)
    except DecodeError as error:
        raise ApiError(ErrorCode.corrupt_message, str(error)) from error


def _search_at_once(question: BatchQuestion) -> Found | None:
    header = read_header(memoryview(question.batch))
    at_once = record_validation.AT_ONCE
    if not at_once.takes(header):
        raise _TakesLong(question)
    try:
        return search_batch(question, at_once.expanded_bytes)
    except ExpandsTooFar:
        raise _TakesLong(question) from None
