"""Rows to a table by a streaming query: each micro-batch exactly once, whatever is tried again.

In append mode batches add up, in complete mode each replaces the table's rows. A module of its own since
Spark before 4.1 has no base class for it. Read next: sink.py, commit.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.errors import ClientError
from pyspark_headrace_delta.options import TableSettings
from pyspark_headrace_delta.schema import Document
from pyspark_headrace_delta.sink import TaskWrote, files_of, write_files


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: TableSettings, schema: Document, *, overwrite: bool) -> None:
        self._settings = settings
        self._schema = schema
        self._overwrite = overwrite

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_files(iterator, self._settings)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        from pyspark_headrace_delta.commit import BatchNumber, TableCommit

        files = files_of(messages)
        if not files and not self._overwrite:
            return  # a batch without rows leaves no trace, tried once or often
        query_id = _query_id(messages)
        chosen = self._settings.txn_app_id
        if chosen is None and query_id is None:
            raise ClientError(
                "Spark does not say which query this is", next_step="name it: .option('txnAppId', …)"
            )
        batch = (
            BatchNumber(app_id=str(query_id), version=batchId)
            if chosen is None
            else BatchNumber(app_id=chosen, version=batchId, query_id=query_id)
        )
        TableCommit(
            settings=self._settings,
            schema=self._schema,
            files=files,
            overwrite=self._overwrite,
            batch=batch,
        ).apply()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing, as in a batch write."""


def _query_id(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    found = {message.query_id for message in messages if isinstance(message, TaskWrote)}
    return next(iter(found), None)
