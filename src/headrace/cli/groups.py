"""`headrace groups`: list, describe, reset, delete, events, on any Kafka.

Arguments in, words out: group_view.py shows a group, group_reset.py resets one, group_events.py tells its
story; the work is client/groups.py's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.durations import parse_duration_ms
from headrace.cli.group_reset_options import ResetTarget
from headrace.cli.help import HELP_STYLE
from headrace.cli.option_sets import takes_options
from headrace.cli.options import BOOTSTRAP, Bootstrap, Json, Yes, confirm
from headrace.cli.output import Cell, Output, clean

if TYPE_CHECKING:
    from headrace.client.groups import GroupDescription, GroupListing, Groups

app = typer.Typer(
    help="List, describe, reset and delete consumer groups, and tell their story.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only these: Stable, Empty, …; may be repeated."),
    ] = None,
    group_type: Annotated[
        list[str] | None, typer.Option("--type", metavar="classic|consumer", help="Only this type.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List the groups: who is in them, and how far they are behind.

    The type is the protocol that the group speaks: classic, or consumer (KIP-848). The lag is
    the sum over all partitions that the group has committed for, in records.

    \b
    Examples:
      headrace groups list
      headrace groups list --state Empty --state Dead
      headrace groups list --type consumer --json
    """
    from headrace.client.groups import STATES, TYPES, Groups

    _check_names(state, STATES, "--state")
    _check_names(group_type, TYPES, "--type")
    output = Output(as_json=as_json)
    groups = Groups(bootstrap)
    listed = groups.list_groups(states=state or (), types=group_type or ())
    described = groups.describe_groups(listed)
    lags = _lags(groups, listed)
    if as_json:
        output.document([_listing(g, described.get(g.group_id), lags.get(g.group_id)) for g in listed])
        return
    if output.terminal and not listed:
        output.note("There are no such groups; a consumer that subscribes makes one.")
        return
    rows: list[tuple[Cell, ...]] = [
        (
            group.group_id,
            group.protocol_type or None,
            group.group_type,
            group.state,
            len(described[group.group_id].members) if group.group_id in described else None,
            lags.get(group.group_id),
        )
        for group in listed
    ]
    output.table(("GROUP", "PROTOCOL", "TYPE", "STATE", "MEMBERS", "LAG"), rows)


@app.command()
def describe(
    group: Group,
    over: Annotated[
        str,
        typer.Option(
            "--over",
            metavar="DURATION",
            help="Measure rates for so long at most when there is a lag; 0s does not wait.",
        ),
    ] = "5s",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look on, until Ctrl-C.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a group: who reads which partition, and how far it is behind.

    BEHIND is how long the next record to be read has been in the log. CLEAR IN is when the
    consumer will have worked off all its partitions, if records keep coming in and being
    committed as fast as now; that needs a moment of watching.

    \b
    Examples:
      headrace groups describe billing
      headrace groups describe billing --watch
      headrace groups describe billing --over 0s --json
    """
    from headrace.cli import group_view, group_watch
    from headrace.client.group_report import GroupWatch

    over_ms = parse_duration_ms(over, "--over")
    output = Output(as_json=as_json)
    watching = GroupWatch(bootstrap, group)
    watching.look()
    if watch:
        group_watch.watch(watching, output)
        return
    watching.measure(over_ms)
    report = watching.report()
    if as_json:
        output.document(group_view.document(report))
        return
    group_view.show(report, output)
    for note in group_view.notes(report):
        output.note(note)


@app.command()
@takes_options
def reset(
    *,
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Only this topic, or some of its partitions; may be repeated. "
            "Left out: all that the group committed for.",
        ),
    ] = None,
    target: ResetTarget,
    export: Annotated[
        bool, typer.Option("--export", help="Print the new offsets as lines for --from-file.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without it, only show.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Set a group's committed offsets; only shows old and new unless told to.

    Offsets can be set while nobody is in the group. --execute does it; without it nothing is
    changed. An offset that the log does not hold becomes the nearest one that it does.

    \b
    Examples:
      headrace groups reset billing --to-earliest
      headrace groups reset billing --to-datetime 2026-01-31T12:00:00Z --execute
      headrace groups reset billing --topic orders:0,2 --shift-by -10 --execute
      headrace groups reset billing --to-current --export > offsets.csv
      headrace groups reset billing --from-file offsets.csv --execute
    """
    from headrace.cli.group_reset import Reset, export_lines, strategy_of

    strategy = strategy_of(target, group, int(time.time() * 1000))
    output = Output(as_json=as_json)
    work = Reset(bootstrap, group)
    changes = work.plan(strategy, topic or ())
    if execute:
        work.execute(changes)
    if export:
        for line in export_lines(changes):
            output.line(line)
        return
    work.show(output, changes, executed=execute)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP…", help="The groups' names.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Only forget what they committed for this topic."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete groups that nobody is in, or their offsets of one topic.

    Records stay where they are.

    \b
    Examples:
      headrace groups delete billing
      headrace groups delete billing audit --yes
      headrace groups delete billing --topic orders
    """
    from headrace.client.groups import Groups

    output = Output(as_json=as_json)
    client = Groups(bootstrap)
    found = [client.describe_group(name) for name in groups]
    named = ", ".join(f"'{clean(each.group_id)}' ({each.state})" for each in found)
    if topic is not None:
        confirm(f"forget what {named} at {bootstrap} committed for topic '{clean(topic)}'", yes=yes)
        counts = {each.group_id: client.delete_offsets(each.group_id, topic) for each in found}
        forgotten = {"topic": topic, "forgotten_partitions": counts}
        output.say(forgotten, f"Forgot what {named} committed for topic '{topic}'.")
        return
    confirm(f"delete {named} at {bootstrap} with all committed offsets, for ever", yes=yes)
    for each in found:
        client.delete_group(each.group_id)
    output.say({"deleted": groups}, f"Deleted {named}.")


@app.command()
def events(
    group: Group,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="15m, 2h or 7d ago, or a moment. Left out: 1h."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Tell a group's story: who came and went, and why it rebalanced.

    Also how long each rebalance took, what it moved, first fetches and commits. Headrace writes
    it down and keeps it for 7 days. Apache Kafka does not: there, --follow tells what can be seen
    by looking at the group again and again, from now on.

    \b
    Examples:
      headrace groups events billing
      headrace groups events billing --follow
      headrace groups events billing --since 2d --json
    """
    from headrace.cli.group_events import tell

    tell(Output(as_json=as_json), bootstrap, group, follow=follow, since=since)


def _lags(groups: Groups, listed: list[GroupListing]) -> dict[str, int]:
    """Records behind, by group; of groups that never committed nothing is said."""
    from headrace.client.group_report import total_lag
    from headrace.client.lag import records_behind

    committed = groups.committed_by(listed)
    ends = groups.ends({where for offsets in committed.values() for where in offsets})
    return {
        group_id: total_lag(records_behind(offset, ends.get(where)) for where, offset in offsets.items())
        for group_id, offsets in committed.items()
        if offsets
    }


def _listing(group: GroupListing, description: GroupDescription | None, lag: int | None) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "protocol_type": group.protocol_type,
        "type": group.group_type,
        "state": group.state,
        "coordinator": group.node_id,
        "members": None if description is None else len(description.members),
        "lag": lag,
    }


def _check_names(given: list[str] | None, known: tuple[str, ...], option: str) -> None:
    lower = {name.lower() for name in known}
    for name in given or ():
        if name.lower() not in lower:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)
