# SPDX-License-Identifier: Apache-2.0
"""`headrace groups`: list, describe, reset, delete, events, on any Kafka.

Parses arguments: view.py prints a group, reset.py resets one, events.py prints its events. Requests are in
client/tools/groups.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.durations import parse_duration_ms
from headrace.cli.groups.reset_options import ResetTarget
from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, ConnectOptions, DryRun, Json, Yes, confirm
from headrace.cli.output import Cell, Output, clean
from headrace.cli.progress import ProgressBar

if TYPE_CHECKING:
    from headrace.client.tools.groups import GroupDescription, GroupListing, Groups

app = typer.Typer(
    help="List, describe, reset and delete consumer groups, and show their events.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command("list")
@takes_options
def list_(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state: Stable, Empty, …; repeatable."
        ),
    ] = None,
    group_type: Annotated[
        list[str] | None, typer.Option("--type", metavar="classic|consumer", help="Only groups of this type.")
    ] = None,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """List groups with their members and lag.

    The type is the group protocol: classic, or consumer (KIP-848). The lag is
    the sum over all partitions with a committed offset, in records.

    \b
    Examples:
      headrace groups list
      headrace groups list --state Empty --state Dead
      headrace groups list --type consumer --json
    """
    from headrace.client.tools.groups import STATES, TYPES, Groups

    _check_names(state, STATES, "--state")
    _check_names(group_type, TYPES, "--type")
    output = Output(as_json=as_json)
    groups = Groups(connect.cluster())
    listed = groups.list_groups(states=state or (), types=group_type or ())
    described = groups.describe_groups(listed)
    lags = _lags(groups, listed)
    if as_json:
        output.document([_listing(g, described.get(g.group_id), lags.get(g.group_id)) for g in listed])
        return
    if output.terminal and not listed:
        output.note("There are no such groups; a consumer that subscribes creates one.")
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
@takes_options
def describe(
    *,
    group: Group,
    over: Annotated[
        str,
        typer.Option(
            "--over",
            metavar="DURATION",
            help="How long to measure rates when there is a lag; 0s: not at all.",
        ),
    ] = "5s",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show a group: members, assignment, positions and lag.

    POSITION is the offset that the consumer's last fetch asked for, COMMITTED where the group
    goes on after a restart. Both are drawn. Only Headrace reports the position.

    BEHIND is how long the next record to read has been in the log. CLEAR IN is when the
    consumer will have caught up on all its partitions at the present rates of produce and
    commit, which take a moment to measure.

    \b
    Examples:
      headrace groups describe billing
      headrace groups describe billing --watch
      headrace groups describe billing --over 0s --json
    """
    from headrace.cli.groups import view as group_view
    from headrace.cli.groups import watch as group_watch
    from headrace.client.tools.group_report import GroupWatch

    over_ms = parse_duration_ms(over, "--over")
    output = Output(as_json=as_json)
    watching = GroupWatch(connect.cluster(), group)
    watching.poll()
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
            help="Only this topic, or some of its partitions; repeatable. "
            "Default: all partitions with a committed offset.",
        ),
    ] = None,
    target: ResetTarget,
    export: Annotated[
        bool, typer.Option("--export", help="Print the new offsets as lines for --from-file.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the change; otherwise it is only shown.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the change, as without --execute.")
    ] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Reset a group's committed offsets; a dry run unless --execute is set.

    Offsets can only be set while the group has no members. An offset outside the log becomes
    the nearest one in the log.

    \b
    Examples:
      headrace groups reset billing --from beginning
      headrace groups reset billing --from 2026-01-31T12:00:00Z --execute
      headrace groups reset billing --topic orders:0,2 --shift-by -10 --execute
      headrace groups reset billing --to-current --export > offsets.csv
      headrace groups reset billing --from-file offsets.csv --execute
    """
    from headrace.cli.groups.reset import Reset, export_lines, strategy_of

    if dry_run and execute:
        raise typer.BadParameter("use either --dry-run or --execute")
    strategy = strategy_of(target, group, int(time.time() * 1000))
    output = Output(as_json=as_json)
    work = Reset(connect.cluster(), group)
    changes = work.plan(strategy, topic or ())
    if execute:
        work.execute(changes)
    if export:
        for line in export_lines(changes):
            output.line(line)
        return
    work.show(output, changes, executed=execute)


@app.command()
@takes_options
def delete(
    *,
    groups: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Names of the groups.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Only delete their offsets of this topic."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Delete groups without members, or their offsets of one topic.

    Records are not deleted.

    \b
    Examples:
      headrace groups delete billing
      headrace groups delete billing audit --dry-run
      headrace groups delete billing audit --yes
      headrace groups delete billing --topic orders
    """
    from headrace.client.tools.groups import Groups

    output = Output(as_json=as_json)
    cluster = connect.cluster()
    client = Groups(cluster)
    found = [client.describe_group(name) for name in groups]
    named = ", ".join(f"'{clean(each.group_id)}' ({each.state})" for each in found)
    if dry_run:
        what = named if topic is None else f"the offsets of {named} for topic '{topic}'"
        output.say({"dry_run": True, "would_delete": groups, "topic": topic}, f"Would delete {what}.")
        return
    if topic is not None:
        confirm(f"delete the offsets of {named} at {cluster} for topic '{clean(topic)}'", yes=yes)
        counts = {each.group_id: client.delete_offsets(each.group_id, topic) for each in found}
        forgotten = {"topic": topic, "forgotten_partitions": counts}
        output.say(forgotten, f"Deleted the offsets of {named} for topic '{topic}'.")
        return
    confirm(f"permanently delete {named} at {cluster} with all committed offsets", yes=yes)
    with ProgressBar("deleting", len(found)) as bar:
        for each in found:
            client.delete_group(each.group_id)
            bar.advance()
    output.say({"deleted": groups}, f"Deleted {named}.")


@app.command()
@takes_options
def events(
    *,
    group: Group,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new events until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            "--since",
            metavar="WHERE",
            help="beginning, end, 2h (ago), 2026-01-31T12:00:00Z or @MILLISECONDS. Default: 1h.",
        ),
    ] = None,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show a group's events: members that joined and left, and why it rebalanced.

    Also the duration of each rebalance, moved partitions, first fetches and commits. Headrace
    records events for 7 days. Apache Kafka does not: there, --follow shows the changes seen by
    polling the group from now on.

    \b
    Examples:
      headrace groups events billing
      headrace groups events billing --follow
      headrace groups events billing --from 2d --json
    """
    from headrace.cli.groups.events import print_events

    print_events(Output(as_json=as_json), connect.cluster(), group, follow=follow, since=since)


def _lags(groups: Groups, listed: list[GroupListing]) -> dict[str, int]:
    """Lag by group; groups without committed offsets are left out."""
    from headrace.client.tools.group_report import total_lag
    from headrace.client.tools.lag import records_behind

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
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint=option)
