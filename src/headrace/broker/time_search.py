"""Finds records by time without holding up the loop: batches with many records go to a worker process.

A look-up that meets such a batch is begun anew when the worker has answered. Knows no protocol.
Read next: log/time_lookup.py, handlers/offsets.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.broker import deep_check
from headrace.errors import ApiError, DecodeError
from headrace.log.time_lookup import Ask, BatchQuestion, Found, search_batch
from headrace.wire.batch import read_header
from headrace.wire.compression import ExpandsTooFar
from headrace.wire.error_codes import ErrorCode

Bulk = Callable[[Callable[[BatchQuestion], Found | None], BatchQuestion], Awaitable[Found | None]]


class _TakesLong(Exception):
    def __init__(self, question: BatchQuestion) -> None:
        super().__init__("too much to look into on the event loop")
        self.question = question


async def search_in_time(look: Callable[[Ask], Found | None], bulk: Bulk) -> Found | None:
    """What `look` finds. Raises ApiError when a batch that it meets cannot be decoded."""
    answers: dict[BatchQuestion, Found | None] = {}

    def ask(question: BatchQuestion) -> Found | None:
        return answers[question] if question in answers else _search_at_once(question)

    try:
        while True:
            try:
                return look(ask)
            except _TakesLong as long:
                question = long.question
            answers[question] = await bulk(search_batch, question)
    except DecodeError as error:
        raise ApiError(ErrorCode.corrupt_message, str(error)) from error


def _search_at_once(question: BatchQuestion) -> Found | None:
    header = read_header(memoryview(question.batch))
    at_once = deep_check.AT_ONCE
    if not at_once.takes(header):
        raise _TakesLong(question)
    try:
        return search_batch(question, at_once.expanded_bytes)
    except ExpandsTooFar:
        raise _TakesLong(question) from None
