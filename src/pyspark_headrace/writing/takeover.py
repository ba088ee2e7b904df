# SPDX-License-Identifier: Apache-2.0
"""Aborts what a dead driver of a sink left open, before its successor's tasks start.

Until then readers of committed records see nothing behind it. Opening the transactional id at the first
publication would abort it, too, but tasks may take long. Never fails a batch. Read next: delivery.py (when),
publish.py.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

from headrace.client.coordinator import Coordinator, CoordinatorError, CoordinatorType
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.pipelines.delta.table import local_path
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.client_pool import PooledClient
from pyspark_headrace.options import WriteSettings

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 15_000
_ONGOING = "Ongoing"
_PARENT, _START = 1, 19
"""Fields of /proc/PID/stat behind the program's name."""

_looked_at: set[tuple[int, str, str]] = set()
"""Process, cluster and sink: what was open before this driver started is looked for once."""


def abort_abandoned(
    settings: WriteSettings, connections: PooledClient, *, driver_started_ms: int | None = None
) -> bool:
    """Abort the sink's transaction if it began before this driver started. True: there was one.

    A transaction that began later is that of a newer driver, if this one was paused: it must go on.
    """
    sink = settings.sink_id or _query_id(settings.checkpoint)
    started_ms = _driver_started_ms() if driver_started_ms is None else driver_started_ms
    key = os.getpid(), settings.bootstrap, sink or ""
    if sink is None or started_ms is None or key in _looked_at:
        return False
    _looked_at.add(key)
    try:
        began_ms = connections.call(_open_since(connections.client, sink))
        if began_ms is None or began_ms >= started_ms:
            return False
        _open_and_close(sink, settings)
    except ClientError as error:
        _log.warning("sink %s: whether a former driver left a transaction open is unknown: %s", sink, error)
        return False
    _log.warning("sink %s: aborted the transaction that a former driver left open", sink)
    return True


def _query_id(checkpoint: str | None) -> str | None:
    """The id in the checkpoint; None: not named, or not on a file system of this machine."""
    if checkpoint is None:
        return None
    try:
        document = json.loads((local_path(checkpoint) / "metadata").read_text(encoding="utf-8"))
        return str(document["id"])
    except (ClientError, OSError, ValueError, KeyError, TypeError):
        return None


def _driver_started_ms() -> int | None:
    """When this driver started; None where the system does not say so in /proc.

    A planning process is a child of Spark's daemon for Python, whose parent is the JVM.
    """
    try:
        jvm = int(_fields_of(os.getppid())[_PARENT])
        ticks = int(_fields_of(jvm)[_START])
    except (OSError, ValueError, IndexError):
        return None
    ago_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return round((time.time() - ago_s) * 1000)


def _fields_of(process: int) -> list[str]:
    """Of /proc/PID/stat; the program's name before them may hold spaces."""
    text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


async def _open_since(client: NetworkClient, sink: str) -> int | None:
    """When the sink's open transaction began; None: there is none, or the broker cannot tell."""
    from headrace.client.tools.brokers import milliseconds
    from pyspark_headrace.writing.ledger import transactional_id

    name = transactional_id(sink)
    coordinator = Coordinator(client, CoordinatorType.TRANSACTION, name, timeout_ms=_TIMEOUT_MS)
    connection = await coordinator.connect_with_retries()
    if ApiKey.DESCRIBE_TRANSACTIONS not in connection.versions:
        return None
    try:
        reply = await coordinator.call_with_retries(
            ApiKey.DESCRIBE_TRANSACTIONS,
            {"transactional_ids": [name]},
            lambda reply: ErrorCode(int(reply.transaction_states[0].error_code)),
        )
    except CoordinatorError as error:
        if error.error_code is ErrorCode.transactional_id_not_found:
            return None
        raise
    (found,) = reply.transaction_states
    return milliseconds(found.transaction_start_time) if str(found.transaction_state) == _ONGOING else None


def _open_and_close(sink: str, settings: WriteSettings) -> None:
    """Opening the transactional id aborts what is open and fences the driver that opened it."""
    from headrace.client.arrow.write.transaction import Transaction
    from pyspark_headrace.writing.ledger import transactional_id

    Transaction(
        transactional_id(sink),
        bootstrap=settings.bootstrap,
        security=settings.security.security(),
        transaction_timeout_ms=settings.transaction_timeout_ms,
        timeout_ms=_TIMEOUT_MS,
    ).close()
