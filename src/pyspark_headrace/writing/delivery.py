# SPDX-License-Identifier: Apache-2.0
"""Who puts a batch's rows into the output topics: the driver in one transaction, or each task for itself.

Decided once for a batch, by the driver, and sent to the tasks: while a cluster is upgraded its brokers
differ, and tasks that asked different ones could write one batch in both ways. Read next: task.py,
takeover.py (what is done at the same moment).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.retry import Backoff, is_retriable, retry
from headrace.wire.api_key import ApiKey
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.internal_topics import SINKS
from pyspark_headrace.writing.takeover import abort_abandoned


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`exactly_once`: tasks encode rows, the driver publishes them. Otherwise tasks write, at least once."""

    exactly_once: bool = False
    refusal: ClientError | None = None


class Delivery:
    """Part of a writer. The decision is made when Spark pickles the writer for its tasks: once for a batch.

    A refusal is sent to the tasks as well, which raise it: Spark hides an error raised while it pickles.
    """

    def __init__(self, settings: WriteSettings, *, awaits_broker: bool) -> None:
        """`awaits_broker`: retry while brokers restart; otherwise a wrong address is refused at once."""
        self._settings = settings
        self._timeout_ms = settings.timeout_ms if awaits_broker else 0
        self._decision: Decision | None = None

    def __getstate__(self) -> dict[str, Any]:
        self._decided()
        return self.__dict__

    def is_exactly_once(self) -> bool:
        decision = self._decided()
        if decision.refusal is not None:
            raise decision.refusal
        return decision.exactly_once

    def _decided(self) -> Decision:
        if self._decision is None:
            try:
                self._decision = Decision(exactly_once=_decide(self._settings, self._timeout_ms))
                if self._decision.exactly_once:
                    connections = pooled_client(self._settings.bootstrap, self._settings.security)
                    abort_abandoned(self._settings, connections)
            except ClientError as error:
                refusal = ClientError(error.what, next_step=error.next_step, code=error.code)
                self._decision = Decision(refusal=refusal)
        return self._decision


class _TransactionsGone(ClientError):
    """The cluster served transactions before, and the broker that was asked does not serve them now."""


def _decide(settings: WriteSettings, timeout_ms: int) -> bool:
    """Waits for brokers of a cluster that served transactions before: some may be about to learn of it."""
    if settings.exactly_once == "off":
        return False
    connections = pooled_client(settings.bootstrap, settings.security)
    return connections.call(
        retry(
            lambda: _ask(connections.client, required=settings.exactly_once == "batch"),
            Backoff(timeout_ms).wait,
            retriable=lambda error: is_retriable(error) or isinstance(error, _TransactionsGone),
        )
    )


async def _ask(client: NetworkClient, *, required: bool) -> bool:
    connection = await client.any_connection()
    if await _serves_transactions(connection):
        return True
    if await client.topics([SINKS.name]):
        raise _TransactionsGone(
            f"exactly-once sinks wrote to this cluster before (it has the topic {SINKS.name!r}), but the "
            f"broker at {connection.address} serves no transactions now",
            next_step="let all brokers run a version that serves them; or set exactlyOnce=off: rows are then "
            "written at least once",
            code="UNSUPPORTED_VERSION",
        )
    if required:
        raise ClientError(
            f"exactlyOnce=batch needs transactions, and the broker at {connection.address} has none",
            next_step="leave it out or set exactlyOnce=off: rows are then written at least once",
            code="UNSUPPORTED_VERSION",
        )
    return False


async def _serves_transactions(connection: Connection) -> bool:
    """Asks a second time on a connection that was opened before the cluster's upgrade was complete."""
    if ApiKey.END_TXN not in connection.versions:
        await connection.learn_versions()
    return ApiKey.END_TXN in connection.versions
