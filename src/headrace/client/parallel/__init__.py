# SPDX-License-Identifier: Apache-2.0
"""A consumer that handles records in parallel and keeps their order: one group member, many workers.

Read next: consumer.py (the public class), scheduler.py (what may run when).
"""

from __future__ import annotations

from headrace.client.parallel.budget import Budget
from headrace.client.parallel.consumer import ParallelConsumer
from headrace.client.parallel.observer import Observer, Stats
from headrace.client.parallel.record import FatalError, Order, PoisonRecord, Record, RecordFailed
from headrace.client.parallel.workers import cancelled

__all__ = [
    "Budget",
    "FatalError",
    "Observer",
    "Order",
    "ParallelConsumer",
    "PoisonRecord",
    "Record",
    "RecordFailed",
    "Stats",
    "cancelled",
]
