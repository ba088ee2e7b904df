# SPDX-License-Identifier: Apache-2.0
"""Transforms one topic into another exactly once: `transform` for plain code, `atransform` for asyncio.

Calls the user's function: in the caller's thread, or on its event loop. Everything else happens in
transformer.py, on a background thread or on that event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, Unpack

import pyarrow as pa

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.keywords import keywords_of
from headrace.client.arrow.stream.stream_options import StreamRequest
from headrace.client.arrow.transform.options import TransformOptions, TransformRequest
from headrace.client.arrow.transform.transformer import Transformed, Transformer, Work
from headrace.client.membership.topic_watch import Topics

Result: TypeAlias = pa.RecordBatch | pa.Table | None
"""What is written; None: nothing."""
Function = Callable[[pa.RecordBatch], Result]
AsyncFunction = Callable[[pa.RecordBatch], Awaitable[Result]]


@keywords_of(TransformOptions, TransformRequest, StreamRequest)
def transform(
    source: Topics, target: str, function: Function, *, group: str, **options: Unpack[TransformOptions]
) -> Transformed:
    """Writes what `function` makes of each batch of `source` to `target`, exactly once.

    The results and the group's offsets are committed in one transaction, which needs a broker that serves
    transactions. The function is called again for records whose transaction was aborted.

    Args:
        source: as in `stream`: a name, a compiled pattern, or a list of either.
        target: the topic to write to.
        function: gets a pyarrow.RecordBatch and returns a RecordBatch, a Table, or None to write nothing.
        group: the consumer group that shares the partitions and commits its progress.

    Keyword Args:
        write: options of `write` for the results, as a dict; columns are taken by name as there, but for
            `partition`, which is only written when it is named.
        transactional_id: the same for every run of one member, another for each member of the group
            (`group-instance_id`, or the group's name). A newer run fences an older one.
        transaction_timeout_ms: the broker aborts a transaction that is open for longer (60,000).
        commit_interval_ms: a transaction is committed after so long (100),
        commit_records: or with so many records read (100,000).
        limit: ends when so many records or more were read and committed.
        until: "end": ends when the group has read all that the source held at the start.
        stop: an event (threading, asyncio); ends after the open transaction is committed.
        bootstrap: of reading and of writing, like security, config and timeout_ms.
        start: as in `stream`, like columns, key, value, rejects, protocol, assignor, instance_id,
            max_pause_ms, session_timeout_ms, heartbeat_interval_ms, committed_only, refresh_ms and budget.

    Returns:
        How many records were read and written, in how many transactions.

    Raises:
        TransformFailed: the function raised an error, or its result cannot be written: it names the records.
        TransactionFenced: another run uses the same transactional id.
        TransactionsNotServed: the broker has no transactions.

    Example:
        ```python
        headrace.transform("orders", "large", lambda batch: batch.filter(…), group="sorters", until="end")
        ```
    """
    transformer = Transformer(TransformRequest(source, target, group=group, **options))
    io = IoThread(f"headrace-transform-{group}", transformer.close)
    try:
        io.call(transformer.open())
        while (work := io.call(transformer.next())) is not None:
            io.call(transformer.take(work, _called(function, work)))
        return transformer.done
    finally:
        try:
            io.call(transformer.close())
        finally:
            io.close()


@keywords_of(TransformOptions, TransformRequest, StreamRequest)
async def atransform(
    source: Topics,
    target: str,
    function: Function | AsyncFunction,
    *,
    group: str,
    **options: Unpack[TransformOptions],
) -> Transformed:
    """Transforms with asyncio; takes what `transform` takes.

    `function` may be a coroutine function; a plain one is called in a thread.
    """
    transformer = Transformer(TransformRequest(source, target, group=group, **options))
    try:
        await transformer.open()
        while (work := await transformer.next()) is not None:
            await transformer.take(work, await _awaited(function, work))
        return transformer.done
    finally:
        await transformer.close()


def _called(function: Function, work: Work) -> Any:
    try:
        return function(work.batch)
    except Exception as error:
        raise work.failed(error) from error


async def _awaited(function: Function | AsyncFunction, work: Work) -> Any:
    if not inspect.iscoroutinefunction(function):
        return await asyncio.to_thread(_called, function, work)
    try:
        return await function(work.batch)
    except Exception as error:
        raise work.failed(error) from error
