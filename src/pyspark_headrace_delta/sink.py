"""Rows to a table by a batch write: one commit holds them all, or none is there.

With txnAppId and txnVersion the same write may be tried again and counts once, as in `foreachBatch`. Read
next: files.py, commit.py; stream_sink.py (the same for streams).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_headrace.workers import settle
from pyspark_headrace_delta.options import TableSettings
from pyspark_headrace_delta.schema import Document

if TYPE_CHECKING:  # planning a query does not load Arrow
    from headrace.pipelines.delta.files import WrittenFile

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class TaskWrote(WriterCommitMessage):
    """What one attempt of a task wrote, and the streaming query it worked for."""

    files: list[WrittenFile]
    query_id: str | None


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, settings: TableSettings, schema: Document, *, overwrite: bool) -> None:
        self._settings = settings
        self._schema = schema
        self._overwrite = overwrite

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_files(iterator, self._settings)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from pyspark_headrace_delta.commit import BatchNumber, TableCommit

        settings = self._settings
        batch = None
        if settings.txn_app_id is not None and settings.txn_version is not None:
            batch = BatchNumber(app_id=settings.txn_app_id, version=settings.txn_version)
        TableCommit(
            settings=settings,
            schema=self._schema,
            files=files_of(messages),
            overwrite=self._overwrite,
            batch=batch,
        ).apply()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing. Spark aborts after a failed commit too, and one that only seemed to fail needs its files:
        what no commit names is an orphan, which `headrace pipeline optimize` removes."""


def write_files(batches: Iterator[Any], settings: TableSettings) -> TaskWrote:
    """One attempt of a task."""
    from headrace.pipelines.delta.files import TaskFiles

    context = TaskContext.get()
    files = TaskFiles(
        settings.path,
        settings.partition_by,
        task=context.partitionId() if context else 0,
        target_size=settings.target_file_size,
    )
    query_id = context.getLocalProperty(_QUERY_ID) if context else None
    try:
        return TaskWrote(files=files.write(batches), query_id=query_id)
    finally:
        settle()


def files_of(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [file for message in messages if isinstance(message, TaskWrote) for file in message.files]
