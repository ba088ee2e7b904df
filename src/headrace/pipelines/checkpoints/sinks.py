# SPDX-License-Identifier: Apache-2.0
"""The last batch that a sink has of a query: from a Delta table's log, or from the ledger of topic sinks.

Writes nothing but the end of a dead driver's transaction. Read next: checkpoint_repair.py (compares it with
the checkpoint), delta/recorded_batches.py, pyspark_headrace/writing/ledger.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.reachable import check_reachable
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.replays import BatchIdentity

if TYPE_CHECKING:
    from headrace.pipelines.delta.table import TablePlace

_TIMEOUT_MS = 15_000


class Sink(Protocol):
    """`name` as in errors of the sink itself."""

    @property
    def name(self) -> str: ...

    def last(self, query: str) -> BatchIdentity | None:
        """The last batch of the query; ClientError when the sink has batches of another query instead."""

    def settle(self) -> None:
        """End what a driver left open, so that `last` stays what it is while the query is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """`app_id`: the option txnAppId; None: batches are counted under the query's id."""

    path: TablePlace
    app_id: str | None = None

    @property
    def name(self) -> str:
        return f"the table {self.path}"

    def last(self, query: str) -> BatchIdentity | None:
        from headrace.pipelines.delta.recorded_batches import (
            offsets_app_id,
            query_app_id,
            recorded_batches,
        )
        from headrace.pipelines.delta.table import open_table

        table = open_table(self.path)
        if table is None:
            raise ClientError(f"there is no Delta table in {self.path}", next_step="check --table")
        app_id = self.app_id or query
        number = table.transaction_version(app_id)
        if number is None:
            return None
        if self.app_id is not None and table.transaction_version(query_app_id(app_id, query)) != number:
            raise ClientError(
                f"batch {number} of txnAppId {app_id!r} in {self.name} was not written by query {query}, "
                "which the checkpoint is of",
                next_step="name the checkpoint of the query that writes this table",
            )
        recorded = next((each for each in recorded_batches(table) if each.app_id == app_id), None)
        return BatchIdentity(
            number=number,
            offsets=table.transaction_version(offsets_app_id(app_id)) or None,
            sources=recorded.sources if recorded is not None and recorded.number == number else (),
        )

    def settle(self) -> None:
        """A table has no open transactions: a commit is one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """`sink_id`: the option sinkId; None: the query's id."""

    cluster: Cluster
    query: str
    sink_id: str | None = None

    @property
    def name(self) -> str:
        return f"sink {self._id!r}"

    def last(self, query: str) -> BatchIdentity | None:
        from pyspark_headrace.writing.ledger import last_published

        check_reachable(self.cluster)
        connections = pooled_client(self.cluster.bootstrap, self.cluster.security)
        published = last_published(self._id, connections, timeout_ms=_TIMEOUT_MS)
        if published is None:
            return None
        if published.query != query:
            raise ClientError(
                f"batch {published.batch.number} of {self.name} was written by query {published.query}, but "
                f"the checkpoint is of query {query}",
                next_step="name the checkpoint of the query that writes through this sink, or another --sink",
            )
        return published.batch

    def settle(self) -> None:
        """Opens the transactional id: the open transaction of a dead driver is aborted, or completed."""
        from headrace.client.arrow.write.transaction import Transaction
        from pyspark_headrace.writing.ledger import transactional_id

        Transaction(
            transactional_id(self._id),
            bootstrap=self.cluster.bootstrap,
            security=self.cluster.security.security(),
            timeout_ms=_TIMEOUT_MS,
        ).close()

    @property
    def _id(self) -> str:
        return self.sink_id or self.query
