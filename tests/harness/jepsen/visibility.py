# SPDX-License-Identifier: Apache-2.0
"""What was sent against what was polled: lost writes, values not seen yet, aborted and precommitted reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.harness.jepsen.operations import Analysis, Anomaly, FinalLog, Key, Record
from tests.harness.jepsen.versions import EMPTY, VersionOrder


def aborted_reads(analysis: Analysis) -> Iterator[Anomaly]:
    """G1a: a value was polled whose send, or whose transaction, failed."""
    for number, operation in enumerate(analysis.operations):
        if operation.type != "ok":
            continue
        for key, records in analysis.polls[number].items():
            for record in records:
                writer = analysis.writers[key].get(record.value)
                if writer is not None and analysis.operations[writer].type == "fail":
                    read = f"{operation.process} read {record.value!r} at {record.offset}"
                    detail = f"{read}, which {analysis.operations[writer].process} failed to send"
                    yield Anomaly(kind="G1a", partition=key, detail=detail)


def precommitted_reads(analysis: Analysis) -> Iterator[Anomaly]:
    """A transaction polled what it sent itself, so before it was committed."""
    for number, operation in enumerate(analysis.operations):
        for key, sent in analysis.sends[number].items():
            polled = {record.value for record in analysis.polls[number].get(key, ())}
            for record in sent:
                if record.value in polled:
                    detail = (
                        f"{operation.process} read {record.value!r}, which it sent in the same transaction"
                    )
                    yield Anomaly(kind="precommitted-read", partition=key, detail=detail)


def lost_and_unseen(
    analysis: Analysis, orders: Mapping[Key, VersionOrder], final: Mapping[Key, FinalLog]
) -> Iterator[Anomaly]:
    """Writes that nobody polled: lost if somebody polled what is behind them, otherwise unseen.

    Where the final log is known it decides alone: what is not in it, and was not deleted, is lost.
    """
    bounds = _highest_reads(analysis, orders)
    found = {key: {value for _, value in log.records} for key, log in final.items()}
    for number, operation in enumerate(analysis.operations):
        if not analysis.sends[number] or not analysis.has_committed(number):
            continue
        for key, sent in analysis.sends[number].items():
            seen = found.get(key, analysis.read[key])
            for record in sent:
                if record.value in seen or was_deleted(record, final.get(key)):
                    continue
                rank = orders.get(key, EMPTY).rank(record)
                detail = f"{operation.process} {record.value!r}: acknowledged at {record.offset}"
                if key in final or (rank is not None and rank <= bounds.get(key, -1)):
                    yield Anomaly(kind="lost-write", partition=key, detail=detail)
                elif operation.type == "ok":
                    yield Anomaly(kind="unseen", partition=key, detail=detail)


def _highest_reads(analysis: Analysis, orders: Mapping[Key, VersionOrder]) -> dict[Key, int]:
    """The highest rank that was polled of each key; of a duplicate the first place counts."""
    bounds: dict[Key, int] = {}
    for key, values in analysis.read.items():
        order = orders.get(key, EMPTY)
        ranks = (order.rank(Record(None, value)) for value in values)
        bounds[key] = max((rank for rank in ranks if rank is not None), default=-1)
    return bounds


def was_deleted(record: Record, log: FinalLog | None) -> bool:
    """Without an offset, as what is acknowledged by what follows it, it may have been deleted."""
    return log is not None and (record.offset or 0) < log.log_start
