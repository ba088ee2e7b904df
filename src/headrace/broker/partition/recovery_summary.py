# SPDX-License-Identifier: Apache-2.0
"""What the start after an unclean shutdown had to repair, as one line of the node's log.

Read next: log/recovery.py, which does it and makes the reports.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.log.recovery import RecoveryReport
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)

_MOST_NAMED = 5


def log_recovery(reports: Mapping[TopicPartition, RecoveryReport], seconds: float) -> None:
    """`reports` of all logs that were opened; nothing is logged when none had to be recovered."""
    recovered = {name: report for name, report in reports.items() if not report.clean}
    if not recovered:
        return
    repairs = []
    for name, report in recovered.items():
        repair = _repair(report)
        logger.debug("%s: %d batches checked; %s", name, report.batches_scanned, repair or "not truncated")
        if repair is not None:
            repairs.append(f"{name} ({repair})")
    logger.warning(
        "the previous shutdown was unclean: recovered %d %s in %.3f s, %d %s checked; %s",
        len(recovered),
        "log" if len(recovered) == 1 else "logs",
        seconds,
        batches := sum(report.batches_scanned for report in recovered.values()),
        "batch" if batches == 1 else "batches",
        f"truncated: {_named(repairs)}" if repairs else "nothing was truncated",
    )


def _repair(report: RecoveryReport) -> str | None:
    """None: the log is as it was."""
    repairs = []
    if report.fault is not None:
        repairs.append(f"{report.bytes_cut} bytes that were not flushed: {report.fault}")
    if report.missing_offsets:
        repairs.append(f"{report.missing_offsets} flushed offsets are missing")
    return ", ".join(repairs) or None


def _named(repairs: list[str]) -> str:
    more = len(repairs) - _MOST_NAMED
    return ", ".join(repairs[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
