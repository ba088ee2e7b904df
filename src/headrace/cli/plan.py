"""`headrace plan`: how many consumers and partitions a topic needs, from figures that were measured or given.

Measuring is client/plan_measure.py's, the arithmetic client/plan.py's. Read next: plan_survey.py
(which figures), plan_view.py (how they are shown).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.durations import parse_duration_ms
from headrace.cli.option_sets import takes_options
from headrace.cli.options import BOOTSTRAP, Bootstrap, Json
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cli.plan_survey import Handler, PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPlanOptions:
    """What the command line says, with the help of each option."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to plan for.")]
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Measure the consumers of this group while they run.")
    ] = None
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Trial: run this for each record, its value on stdin."),
    ] = None
    handler: Annotated[
        str | None,
        typer.Option("--handler", metavar="MODULE:FUNCTION", help="Trial: call this with each record."),
    ] = None
    over: Annotated[str, typer.Option("--over", metavar="DURATION", help="Measure for so long.")] = "15s"
    records: Annotated[
        int, typer.Option("--records", min=2, help="Try the handler on so many of the newest, at most.")
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
        typer.Option("--headroom", min=1.0, help="Partitions for each consumer, at least. Left out: 1.5."),
    ] = None
    session_timeout: Annotated[
        str | None,
        typer.Option("--session-timeout", metavar="DURATION", help="Of the consumers. Left out: 45s."),
    ] = None
    rebalance_time: Annotated[
        str | None,
        typer.Option("--rebalance-time", metavar="DURATION", help="Instead of what the group's events say."),
    ] = None
    node_down: Annotated[
        str | None,
        typer.Option("--node-down", metavar="DURATION", help="How long partitions of a dead node are away."),
    ] = None
    bootstrap: Bootstrap = BOOTSTRAP
    as_json: Json = False

    def complete(self) -> PlanOptions:
        from headrace.cli.plan_survey import PlanOptions

        return PlanOptions(
            topic=self.topic,
            group=self.group,
            over_ms=parse_duration_ms(self.over, "--over"),
            records=self.records,
            produce_rate=self.produce_rate,
            consume_rate=self.consume_rate,
            headroom=self.headroom,
            session_timeout=self.session_timeout,
            rebalance_time=self.rebalance_time,
            node_down=self.node_down,
        )

    def handler_to_try(self) -> Handler | None:
        """At most one of the ways to a consumer's rate may be given."""
        from headrace.cli.plan_survey import command_handler, imported_handler

        if sum(option is not None for option in (self.command, self.handler, self.consume_rate)) > 1:
            raise typer.BadParameter("give one of --exec, --handler and --consume-rate")
        if self.command:
            return command_handler(self.command)
        return imported_handler(self.handler) if self.handler else None


@takes_options
def plan(given: GivenPlanOptions) -> None:
    """Say how many consumers and partitions a topic needs.

    Consumers = throughput of all producers / throughput of one consumer, rounded up;
    partitions ≥ consumers. Also what the death of a consumer or a node costs, and what limits.

    Both rates are measured: the producers' from the running topic; one consumer's from a running
    --group, or by trying your own code (--exec, --handler) on the newest records, without joining
    a group. Either can be given instead. Nothing is guessed: what was neither measured nor given
    is asked for.

    \b
    Examples:
      headrace plan orders --group billing
      headrace plan orders --handler billing.app:handle --over 30s
      headrace plan orders --exec './bill.sh' --produce-rate 5000
      headrace plan orders --produce-rate 5000 --consume-rate 900 --session-timeout 10s --json
    """
    from headrace.cli import plan_view
    from headrace.cli.plan_survey import survey
    from headrace.client.plan import make_plan

    handle = given.handler_to_try()
    output = Output(as_json=given.as_json)
    situation = survey(output, given.bootstrap, given.complete(), handle)
    result = make_plan(situation)
    if given.as_json:
        output.document(plan_view.document(situation, result))
    else:
        plan_view.show(situation, result, output)
