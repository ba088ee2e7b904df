# SPDX-License-Identifier: Apache-2.0
"""Finds every anomaly of Jepsen's Kafka workload in a history, under its name, in near-linear time.

The detectors: versions.py (inconsistent-offsets, duplicate), visibility.py (lost-write, unseen, G1a,
precommitted-read), sessions.py (skips and inversions), cycles.py (G0, G1c). Beyond Jepsen, which has only
what its clients saw, a final log may be given: it makes lost writes certain and offsets contiguous.
Read next: operations.py (the history), edn.py (the same history for Jepsen's own checker).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.harness.jepsen import cycles, sessions, versions, visibility
from tests.harness.jepsen.operations import Analysis, Anomaly, FinalLog, Key, Operation, Polled

NORMAL = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
"""What Jepsen allows, too: Kafka does not isolate the writes of transactions from each other."""
FINAL_READER = "the final reader"


def analyze(
    operations: Sequence[Operation],
    final: Mapping[Key, FinalLog] | None = None,
    *,
    ww_dependencies: bool = False,
) -> list[Anomaly]:
    """`operations` are in the order of their invocation; `final` counts as a last poll of each key."""
    final = final or {}
    analysis = Analysis(with_final_polls(operations, final))
    contiguous = {key for key, log in final.items() if not log.gaps_allowed}
    orders = versions.version_orders(analysis, contiguous)
    return [
        *versions.inconsistent_offsets(orders),
        *versions.duplicates(orders),
        *visibility.aborted_reads(analysis),
        *visibility.precommitted_reads(analysis),
        *visibility.lost_and_unseen(analysis, orders, final),
        *sessions.internal_polls(analysis, orders),
        *sessions.internal_sends(analysis, orders),
        *sessions.external_polls(analysis, orders),
        *sessions.external_sends(analysis, orders),
        *cycles.cycles(analysis, orders, ww_dependencies=ww_dependencies),
    ]


def invalid(anomalies: Iterable[Anomaly]) -> list[Anomaly]:
    """Those that are invalid in every configuration."""
    return [anomaly for anomaly in anomalies if anomaly.kind not in NORMAL]


def with_final_polls(operations: Sequence[Operation], final: Mapping[Key, FinalLog]) -> list[Operation]:
    end = max((each.completed_at or each.invoked_at for each in operations), default=0)
    polls = [
        Operation(
            process=FINAL_READER,
            type="ok",
            f="poll",
            value=(Polled({key: log.records}),),
            invoked_at=end + 1,
            completed_at=end + 1,
        )
        for key, log in final.items()
    ]
    return [*operations, *polls]
