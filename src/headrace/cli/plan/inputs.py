# SPDX-License-Identifier: Apache-2.0
"""Inputs of `headrace plan`: each rate measured or supplied; a missing one is an error.

Measures through client/planning/measurement.py. Never substitutes a guess for a measurement.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import typer

from headrace.cli.durations import human_ms
from headrace.cli.output import Output
from headrace.cli.records.record_command import run_command
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.parallel.record import Record
from headrace.client.planning.capacity import Figure, Situation
from headrace.client.planning.measurement import (
    Traffic,
    Trial,
    largest_leader_share,
    rebalance_times_ms,
    run_trial,
    typical_ms,
    watch_traffic,
)
from headrace.client.tools.groups import Groups

Handler = Callable[[Record], object]

HEADROOM = 1.5
SESSION_TIMEOUT_MS = 45_000
"""Default of librdkafka and the Java client; a consumer's actual value is not visible to tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    topic: str
    group: str | None
    over_ms: int
    records: int
    produce_rate: float | None
    consume_rate: float | None
    headroom: float | None
    session_timeout_ms: int | None
    rebalance_time_ms: int | None
    node_down_ms: int | None


def command_handler(command: str) -> Handler:
    return lambda record: run_command(command, record).check()


def imported_handler(text: str) -> Handler:
    """Import `module:function` with the current directory on the path."""
    module_name, colon, name = text.partition(":")
    if not colon or not module_name or not name:
        raise typer.BadParameter(f"{text!r} is not MODULE:FUNCTION", param_hint="--handler")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ClientError(
            f"the handler {text} cannot be imported: {error}", next_step="run this where it can be imported"
        ) from error
    if not callable(found):
        raise ClientError(f"the handler {text} is not a function")
    handler: Handler = found
    return handler


def collect_inputs(
    output: Output, bootstrap: str | Cluster, options: PlanOptions, handle: Handler | None
) -> Situation:
    """Measure what was not supplied; on a terminal, show what it is waiting for."""
    groups = Groups(bootstrap)
    partitions = len(groups.describe_topic(options.topic).partitions)
    traffic = _watch(output, groups, options, needs_group=handle is None)
    produce = _produce_rate(options, traffic)
    trial = None
    if handle is not None:
        _say(output, f"trying the handler on up to {options.records:,} records …")
        trial = run_trial(
            bootstrap, groups, options.topic, handle, records=options.records, over_ms=options.over_ms
        )
    consume, is_floor = _consume_rate(options, traffic, trial)
    group = traffic.group if traffic else None
    return Situation(
        topic=options.topic,
        produce_rate=produce,
        consume_rate=consume,
        consume_rate_is_floor=is_floor,
        busiest_partition_rate=_busiest(options, traffic),
        partitions=partitions,
        consumers=len(group.members) if group and group.members else None,
        headroom=_headroom(options.headroom),
        session_timeout_ms=_supplied_ms(options.session_timeout_ms, "--session-timeout")
        or Figure(value=SESSION_TIMEOUT_MS, source="assumed", how="client default"),
        rebalance_ms=_supplied_ms(options.rebalance_time_ms, "--rebalance-time")
        or _recorded_rebalance(bootstrap, groups, options),
        node_down_ms=_supplied_ms(options.node_down_ms, "--node-down"),
        node_share=largest_leader_share(groups, options.topic),
    )


def _watch(output: Output, groups: Groups, options: PlanOptions, *, needs_group: bool) -> Traffic | None:
    """No measurement when both rates are known."""
    consumers_count = needs_group and options.consume_rate is None and options.group is not None
    if options.produce_rate is not None and not consumers_count:
        return None
    if needs_group and options.consume_rate is None and options.group is None:
        raise _no_consume_rate(options, "no --group, --exec, --handler or --consume-rate")
    _say(output, f"watching topic '{options.topic}' for {human_ms(options.over_ms)} …")
    return watch_traffic(groups, options.topic, options.group, options.over_ms)


def _produce_rate(options: PlanOptions, traffic: Traffic | None) -> Figure:
    if options.produce_rate is not None:
        return Figure(value=options.produce_rate, source="given", how="--produce-rate")
    assert traffic is not None
    if traffic.produce_rate <= 0:
        raise ClientError(
            f"nothing was written to topic {options.topic!r} within {human_ms(traffic.window_ms)}, "
            "so the producers' rate was not measured",
            next_step="run this while they run (longer with --over 60s), or set --produce-rate RECORDS",
            code="NOT_MEASURED",
        )
    return Figure(value=traffic.produce_rate, source="measured", how=f"over {human_ms(traffic.window_ms)}")


def _consume_rate(options: PlanOptions, traffic: Traffic | None, trial: Trial | None) -> tuple[Figure, bool]:
    """One consumer's rate, and whether it is only a lower bound."""
    if options.consume_rate is not None:
        return Figure(value=options.consume_rate, source="given", how="--consume-rate"), False
    if trial is not None:
        limit = "the handler" if trial.handler_share > 0.5 else "reading"
        how = (
            f"trial on {trial.records:,} records in {trial.seconds:.1f} s, "
            f"{trial.handler_share:.0%} of them in the handler: {limit} limits"
        )
        return Figure(value=trial.rate, source="measured", how=how), False
    if traffic is None:
        raise _no_consume_rate(options, "no --group, --exec, --handler or --consume-rate")
    return _group_rate(options, traffic)


def _group_rate(options: PlanOptions, traffic: Traffic) -> tuple[Figure, bool]:
    moving = [consumer for consumer in traffic.consumers if consumer.rate > 0]
    if not moving:
        raise _no_consume_rate(
            options, f"group {options.group!r} committed nothing within {human_ms(traffic.window_ms)}"
        )
    busy = [consumer.rate for consumer in moving if consumer.busy]
    window = f"over {human_ms(traffic.window_ms)}, by commits of '{options.group}'"
    if busy:
        how = f"{window}: {len(busy)} of {len(traffic.consumers)} were saturated"
        return Figure(value=sum(busy) / len(busy), source="measured", how=how), False
    fastest = max(consumer.rate for consumer in moving)
    return Figure(value=fastest, source="measured", how=f"at least: {window}; they kept up"), True


def _no_consume_rate(options: PlanOptions, why: str) -> ClientError:
    return ClientError(
        f"the rate of one consumer was not measured: {why}",
        next_step=f"name a group that runs (headrace plan {options.topic} --group GROUP), try your own code "
        "(--exec CMD or --handler MODULE:FUNCTION), or set --consume-rate RECORDS",
        code="NOT_MEASURED",
    )


def _busiest(options: PlanOptions, traffic: Traffic | None) -> float | None:
    """Busiest partition, only when measured: a supplied rate has no distribution."""
    if traffic is None or options.produce_rate is not None or len(traffic.partition_rates) < 1:
        return None
    return traffic.busiest_partition_rate


def _headroom(given: float | None) -> Figure:
    if given is None:
        return Figure(value=HEADROOM, source="assumed", how="minimum partitions per consumer")
    return Figure(value=given, source="given", how="--headroom")


def _supplied_ms(value_ms: int | None, option: str) -> Figure | None:
    return None if value_ms is None else Figure(value=value_ms, source="given", how=option)


def _recorded_rebalance(bootstrap: str | Cluster, groups: Groups, options: PlanOptions) -> Figure | None:
    if options.group is None:
        return None
    times = rebalance_times_ms(bootstrap, groups, options.group)
    if not times:
        return None
    how = f"median of {len(times)} in the last day, by the group's events"
    return Figure(value=typical_ms(times), source="measured", how=how)


def _say(output: Output, text: str) -> None:
    if output.terminal and not output.as_json:
        output.note(text)
