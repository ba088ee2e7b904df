# SPDX-License-Identifier: Apache-2.0
"""How many consumers and partitions a stream needs, and what a failure costs (D16). Pure arithmetic.

Consumers = throughput of all producers / throughput of one consumer; partitions ≥ consumers. Every figure
has its source. Measured by measurement.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Source = Literal["measured", "given", "assumed"]

_MOST_TIMES, _MOST_TRIED = 4, 10_000
_UNEVEN = 1.5
"""A partition that gets this many times the average shows keys that are badly spread."""
_CLOSE = 1e-9
"""Rates are quotients: 300 / 100.00000000000001 is three consumers, not four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    value: float
    source: Source
    how: str
    """In words: "over 15.0 s", "--consume-rate", "the default of clients"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a topic and its readers. Rates are records per second, durations milliseconds."""

    topic: str
    produce_rate: Figure
    """Of all producers together."""
    consume_rate: Figure
    """Of one consumer."""
    consume_rate_is_floor: bool
    """It had nothing left to read, so it can do at least this much: nobody knows how much more."""
    busiest_partition_rate: float | None
    partitions: int
    consumers: int | None
    """In the group now."""
    headroom: Figure
    """Partitions for each consumer, at least."""
    session_timeout_ms: Figure
    rebalance_ms: Figure | None
    node_down_ms: Figure | None
    node_share: float
    """Of the partitions, led by the node that leads most of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    lag: int
    """Records that wait when work goes on."""
    caught_up_ms: int | None
    """From the failure until the lag is gone; None: never, those who are left are too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A number of consumers and what it means."""

    consumers: int
    load: float
    """Share of their time that they work: above 1 the lag grows."""
    consumer_dies: Outage
    node_dies: Outage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    consumers: int
    """As the formula says."""
    consumers_with_spare: int
    """So many that the rest still keeps up when one of them dies."""
    partitions: int
    choices: tuple[Choice, ...]
    limits: tuple[str, ...]
    """What stands in the way, the worst first."""
    unknown: tuple[str, ...]
    """What is not in the figures, because nobody measured it."""


def make_plan(situation: Situation) -> Plan:
    needed = consumers_needed(situation.produce_rate.value, situation.consume_rate.value)
    with_spare = consumers_with_spare(situation.produce_rate.value, situation.consume_rate.value)
    partitions = partitions_for(situation, with_spare)
    counts = {needed, with_spare} | ({situation.consumers} if situation.consumers else set())
    return Plan(
        consumers=needed,
        consumers_with_spare=with_spare,
        partitions=partitions,
        choices=tuple(choice(situation, count) for count in sorted(counts)),
        limits=tuple(limits(situation, needed, partitions)),
        unknown=tuple(unknown(situation)),
    )


def consumers_needed(produce_rate: float, consume_rate: float) -> int:
    """All producers / one consumer, rounded up."""
    return max(1, math.ceil(produce_rate / consume_rate - _CLOSE))


def consumers_with_spare(produce_rate: float, consume_rate: float) -> int:
    """The smallest number of which one may die while the rest is still faster than the producers."""
    return math.floor(produce_rate / consume_rate + _CLOSE) + 2


def partitions_for(situation: Situation, consumers: int) -> int:
    """At least the consumers times the head-room, and never fewer than there are.

    Partitions are not divisible: with 7 over 5 consumers, two consumers have twice the work of the others.
    So the number grows until the consumer with most of them can bear its share, also when one has died if
    that takes no more than a few times as many. A multiple of the consumers always does for the former.
    """
    lowest = max(situation.partitions, math.ceil(consumers * situation.headroom.value - _CLOSE))
    fair = math.ceil(lowest / consumers) * consumers
    for count in range(lowest, min(lowest * _MOST_TIMES, lowest + _MOST_TRIED)):
        if _bearable(situation, count, consumers):
            fair = min(fair, count)
            if _bearable(situation, count, consumers - 1):
                return count
    return fair


def _bearable(situation: Situation, partitions: int, consumers: int) -> bool:
    """Whether the consumer with most partitions is fast enough for them, when all get as many records."""
    largest_share = math.ceil(partitions / consumers) / partitions
    return largest_share * situation.produce_rate.value <= situation.consume_rate.value * (1 + _CLOSE)


def choice(situation: Situation, consumers: int) -> Choice:
    produce, consume = situation.produce_rate.value, situation.consume_rate.value
    return Choice(
        consumers=consumers,
        load=produce / (consumers * consume),
        consumer_dies=_consumer_dies(situation, consumers),
        node_dies=_node_dies(situation, consumers),
    )


def limits(situation: Situation, consumers: int, partitions: int) -> list[str]:
    found = []
    busiest, consume = situation.busiest_partition_rate, situation.consume_rate.value
    average = situation.produce_rate.value / situation.partitions
    if busiest is not None and busiest > consume and busiest > average * _UNEVEN:
        found.append(
            f"one partition alone gets {busiest:,.0f} of {situation.produce_rate.value:,.0f} records/s, more "
            f"than one consumer did ({consume:,.0f}): more consumers do not help, spread the keys better"
        )
    if consumers > situation.partitions:
        found.append(
            f"the topic has {_counted(situation.partitions, 'partition')}, so only as many consumers can "
            f"work: headrace topics alter {situation.topic} --partitions {partitions}"
        )
    now = situation.consumers
    if now is not None and now < min(consumers, situation.partitions):
        found.append(f"the group has {_counted(now, 'consumer')}, and the producers need {consumers}")
    return found or ["one consumer's own speed: the faster it is, the fewer are needed"]


def unknown(situation: Situation) -> list[str]:
    found = []
    if situation.consume_rate_is_floor:
        found.append(
            "how fast one consumer can be: they all kept up, so fewer may do; "
            "find out with --exec CMD or --handler MODULE:FUNCTION"
        )
    if situation.rebalance_ms is None:
        found.append("how long a rebalance takes, so it is not in the lag: give --rebalance-time")
    if situation.node_down_ms is None:
        found.append("how long partitions are away when a node dies: give --node-down")
    return found


def _consumer_dies(situation: Situation, consumers: int) -> Outage:
    """Its share waits until its session ends; in the rebalance after it, at worst, everything does."""
    produce, consume = situation.produce_rate.value, situation.consume_rate.value
    rebalance_ms = situation.rebalance_ms.value if situation.rebalance_ms else 0.0
    waiting = produce * situation.session_timeout_ms.value / 1000 / consumers + produce * rebalance_ms / 1000
    stopped_ms = situation.session_timeout_ms.value + rebalance_ms
    return _outage(waiting, stopped_ms, spare_rate=(consumers - 1) * consume - produce)


def _node_dies(situation: Situation, consumers: int) -> Outage | None:
    """What its producers could not send comes all at once when its partitions have a leader again."""
    if situation.node_down_ms is None:
        return None
    produce, down_ms = situation.produce_rate.value, situation.node_down_ms.value
    waiting = produce * situation.node_share * down_ms / 1000
    return _outage(waiting, down_ms, spare_rate=consumers * situation.consume_rate.value - produce)


def _outage(waiting: float, stopped_ms: float, spare_rate: float) -> Outage:
    caught_up_ms = round(stopped_ms + waiting / spare_rate * 1000) if spare_rate > _CLOSE else None
    return Outage(lag=math.ceil(waiting - _CLOSE), caught_up_ms=caught_up_ms)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
