# SPDX-License-Identifier: Apache-2.0
"""Batch writer: all rows of a write in one commit.

With txnAppId and txnVersion a repeated write is skipped, as in `foreachBatch`. Read next: commit.py;
stream_writer.py (the same for streams).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_headrace.replays import BatchIdentity, ReplayRule
from pyspark_headrace.worker_reuse import collecting_later, freeze_imports
from pyspark_headrace_delta.options import TableSettings
from pyspark_headrace_delta.schema import Document

if TYPE_CHECKING:  # planning does not load Arrow
    from headrace.pipelines.delta.files import WrittenFile

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class WrittenFiles(WriterCommitMessage):
    """Files that one task attempt wrote, and the id of its streaming query."""

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
        with collecting_later():
            from pyspark_headrace_delta.commit import BatchNumber, TableCommit

        settings = self._settings
        batch = None
        if settings.txn_app_id is not None and settings.txn_version is not None:
            batch = BatchNumber(
                app_id=settings.txn_app_id,
                batch=BatchIdentity(number=settings.txn_version),
                rule=ReplayRule(sink=f"the table {settings.path}", numbered_by="txnVersion"),
            )
        TableCommit(
            settings=settings,
            schema=self._schema,
            files=files_of(messages),
            overwrite=self._overwrite,
            batch=batch,
        ).apply()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Keep the files: Spark aborts after a failed commit too, and a commit that only seemed to fail needs
        them. `headrace pipeline optimize` removes orphan files."""


def write_files(batches: Iterator[Any], settings: TableSettings) -> WrittenFiles:
    """Write the rows of one task attempt."""
    with collecting_later():
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
        return WrittenFiles(files=files.write(batches), query_id=query_id)
    finally:
        freeze_imports()


def files_of(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [file for message in messages if isinstance(message, WrittenFiles) for file in message.files]
