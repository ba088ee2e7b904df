# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of members: RE2, whole names, the same question asked once, hostile ones harmless."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.broker.groups.topic_patterns import TopicPatterns
from headrace.testing.simworld import Simulation
from headrace.types import NO_TOPIC_ID, ClusterView, Topic

NAMES = ("orders", "orders.eu", "payments", "héllo")


def view(version: int, *names: str) -> ClusterView:
    topics = {name: Topic(name=name, topic_id=NO_TOPIC_ID, partitions=()) for name in names}
    return ClusterView(version=version, cluster_id="", topics=topics)


class CountingThread:
    def __init__(self, thread: Any) -> None:
        self._thread = thread
        self.runs = 0

    def run(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        self.runs += 1
        result: Awaitable[Any] = self._thread.run(function, *args)
        return result

    def close(self) -> None: ...


def with_patterns(scenario: Callable[[TopicPatterns, CountingThread], Awaitable[None]]) -> None:
    with Simulation(1) as simulation:
        thread = CountingThread(simulation.start_process("node").tasks.thread("patterns"))

        async def run() -> None:
            await scenario(TopicPatterns(thread), thread)

        simulation.run(run())


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders.eu"}),
        ("(?i)ORDERS", {"orders"}),
        ("rder", set()),
        ("h.llo|payments", {"héllo", "payments"}),
        (".*", set(NAMES)),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, found: set[str]):
    async def scenario(patterns: TopicPatterns, _: CountingThread) -> None:
        assert await patterns.matching([pattern], view(1, *NAMES)) == {pattern: found}

    with_patterns(scenario)


@pytest.mark.parametrize("pattern", ["a(", "[", "*", "(?=a)", r"(a)\1", "(((a{1000}){1000}){1000})"])
def test_an_invalid_expression_is_an_error_and_matches_nothing(pattern: str):
    async def scenario(patterns: TopicPatterns, _: CountingThread) -> None:
        assert await patterns.problem(pattern)
        assert await patterns.matching([pattern], view(1, *NAMES)) == {pattern: frozenset()}

    with_patterns(scenario)


def test_the_same_question_about_the_same_topics_is_asked_once():
    async def scenario(patterns: TopicPatterns, thread: CountingThread) -> None:
        for _ in range(3):
            await patterns.matching(["o.*", "p.*"], view(1, *NAMES))
        assert thread.runs == 1
        assert await patterns.matching(["o.*"], view(2, "ok")) == {"o.*": {"ok"}}
        assert thread.runs == 2

    with_patterns(scenario)


def test_a_catastrophic_expression_is_answered_in_time():
    async def scenario(patterns: TopicPatterns, _: CountingThread) -> None:
        assert await patterns.problem("(a+)+b") is None
        assert await patterns.matching(["(a+)+b"], view(1, "a" * 249)) == {"(a+)+b": frozenset()}

    with_patterns(scenario)
