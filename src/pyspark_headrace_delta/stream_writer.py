# SPDX-License-Identifier: Apache-2.0
"""Stream writer: commits each micro-batch exactly once.

In append mode batches are added, in complete mode each replaces the table's rows. A separate module because
Spark before 4.1 does not have its base class. Read next: batch_writer.py, commit.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.errors import ClientError
from pyspark_headrace.replays import Course, ReplayRule, advances, identify_batch, repair_command
from pyspark_headrace.worker_reuse import collecting_later
from pyspark_headrace_delta.batch_writer import WrittenFiles, files_of, write_files
from pyspark_headrace_delta.options import TableSettings
from pyspark_headrace_delta.schema import Document

_course = Course()


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: TableSettings, schema: Document, *, overwrite: bool) -> None:
        self._settings = settings
        self._schema = schema
        self._overwrite = overwrite

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_files(iterator, self._settings)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        with collecting_later():
            from pyspark_headrace_delta.commit import BatchNumber, TableCommit

        files = files_of(messages)
        is_empty = not files and not self._overwrite  # needs no commit
        settings = self._settings
        query_id = _query_id(messages)
        chosen = settings.txn_app_id
        if is_empty and (query_id is None or _course.follows(query_id, batchId)):
            return
        if chosen is None and query_id is None:
            raise ClientError("the id of the query is unknown", next_step="name it: .option('txnAppId', …)")
        batch = BatchNumber(
            app_id=str(query_id) if chosen is None else chosen,
            batch=identify_batch(batchId, settings.checkpoint),
            rule=ReplayRule(
                sink=f"the table {settings.path}",
                numbered_by="checkpoint",
                check=settings.replay_check,
                repair=_repair_command(settings),
            ),
            query_id=None if chosen is None else query_id,
        )
        if is_empty:
            batch.check_empty(path=settings.path, advances=advances(batchId, settings.checkpoint))
        else:
            TableCommit(
                settings=settings,
                schema=self._schema,
                files=files,
                overwrite=self._overwrite,
                batch=batch,
            ).apply()
        _course.note(str(query_id), batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Keep the files, as in a batch write."""


def _repair_command(settings: TableSettings) -> str:
    words = ["--table", str(settings.path)]
    if settings.txn_app_id is not None:
        words += ["--sink", settings.txn_app_id]
    return repair_command(settings.checkpoint, *words)


def _query_id(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    found = {message.query_id for message in messages if isinstance(message, WrittenFiles)}
    return next(iter(found), None)
