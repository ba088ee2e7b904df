# SPDX-License-Identifier: Apache-2.0
"""The suite of transactions: every performance target of transactions as a line.

100 records of 100 bytes in each transaction, the clients at their defaults. How it is judged: bench/judge.py.
"""

from __future__ import annotations

from bench.measures import transactions
from bench.model import KAFKA, OS, Better, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER


def _rate(title: str, target: float, figure: str = "transactions_per_s") -> Line:
    return Line(figure=figure, title=title, unit="transactions/s", better=HIGHER, target=target)


def _commit(title: str, target: float | None) -> tuple[Line, ...]:
    return tuple(
        Line(
            figure=f"commit_p{percent}_ms",
            title=f"commit, {title}, p{percent}",
            unit="ms",
            better=LOWER,
            target=target,
        )
        for percent in (50, 99)
    )


def _cpu(title: str) -> Line:
    return Line(
        figure="cpu_ms", title=f"broker CPU per transaction, {title}", unit="ms", better=LOWER, target=None
    )


def _committed(figure: str, client: str) -> Line:
    return Line(
        figure=figure,
        title=f"read_committed, a tenth aborted, {client}: against read_uncommitted",
        unit="× read_uncommitted",
        better=HIGHER,
        target=0.9,
        own=True,
    )


TRANSACTIONS_SUITE = Suite(
    name="transactions",
    title="Transactions against Apache Kafka, the same clients and machine",
    measures=(
        Measure(
            name="one",
            run=transactions.one_producer,
            lines=(
                _rate("transactions of 100 records, one producer, confluent-kafka", 1.5),
                *_commit("one producer, confluent-kafka", 0.7),
                _cpu("one producer"),
            ),
        ),
        Measure(
            name="one_java",
            run=transactions.one_java_producer,
            lines=(
                _rate("transactions of 100 records, one producer, Java", 1.5),
                *_commit("one producer, Java", 0.7),
            ),
        ),
        Measure(
            name="many",
            run=transactions.many_producers,
            lines=(
                _rate("transactions of 100 records, 32 producers, confluent-kafka", 1.0),
                *_commit("32 producers", None),
                _cpu("32 producers"),
            ),
        ),
        Measure(
            name="reading",
            run=transactions.read_committed,
            lines=(
                _committed("committed_ratio", "confluent-kafka"),
                _committed("raw_committed_ratio", "raw"),
            ),
        ),
        Measure(
            name="three_nodes",
            run=transactions.three_nodes,
            profile=None,
            warm_up=False,
            lines=(
                _rate("three nodes, RF 3: transactions, one producer", 1.0),
                _rate("three nodes, RF 3: transactions, 32 producers", 1.0, "many_transactions_per_s"),
                *_commit("three nodes, RF 3, one producer", None),
                Line(
                    figure="killed_ms",
                    title="coordinator SIGKILLed to the next commit, three nodes",
                    unit="ms",
                    better=LOWER,
                    target=0.2,
                ),
            ),
        ),
        Measure(
            name="load",
            run=transactions.load_ids,
            profile=None,
            variants=(KAFKA, OS),
            warm_up=False,
            lines=(
                Line(
                    figure="load_s",
                    title="restart with 100,000 transactional ids, over an empty start (own figure)",
                    unit="s",
                    better=LOWER,
                    target=1.0,
                    own=True,
                ),
            ),
        ),
    ),
    rounds=5,
)
