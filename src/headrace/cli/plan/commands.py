# SPDX-License-Identifier: Apache-2.0
"""`headrace plan`: how many consumers and partitions a topic needs, from measured or supplied rates.

Measures with client/planning/measurement.py, computes with client/planning/capacity.py. Read next: inputs.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.durations import parse_duration_ms
from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cli.plan.inputs import Handler, PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanArguments:
    """Options of the command line with their help."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to plan for.")]
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Measure the consumers of this group while they run.")
    ] = None
    command: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="CMD", help="Trial: run this command for each record, its value on stdin."
        ),
    ] = None
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler", metavar="MODULE:FUNCTION", help="Trial: call this function with each record."
        ),
    ] = None
    over: Annotated[str, typer.Option("--over", metavar="DURATION", help="Duration of the measurement.")] = (
        "15s"
    )
    records: Annotated[
        int, typer.Option("--records", min=2, help="Trial: maximum number of records, newest first.")
    ] = 10_000
    produce_rate: Annotated[
        float | None,
        typer.Option("--produce-rate", min=0.001, help="Records/s of all producers, instead of measuring."),
    ] = None
    consume_rate: Annotated[
        float | None,
        typer.Option("--consume-rate", min=0.001, help="Records/s of one consumer, instead of measuring."),
    ] = None
    headroom: Annotated[
        float | None,
        typer.Option("--headroom", min=1.0, help="Minimum partitions per consumer. Default: 1.5."),
    ] = None
    session_timeout: Annotated[
        str | None,
        typer.Option(
            "--session-timeout", metavar="DURATION", help="Session timeout of the consumers. Default: 45s."
        ),
    ] = None
    rebalance_time: Annotated[
        str | None,
        typer.Option(
            "--rebalance-time", metavar="DURATION", help="Rebalance time, instead of the group's events."
        ),
    ] = None
    node_down: Annotated[
        str | None,
        typer.Option(
            "--node-down", metavar="DURATION", help="How long partitions of a failed node are unavailable."
        ),
    ] = None
    as_json: Json = False

    def complete(self) -> PlanOptions:
        from headrace.cli.plan.inputs import PlanOptions

        return PlanOptions(
            topic=self.topic,
            group=self.group,
            over_ms=parse_duration_ms(self.over, "--over"),
            records=self.records,
            produce_rate=self.produce_rate,
            consume_rate=self.consume_rate,
            headroom=self.headroom,
            session_timeout_ms=_duration_ms(self.session_timeout, "--session-timeout"),
            rebalance_time_ms=_duration_ms(self.rebalance_time, "--rebalance-time"),
            node_down_ms=_duration_ms(self.node_down, "--node-down"),
        )

    def handler_to_try(self) -> Handler | None:
        """At most one source of a consumer's rate may be set."""
        from headrace.cli.plan.inputs import command_handler, imported_handler

        if sum(option is not None for option in (self.command, self.handler, self.consume_rate)) > 1:
            raise typer.BadParameter("use only one of --exec, --handler and --consume-rate")
        if self.command:
            return command_handler(self.command)
        return imported_handler(self.handler) if self.handler else None


def _duration_ms(text: str | None, option: str) -> int | None:
    return None if text is None else parse_duration_ms(text, option)


@takes_options
def plan(arguments: PlanArguments, connect: ConnectOptions) -> None:
    """Compute how many consumers and partitions a topic needs.

    Consumers = throughput of all producers / throughput of one consumer, rounded up;
    partitions ≥ consumers. Also the effect of a failed consumer or node, and the bottleneck.

    Both rates are measured: the producers' from the running topic; one consumer's from a running
    --group, or by trying your own code (--exec, --handler) on the newest records, without joining
    a group. Either can be set instead. Nothing is guessed: a rate that is neither measured nor
    set is an error.

    \b
    Examples:
      headrace plan orders --group billing
      headrace plan orders --handler billing.app:handle --over 30s
      headrace plan orders --exec './bill.sh' --produce-rate 5000
      headrace plan orders --produce-rate 5000 --consume-rate 900 --session-timeout 10s --json
    """
    from headrace.cli.plan import view
    from headrace.cli.plan.inputs import collect_inputs
    from headrace.client.planning.capacity import make_plan

    handle = arguments.handler_to_try()
    options = arguments.complete()
    output = Output(as_json=arguments.as_json)
    situation = collect_inputs(output, connect.cluster(), options, handle)
    result = make_plan(situation)
    if arguments.as_json:
        output.document(view.document(situation, result))
    else:
        view.show(situation, result, output)
