# SPDX-License-Identifier: Apache-2.0
"""`kafka-consumer-groups`: list, describe, reset and delete groups, with Apache Kafka's options and output.

Requests: client/tools/groups.py; new offsets: cli/groups/reset.py. The same in headrace's own words:
cli/groups/commands.py.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.cli.errors import UsageError
from headrace.cli.groups.reset import Reset, export_lines, strategy_of
from headrace.cli.groups.reset_options import ResetTarget
from headrace.cli.kafka_tools.options import ToolParser, client_properties, cluster_of
from headrace.cli.kafka_tools.tables import Column, print_table, table_lines
from headrace.cli.output import Output, clean
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.groups import STATES, TYPES, GroupDescription, GroupListing, GroupMember, Groups
from headrace.client.tools.lag import records_behind
from headrace.client.tools.reset import OffsetChange
from headrace.types import TopicPartition

ERROR = "\nError: Executing consumer group command failed due to {}"
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_TARGETS = (
    *("to_earliest", "to_latest", "to_current", "to_offset", "to_datetime"),
    *("by_duration", "shift_by", "from_file"),
)
_NO_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing. Add --dry-run or --execute to say "
    "which you mean."
)
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


def run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_tool(arguments)
    action = parser.one_action(options, ACTIONS)
    _check(options, parser, action)
    properties = client_properties(options.command_config, (), "--command-config")
    tool = _ConsumerGroups(options, cluster_of(options, properties))
    return {
        "list": tool.list_groups,
        "describe": tool.describe,
        "delete": tool.delete,
        "reset-offsets": tool.reset,
        "delete-offsets": tool.delete_offsets,
    }[action]()


def _parser() -> ToolParser:
    parser = ToolParser("kafka-consumer-groups", "List, describe, reset and delete consumer groups.")
    parser.flag("--list", help="List the groups.")
    parser.flag("--describe", help="Show groups with their offsets and lag.")
    parser.flag("--delete", help="Delete groups without members.")
    parser.flag("--reset-offsets", help="Set the committed offsets of a group without members.")
    parser.flag("--delete-offsets", help="Delete the committed offsets of a topic.")
    parser.repeated("--group", help="A group; repeatable.")
    parser.flag("--all-groups", help="All groups.")
    parser.repeated("--topic", metavar="TOPIC[:0,1]", help="A topic, or some partitions; repeatable.")
    parser.flag("--all-topics", help="All topics with committed offsets.")
    parser.flag("--offsets", help="With --describe: offsets and lag, the default.")
    parser.flag("--members", help="With --describe: the members.")
    parser.text(
        "--state", nargs="?", const="", help="With --describe or --list: the state; or only such groups."
    )
    parser.text("--type", nargs="?", const="", help="With --list: the type; or only groups of such types.")
    parser.flag("--verbose", help="With --members: the assignment.")
    parser.flag("--to-earliest", help="Reset to the beginning.")
    parser.flag("--to-latest", help="Reset to the end.")
    parser.flag("--to-current", help="Reset to the committed offsets.")
    parser.number("--to-offset", help="Reset to this offset.")
    parser.text("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to a moment, in UTC.")
    parser.text("--by-duration", metavar="PnDTnHnMnS", help="Reset to a moment so long ago.")
    parser.number("--shift-by", help="Reset forward by N records, or back with -N.")
    parser.text("--from-file", type=Path, help="Reset to the offsets of a CSV file.")
    parser.flag("--dry-run", help="Only show what would be reset.")
    parser.flag("--execute", help="Reset.")
    parser.flag("--export", help="Print CSV for --from-file.")
    parser.number("--timeout", help="Accepted; every request has a timeout of its own.")
    parser.text("--command-config", metavar="FILE", help="Properties of the client: TLS and login.")
    return parser


class _ConsumerGroups:
    """One call of the tool."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self._output = Output()
        self._groups = Groups(cluster)

    # -- list ----------------------------------------------------------------------------------------------

    def list_groups(self) -> int:
        listed = self._groups.list_groups(
            states=_names(self._options.state), types=_names(self._options.type)
        )
        columns = [Column(name="GROUP", width=max([15, *(len(group.group_id) for group in listed)]) + 10)]
        if self._options.type is not None:
            columns.append(Column(name="TYPE", width=20))
        if self._options.state is not None:
            columns.append(Column(name="STATE", width=20))
        if len(columns) == 1:
            lines = [group.group_id for group in listed]
        else:
            rows = [[_list_cell(column.name, group) for column in columns] for group in listed]
            lines = table_lines(columns, rows)
        for line in lines:
            self._output.line(line)
        return 0

    # -- describe ------------------------------------------------------------------------------------------

    def describe(self) -> int:
        described = self._described()
        for group in described:
            if not group.members:
                state = "is rebalancing" if group.active else "has no active members"
                print(f"\nConsumer group '{clean(group.group_id)}' {state}.", file=sys.stderr)
        if self._options.members:
            self._describe_members(described)
        elif self._options.state is not None:
            self._describe_state(described)
        else:
            self._describe_offsets(described)
        return 0

    def _described(self) -> list[GroupDescription]:
        listed = {group.group_id: group for group in self._groups.list_groups()}
        described = self._groups.describe_groups(self._chosen(list(listed.values())))
        return [described[group_id] for group_id in sorted(described)]

    def _chosen(self, listed: Sequence[GroupListing]) -> list[GroupListing]:
        if self._options.all_groups:
            return list(listed)
        known = {group.group_id: group for group in listed}
        for group_id in self._options.group:
            if group_id not in known:
                raise ClientError(
                    f"GroupIdNotFoundException: Group {group_id} not found.",
                    next_step="list them: kafka-consumer-groups --list",
                )
        return [known[group_id] for group_id in self._options.group]

    def _describe_offsets(self, described: Sequence[GroupDescription]) -> None:
        for group in described:
            committed = self._groups.committed(group.group_id)
            owners = group.assigned
            ends = self._groups.ends({*committed, *owners})
            rows = [
                _offset_row(group, where, committed.get(where), ends.get(where), owners.get(where))
                for where in sorted({*committed, *owners})
            ]
            if rows:
                print_table(self._output, _OFFSET_COLUMNS, rows)

    def _describe_members(self, described: Sequence[GroupDescription]) -> None:
        for group in described:
            static = any(member.instance_id for member in group.members)
            columns = [column for column in _MEMBER_COLUMNS if static or column.name != "GROUP-INSTANCE-ID"]
            if self._options.verbose:
                columns += _ASSIGNMENT_COLUMNS
            cells = [_member_cells(group, member) for member in group.members]
            print_table(self._output, columns, [[row[column.name] for column in columns] for row in cells])

    def _describe_state(self, described: Sequence[GroupDescription]) -> None:
        addresses = {
            node.node_id: f"{node.host}:{node.port}" for node in self._groups.describe_cluster().nodes
        }
        for group in described:
            coordinator = f"{addresses.get(group.node_id, '-')}  ({group.node_id})"
            row = (group.group_id, coordinator, group.assignor or None, group.state, len(group.members))
            print_table(self._output, _STATE_COLUMNS, [row])

    # -- delete --------------------------------------------------------------------------------------------

    def delete(self) -> int:
        wanted = self._options.group or [group.group_id for group in self._groups.list_groups()]
        failed = {name: error for name in wanted if (error := self._delete_one(name)) is not None}
        if not failed:
            names = ", ".join(f"'{name}'" for name in wanted)
            self._output.line(f"Deletion of requested consumer groups ({names}) was successful.")
            return 0
        self._output.line("")
        self._output.line("Error: Deletion of some consumer groups failed:")
        for name, error in failed.items():
            self._output.line(f"* Group '{name}' could not be deleted due to: {error.what}")
        return 1

    def _delete_one(self, name: str) -> ClientError | None:
        try:
            self._groups.delete_group(name)
        except ClientError as error:
            return error
        return None

    def delete_offsets(self) -> int:
        (group_id,) = self._options.group
        rows = []
        for topic in self._options.topic:
            held = sorted(where for where in self._groups.committed(group_id) if where.topic == topic)
            self._groups.delete_offsets(group_id, topic)
            rows += [(where.topic, where.partition, "Successful") for where in held]
        self._output.line(f"Request succeeded for deleting offsets from group {group_id}.")
        print_table(self._output, _DELETED_COLUMNS, rows)
        return 0

    # -- reset ---------------------------------------------------------------------------------------------

    def reset(self) -> int:
        options = self._options
        if not (options.dry_run or options.execute):
            print(_NO_EXECUTE, file=sys.stderr)
        names = options.group or [group.group_id for group in self._groups.list_groups()]
        target = _reset_target(options)
        changes = {name: self._reset_one(name, target) for name in names}
        if options.export:
            self._export(changes)
            return 0
        rows = [
            (name, change.partition.topic, change.partition.partition, change.new)
            for name, changed in changes.items()
            for change in changed
        ]
        print_table(self._output, _RESET_COLUMNS, rows)
        return 0

    def _reset_one(self, name: str, target: ResetTarget) -> list[OffsetChange]:
        work = Reset(self._cluster, name)
        changes = work.plan(strategy_of(target, name, int(time.time() * 1000)), self._options.topic)
        if self._options.execute:
            work.execute(changes)
        return changes

    def _export(self, changes: dict[str, list[OffsetChange]]) -> None:
        """One group's lines without its name, those of several with it."""
        for name, changed in changes.items():
            for line in export_lines(changed):
                self._output.line(line if len(changes) == 1 else f"{name},{line}")


_OFFSET_COLUMNS = (
    Column(name="GROUP", width=15),
    Column(name="TOPIC", width=15),
    Column(name="PARTITION", width=10, fixed=True),
    Column(name="CURRENT-OFFSET", width=15, fixed=True),
    Column(name="LOG-END-OFFSET", width=15, fixed=True),
    Column(name="LAG", width=15, fixed=True),
    Column(name="CONSUMER-ID", width=15),
    Column(name="HOST", width=15),
    Column(name="CLIENT-ID"),
)
_MEMBER_COLUMNS = (
    Column(name="GROUP", width=15),
    Column(name="CONSUMER-ID", width=15),
    Column(name="GROUP-INSTANCE-ID", width=17),
    Column(name="HOST", width=15),
    Column(name="CLIENT-ID", width=15),
    Column(name="#PARTITIONS", width=15, fixed=True),
)
_ASSIGNMENT_COLUMNS = (
    Column(name="CURRENT-EPOCH", width=15, fixed=True),
    Column(name="CURRENT-ASSIGNMENT", width=20),
    Column(name="TARGET-EPOCH", width=15, fixed=True),
    Column(name="TARGET-ASSIGNMENT", width=20),
)
_STATE_COLUMNS = (
    Column(name="GROUP", width=15),
    Column(name="COORDINATOR (ID)", width=25),
    Column(name="ASSIGNMENT-STRATEGY", width=20),
    Column(name="STATE", width=20),
    Column(name="#MEMBERS"),
)
_RESET_COLUMNS = (
    Column(name="GROUP", width=15),
    Column(name="TOPIC", width=15),
    Column(name="PARTITION", width=10, fixed=True),
    Column(name="NEW-OFFSET"),
)
_DELETED_COLUMNS = (
    Column(name="TOPIC", width=15),
    Column(name="PARTITION", width=10, fixed=True),
    Column(name="STATUS", width=15, fixed=True),
)


def _check(options: argparse.Namespace, parser: ToolParser, action: str) -> None:
    """Refuse wrong options before anything is connected."""
    if action == "list":
        _check_names(options.state, STATES, "--state")
        _check_names(options.type, TYPES, "--type")
    elif not options.all_groups:
        parser.require(options, "group")
    if action == "delete-offsets":
        parser.require(options, "topic")
        if len(options.group) != 1:
            raise UsageError("--delete-offsets takes one --group")
    if action == "reset-offsets":
        _check_reset(options)


def _check_reset(options: argparse.Namespace) -> None:
    if options.dry_run and options.execute:
        raise UsageError("Option [reset-offsets] only accepts one of --execute and --dry-run")
    if not (options.topic or options.all_topics or options.from_file):
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def _check_names(given: str | None, known: Sequence[str], option: str) -> None:
    for name in _names(given):
        if name.lower() not in (each.lower() for each in known):
            raise UsageError(f"{option} {name!r} is not one of {', '.join(known)}")


def _names(given: str | None) -> list[str]:
    """`stable,empty` as a list; empty: any."""
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def _list_cell(column: str, group: GroupListing) -> str:
    return {"GROUP": group.group_id, "TYPE": group.group_type.capitalize(), "STATE": group.state}[column]


def _offset_row(
    group: GroupDescription,
    where: TopicPartition,
    committed: int | None,
    end: int | None,
    member: GroupMember | None,
) -> tuple[object, ...]:
    owner = (None, None, None) if member is None else (member.member_id, _host(member), member.client_id)
    lag = None if committed is None else records_behind(committed, end)
    return (group.group_id, where.topic, where.partition, committed, end, lag, *owner)


def _member_cells(group: GroupDescription, member: GroupMember) -> dict[str, object]:
    assigned = _assignment(member.assigned)
    return {
        "GROUP": group.group_id,
        "CONSUMER-ID": member.member_id,
        "GROUP-INSTANCE-ID": member.instance_id,
        "HOST": _host(member),
        "CLIENT-ID": member.client_id,
        "#PARTITIONS": len(member.assigned),
        "CURRENT-EPOCH": None,
        "CURRENT-ASSIGNMENT": assigned,
        "TARGET-EPOCH": None,
        "TARGET-ASSIGNMENT": None,
    }


def _assignment(partitions: Sequence[TopicPartition]) -> str | None:
    """`orders:0,1;payments:2`."""
    by_topic: dict[str, list[str]] = {}
    for where in sorted(partitions):
        by_topic.setdefault(where.topic, []).append(str(where.partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or None


def _host(member: GroupMember) -> str:
    """With the slash that Apache Kafka's brokers put before an address."""
    return f"/{member.host}"


def _reset_target(options: argparse.Namespace) -> ResetTarget:
    values = {name: getattr(options, name) for name in _TARGETS}
    if options.to_datetime is not None and not _ZONE.search(options.to_datetime):
        values["to_datetime"] = f"{options.to_datetime}Z"  # Apache Kafka takes UTC
    return ResetTarget(**values)
