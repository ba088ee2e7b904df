# SPDX-License-Identifier: Apache-2.0
"""View `plan` (`topic`, `group`, and rates that are given): consumers and partitions that a topic needs.

The sum is that of `headrace plan` (client/planning/capacity.py); js/plan_formula.js computes the same for
the sliders. `produce_rate`, `consume_rate` (records/s), `headroom`, `session_timeout`, `rebalance` and
`node_down` (ms) replace measured figures.

    topics: [{name, partitions, rate_in}] (at most 200, by rate), groups: [names that read the topic]
    topic, group: the chosen ones, or null
    situation: null, or {topic, partitions, consumers, busiest_partition_rate, node_share,
        consume_rate_is_floor, and figures {value, source: "measured"|"given"|"assumed", how} or null:
        produce_rate, consume_rate, headroom, session_timeout_ms, rebalance_ms, node_down_ms}
    plan: null, or {consumers, consumers_with_spare, partitions, choices: [{consumers, load,
        consumer_dies: {lag, caught_up_ms}, node_dies: {…} | null}], limits: [texts], unknown: [texts]}
    consumer_rates: [{member_id, client_id, rate, busy}]
    missing: [{text, next}]: why there is no plan

A consumer is busy while it has more to read than came in within a second: then its rate is its limit.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass

from headrace.client.planning.capacity import Figure, Situation, make_plan
from headrace.client.planning.measurement import is_busy
from headrace.console.state.model import GroupState, MemberState, Snapshot, TopicState
from headrace.console.views.admin_document import command, document
from headrace.console.views.view import Document, Interest, Params, Source, View, ViewError

_REFRESH_S = 1.0
_MOST_TOPICS = 200
_HEADROOM = 1.5
_SESSION_TIMEOUT_MS = 45_000
_MOST_RATE = 1e12
_MEASURED = "over the last samples of the offsets"
_EVENTS = "the median of the group's recorded rebalances"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRate:
    member: MemberState
    rate: float
    busy: bool


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    parts: Document = {
        "topics": _topics(snapshot),
        "groups": [],
        "topic": None,
        "group": None,
        "situation": None,
        "plan": None,
        "consumer_rates": [],
        "missing": [],
    }
    if not params.get("topic"):
        parts["missing"] = [_missing("no topic is chosen", "choose one")]
        return document("plan", snapshot, parts, commands=_commands("TOPIC", None))
    topic = snapshot.topics.get(params["topic"])
    if topic is None:
        raise ViewError(f"there is no topic {params['topic']!r}", next_step="choose one of the list")
    readers = _readers(snapshot, topic.name)
    group = _group(snapshot, params, readers)
    rates = [] if group is None else consumer_rates(topic, group)
    parts |= {
        "groups": readers,
        "topic": topic.name,
        "group": None if group is None else group.group_id,
        "consumer_rates": [
            {
                "member_id": each.member.member_id,
                "client_id": each.member.client_id,
                "rate": each.rate,
                "busy": each.busy,
            }
            for each in rates
        ],
    }
    produce, consume = _produce_rate(params, topic), _consume_rate(params, rates)
    parts["missing"] = _what_is_missing(produce, consume, group)
    if produce is not None and consume is not None:
        is_floor = consume.source == "measured" and not any(each.busy for each in rates)
        situation = _situation(snapshot, params, topic, group, produce, consume, is_floor=is_floor)
        parts["situation"] = asdict(situation)
        parts["plan"] = asdict(make_plan(situation))
    return document("plan", snapshot, parts, commands=_commands(topic.name, parts["group"]))


def consumer_rates(topic: TopicState, group: GroupState) -> list[ConsumerRate]:
    """Of the members that have partitions of the topic, and whose commits move."""
    found = []
    for member in group.members:
        held = [each for each in member.assigned if each.topic == topic.name and each in group.progress]
        rates = [rate for each in held if (rate := group.progress[each].rate_out) is not None]
        if not rates:
            continue
        lag, rate_in = 0, 0.0
        for each in held:
            partition = topic.partitions.get(each.partition)
            committed = group.progress[each].committed
            if partition is None or partition.end is None or committed is None:
                continue
            lag += max(partition.end - committed, 0)
            rate_in += partition.rate_in or 0.0
        found.append(ConsumerRate(member=member, rate=sum(rates), busy=is_busy(lag, rate_in)))
    return found


def _situation(
    snapshot: Snapshot,
    params: Params,
    topic: TopicState,
    group: GroupState | None,
    produce: Figure,
    consume: Figure,
    *,
    is_floor: bool,
) -> Situation:
    known = [each.rate_in for each in topic.partitions.values() if each.rate_in is not None]
    leaders = Counter(each.leader for each in topic.partitions.values())
    session = _given(params, "session_timeout")
    return Situation(
        topic=topic.name,
        produce_rate=produce,
        consume_rate=consume,
        consume_rate_is_floor=is_floor,
        busiest_partition_rate=max(known, default=None) if produce.source == "measured" else None,
        partitions=len(topic.partitions),
        consumers=len(group.members) or None if group is not None else None,
        headroom=_given(params, "headroom")
        or Figure(value=_HEADROOM, source="assumed", how="partitions for each consumer"),
        session_timeout_ms=session
        or Figure(value=_SESSION_TIMEOUT_MS, source="assumed", how="the default of clients"),
        rebalance_ms=_given(params, "rebalance") or _rebalance(snapshot, group),
        node_down_ms=_given(params, "node_down"),
        node_share=max(leaders.values()) / len(topic.partitions),
    )


def _produce_rate(params: Params, topic: TopicState) -> Figure | None:
    given = _given(params, "produce_rate")
    if given is not None:
        return given
    known = [each.rate_in for each in topic.partitions.values() if each.rate_in is not None]
    return Figure(value=sum(known), source="measured", how=_MEASURED) if sum(known) > 0 else None


def _consume_rate(params: Params, rates: list[ConsumerRate]) -> Figure | None:
    """Of those at their limit, else of all: then it is only what they did."""
    given = _given(params, "consume_rate")
    if given is not None:
        return given
    moving = [each for each in rates if each.rate > 0]
    busy = [each.rate for each in moving if each.busy]
    if not moving:
        return None
    how = f"{len(busy)} of {len(moving)} consumers were at their limit" if busy else "consumers that kept up"
    value = statistics.fmean(busy) if busy else max(each.rate for each in moving)
    return Figure(value=value, source="measured", how=how)


def _rebalance(snapshot: Snapshot, group: GroupState | None) -> Figure | None:
    events = () if group is None else snapshot.group_events.get(group.group_id, ())
    took = [event.details.get("took_ms") for event in events if event.kind == "assigned"]
    times = [float(each) for each in took if isinstance(each, (int, float))]
    return Figure(value=statistics.median(times), source="measured", how=_EVENTS) if times else None


def _what_is_missing(
    produce: Figure | None, consume: Figure | None, group: GroupState | None
) -> list[Document]:
    found = []
    if produce is None:
        found.append(
            _missing("nothing is written to the topic now", "wait for its producers, or give a rate")
        )
    if consume is None:
        what = "no group reads the topic" if group is None else "the group's consumers commit nothing now"
        found.append(_missing(what, "give the rate of one consumer, or start one"))
    return found


def _missing(text: str, next_step: str) -> Document:
    return {"text": text, "next": next_step}


def _topics(snapshot: Snapshot) -> list[Document]:
    found = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "rate_in": sum(each.rate_in or 0.0 for each in topic.partitions.values()),
        }
        for topic in snapshot.topics.values()
        if not topic.internal
    ]
    return sorted(found, key=lambda each: (-float(str(each["rate_in"])), str(each["name"])))[:_MOST_TOPICS]


def _readers(snapshot: Snapshot, topic: str) -> list[str]:
    return sorted(
        group.group_id
        for group in snapshot.groups.values()
        if any(each.topic == topic for each in group.progress)
        or any(each.topic == topic for member in group.members for each in member.assigned)
    )


def _group(snapshot: Snapshot, params: Params, readers: list[str]) -> GroupState | None:
    """The one asked for, else the only one that reads the topic."""
    if params.get("group"):
        if params["group"] not in snapshot.groups:
            raise ViewError(f"there is no group {params['group']!r}", next_step="choose one of the list")
        return snapshot.groups[params["group"]]
    return snapshot.groups[readers[0]] if len(readers) == 1 else None


def _given(params: Params, name: str) -> Figure | None:
    text = params.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MOST_RATE:
        raise ViewError(f"{name} is {text!r}", next_step="give a number above 0", status=400)
    return Figure(value=value, source="given", how="given")


def _commands(topic: str, group: str | None) -> list[Document]:
    words = ["plan", topic, *(["--group", group] if group else ["--group", "GROUP"])]
    return [command("Measure for 15 s, and plan", *words)]


def _interest(params: Params) -> Interest:
    topics = frozenset({params["topic"]}) if params.get("topic") else frozenset[str]()
    groups = frozenset({params["group"]}) if params.get("group") else frozenset[str]()
    return Interest(topics=topics, groups=groups)


VIEW = View(name="plan", build=build, refresh_s=_REFRESH_S, interest=_interest)
