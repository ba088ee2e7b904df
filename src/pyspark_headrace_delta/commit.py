# SPDX-License-Identifier: Apache-2.0
"""Commits a batch's files to the table exactly once: one entry in its log, with the batch number.

The table is opened once per attempt, and the last batch number is compared and the commit made on that
version. A concurrent commit makes ours fail, and the next attempt sees it. Comparing on one version and
committing on a newer one would let a replay through. Read next: schema.py, pipelines/delta/protocol.py.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, Transaction, create_table_with_add_actions

from headrace.client.errors import ClientError
from headrace.pipelines.delta.conditional_puts import check_conditional_puts
from headrace.pipelines.delta.files import WrittenFile
from headrace.pipelines.delta.folders import table_folder
from headrace.pipelines.delta.protocol import check_append_only, check_features
from headrace.pipelines.delta.recorded_batches import (
    APP_ID,
    BATCH_ID,
    SOURCES,
    USER_METADATA,
    added_files,
    offsets_app_id,
    query_app_id,
)
from headrace.pipelines.delta.table import ObjectStorePath, TablePlace, open_table, reason_of
from pyspark_headrace.replays import BatchIdentity, ReplayRule
from pyspark_headrace_delta.options import TableSettings
from pyspark_headrace_delta.schema import Document, new_columns, required_columns

_TRIES = 40
_UNANSWERED_TRIES = 3
"""Puts whose outcome an object store did not tell. The library has repeated each of them by then."""
_FIRST_BACKOFF_S = 0.02
_MAX_BACKOFF_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNumber:
    """Identifies a batch across retries: an application id, and what tells it from other batches.

    `query_id` is set when the application id was chosen by the user: the query that uses it.
    """

    app_id: str
    batch: BatchIdentity
    rule: ReplayRule
    query_id: str | None = None

    def is_in(self, table: DeltaTable) -> bool:
        """Whether the table has this batch already. ClientError when it has later or other ones."""
        last = table.transaction_version(self.app_id)
        if last is None or last < self.batch.number:
            return False
        query = self.query_id
        if query is not None and table.transaction_version(query_app_id(self.app_id, query)) != last:
            raise ClientError(
                f"txnAppId {self.app_id!r} was used by another query up to batch {last}: "
                f"batch {self.batch.number} of query {query} would be skipped as already written",
                next_step="use another txnAppId or none, or continue with the checkpoint of that query",
            )
        offsets = table.transaction_version(offsets_app_id(self.app_id)) or None
        return self.rule.is_replay(self.batch, BatchIdentity(number=last, offsets=offsets))

    def check_empty(self, *, path: TablePlace, advances: bool) -> None:
        """ClientError when a batch without rows belongs to an older checkpoint."""
        table = open_table(path)
        last = None if table is None else table.transaction_version(self.app_id)
        if table is not None and last is not None and last >= self.batch.number:
            offsets = table.transaction_version(offsets_app_id(self.app_id)) or None
            self.rule.check_empty(self.batch, BatchIdentity(number=last, offsets=offsets), advances=advances)

    def transactions(self) -> list[Transaction]:
        numbers = {self.app_id: self.batch.number}
        if self.query_id is not None:
            numbers[query_app_id(self.app_id, self.query_id)] = self.batch.number
        if self.rule.numbered_by == "checkpoint":
            numbers[offsets_app_id(self.app_id)] = self.batch.offsets or 0  # 0: unknown
        return [Transaction(app_id, number) for app_id, number in numbers.items()]

    def metadata(self) -> dict[str, Any]:
        """What the entry in the table's log says of the batch."""
        known = {APP_ID: self.app_id, BATCH_ID: self.batch.number}
        return known | ({SOURCES: json.dumps(self.batch.sources)} if self.batch.sources else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The contents of one commit."""

    settings: TableSettings
    schema: Document
    files: Sequence[WrittenFile]
    overwrite: bool
    batch: BatchNumber | None

    def apply(self) -> bool:
        """Commit; False if the table has the batch already. ClientError when the rows do not fit."""
        _check_files(self.settings.path, self.files)
        backoff_s, unanswered = _FIRST_BACKOFF_S, 0
        failed: Exception = DeltaError("columns could not be added")
        tried: int | None = None
        for _ in range(_TRIES):
            table = open_table(self.settings.path)
            if table is not None and self._is_in(table, tried):
                return False
            self._check_store(table)
            tried = 0 if table is None else table.version() + 1
            try:
                if self._try(table):
                    return True
                continue  # columns were added: the next version of the table has them
            except CommitFailedError as error:
                failed = error
            except (DeltaError, OSError) as error:
                unanswered += 1
                if not self._goes_on(error, table, unanswered):
                    raise self._refused(error) from self._cause(error)
                failed = error
            time.sleep(random.uniform(backoff_s / 2, backoff_s))  # jitter
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
        raise self._refused(failed) from self._cause(failed)

    def _goes_on(self, error: Exception, table: DeltaTable | None, unanswered: int) -> bool:
        """After an error that is no conflict. What became of the commit is seen when the table is opened."""
        place = self.settings.path
        if isinstance(place, Path):  # another writer may have created the table meanwhile
            return isinstance(error, DeltaError) and table is None and open_table(place) is not None
        return unanswered < _UNANSWERED_TRIES and (table is None or isinstance(error, OSError))

    def _is_in(self, table: DeltaTable, tried: int | None) -> bool:
        """Whether the table has the batch. Without a number: whether the entry that was tried is ours."""
        if self.batch is not None:
            return self.batch.is_in(table)
        if tried is None or tried > table.version() or not self.files:
            return False
        return self.files[0].path in added_files(table, tried)

    def _check_store(self, table: DeltaTable | None) -> None:
        """Before the first commit of a query to a table."""
        is_known = (
            table is not None
            and self.batch is not None
            and table.transaction_version(self.batch.app_id) is not None
        )
        if not is_known:
            check_conditional_puts(self.settings.path)

    def _try(self, table: DeltaTable | None) -> bool:
        if table is None:
            self._create()
            return True
        added = self._check(table)
        if added:
            fields = [Field.from_json(json.dumps(field)) for field in added]
            table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
            return False
        table.create_write_transaction(
            self._actions(),
            mode="overwrite" if self.overwrite else "append",
            schema=table.schema(),
            partition_by=list(self.settings.partition_by),
            commit_properties=self._properties(),
        )
        return True

    def _create(self) -> None:
        place = self.settings.path
        if isinstance(place, Path):
            place.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            str(place),
            Schema.from_json(json.dumps(self.schema)),
            self._actions(),
            mode="error",
            partition_by=list(self.settings.partition_by),
            storage_options=dict(place.options) if isinstance(place, ObjectStorePath) else None,
            commit_properties=self._properties(),
        )

    def _check(self, table: DeltaTable) -> list[Document]:
        """The columns that must be added first."""
        added = check_fit(table, self.schema, self.settings, overwrite=self.overwrite)
        with_nulls = {name for file in self.files for name in file.with_nulls}
        given = {field["name"] for field in self.schema["fields"]}
        for name in required_columns(json.loads(table.schema().to_json())):
            if self.files and (name in with_nulls or name not in given):
                raise ClientError(
                    f"column {name!r} is null in some rows, but required in the table {self.settings.path}",
                    next_step=f"filter them: WHERE {name} IS NOT NULL",
                )
        return added

    def _actions(self) -> list[Any]:
        return [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=file.partition_values,
                modification_time=file.modified_ms,
                data_change=True,
                stats=file.statistics,
            )
            for file in self.files
        ]

    def _properties(self) -> CommitProperties:
        """Commit on the opened version or not at all. The library's own retries are unsafe: a table created
        twice at once would get both first batches, and an overwrite would keep rows merged meanwhile."""
        text = self.settings.user_metadata
        given = {} if text is None else {USER_METADATA: text}
        if self.batch is None:
            return CommitProperties(custom_metadata=given or None, max_commit_retries=0)
        return CommitProperties(
            custom_metadata=self.batch.metadata() | given,
            app_transactions=self.batch.transactions(),
            max_commit_retries=0,
        )

    def _cause(self, error: Exception) -> Exception | None:
        """Not shown where it may name a login."""
        return error if isinstance(self.settings.path, Path) else None

    def _refused(self, error: Exception) -> ClientError:
        return ClientError(
            f"the table {self.settings.path} rejected the commit: {reason_of(error, self.settings.path)}",
            next_step="remove the cause and run it again"
            + (": a batch that is already in the table is skipped" if self.batch is not None else ""),
        )


def check_fit(
    table: DeltaTable, schema: Document, settings: TableSettings, *, overwrite: bool
) -> list[Document]:
    """Columns of the rows that the table lacks; ClientError when the rows cannot be written."""
    check_features(table, overwrite=overwrite)
    if overwrite:
        check_append_only(table)
    partitioned = table.metadata().partition_columns
    if list(settings.partition_by) != partitioned:
        raise ClientError(
            f"the table {settings.path} is {_partitioning(partitioned)}, "
            f"the rows are {_partitioning(settings.partition_by)}",
            next_step=f'add .option("partitionBy", "{",".join(partitioned)}")'
            if partitioned
            else "leave out option 'partitionBy'",
        )
    added = new_columns(json.loads(table.schema().to_json()), schema)
    if added and not settings.merge_schema:
        names = ", ".join(repr(field["name"]) for field in added)
        raise ClientError(
            f"the table {settings.path} has no column {names}",
            next_step='set .option("mergeSchema", True) to add it, or leave it out',
        )
    return added


def _check_files(place: TablePlace, files: Sequence[WrittenFile]) -> None:
    """Committing a file that the driver does not see would make the table unreadable."""
    for file, size in zip(files, table_folder(place).sizes([file.path for file in files]), strict=True):
        if size != file.size:
            raise ClientError(
                f"a worker wrote {place}/{file.path}, but the driver does not see it there",
                next_step="give a path on a file system that the driver and all workers share"
                if isinstance(place, Path)
                else "let the driver and all workers use the same endpoint and login of the object store",
            )


def _partitioning(columns: Sequence[str]) -> str:
    return f"partitioned by {', '.join(columns)}" if columns else "not partitioned"
