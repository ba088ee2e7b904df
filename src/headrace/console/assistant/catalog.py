# SPDX-License-Identifier: Apache-2.0
"""The tools of `headrace mcp`: each reads one view, and none can change the cluster.

Read next: server.py, which offers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.console.assistant.answers import LONGEST_TEXT
from headrace.console.views.view import ViewError

_LONGEST_ARGUMENT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    about: str
    required: bool = False
    kind: str = "string"
    """string, integer, or time: ISO 8601 or milliseconds."""
    choices: tuple[str, ...] = ()
    at_least: int = 1
    at_most: int = 500
    to: str | None = None
    """The view's name of it, where that differs."""

    def schema(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "type": "integer" if self.kind == "integer" else "string",
            "description": self.about,
        }
        if self.choices:
            shown["enum"] = list(self.choices)
        if self.kind == "integer":
            shown |= {"minimum": self.at_least, "maximum": self.at_most}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTool:
    name: str
    title: str
    about: str
    view: str = ""
    endpoint: str = ""
    """Instead of a view: the path of an endpoint of messages/ that only reads."""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    always: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the view that no argument sets."""
    listed: str = ""
    """The document's list that its `total` counts."""
    narrow: str = ""
    """How to ask for less."""
    only: tuple[str, ...] = ()
    """Parts of the document to answer with; empty: all."""
    is_open: bool = False
    """The document needs a moment: what it is about is asked for often while somebody looks at it."""
    without: frozenset[str] = frozenset()
    """Fields that are left out at any depth: what only a drawing needs."""
    longest_text: int = LONGEST_TEXT

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: argument.schema() for name, argument in self.arguments.items()},
            "required": [name for name, argument in self.arguments.items() if argument.required],
            "additionalProperties": False,
        }

    def params(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The view's parameters. ViewError says which argument is wrong."""
        known = ", ".join(self.arguments) or "it takes none"
        for name in given:
            if name not in self.arguments:
                raise ViewError(f"{self.name} has no argument {name!r}", next_step=f"arguments: {known}")
        params = dict(self.always)
        for name, argument in self.arguments.items():
            value = given.get(name)
            if value is None or value == "":
                if argument.required:
                    raise ViewError(f"{self.name} needs the argument {name!r}", next_step=argument.about)
                continue
            params[argument.to or name] = _checked(name, argument, value)
        return params


def _checked(name: str, argument: Argument, value: Any) -> str:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or len(text) > _LONGEST_ARGUMENT:
        raise ViewError(f"argument {name!r} is no text of up to {_LONGEST_ARGUMENT} characters")
    if argument.choices and text not in argument.choices:
        raise ViewError(
            f"argument {name!r} cannot be {text[:50]!r}", next_step=f"one of: {', '.join(argument.choices)}"
        )
    if argument.kind == "integer" and not _is_number(text, argument):
        raise ViewError(
            f"argument {name!r} is no whole number from {argument.at_least} to {argument.at_most}"
        )
    if argument.kind == "time":
        return str(_as_ms(name, text))
    return text


def _is_number(text: str, argument: Argument) -> bool:
    return text.isascii() and text.isdigit() and argument.at_least <= int(text) <= argument.at_most


def _as_ms(name: str, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ViewError(
            f"argument {name!r} is no time: {text[:50]!r}", next_step="write it as 2026-01-31T14:05:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


_AT = Argument(
    about="a moment of the past to look at, as 2026-01-31T14:05:00Z (UTC) or milliseconds; left out: now",
    kind="time",
)
_FILTER = Argument(about="only names that contain this text", to="q")
_LIMIT = Argument(about="how many to list at most", kind="integer")
_TOPIC = Argument(about="the topic's name", required=True)
_GROUP = Argument(about="the group's id", required=True)
_NARROW_LIST = "filter: a part of the name; limit: fewer; or describe one of them"

TOOLS: tuple[ReadTool, ...] = (
    ReadTool(
        name="cluster_overview",
        title="Cluster overview",
        about="Brokers with state, leaders, replicas and disks; counts of topics, partitions and groups; "
        "partitions without a leader or out of sync; what changed lately; problems and what to do.",
        view="cluster",
        arguments={"at": _AT},
        without=frozenset({"tiles", "tiles_more"}),
    ),
    ReadTool(
        name="alarms",
        title="Alarms",
        about="What is wrong with the cluster now, worst first, each with what to do and the command for it.",
        view="cluster",
        only=("at", "live", "problem", "unknown", "alarms"),
    ),
    ReadTool(
        name="list_topics",
        title="Topics",
        about="Topics with partitions, replication, records, size, rate and the largest lag of their groups.",
        view="topics",
        arguments={
            "filter": _FILTER,
            "sort": Argument(
                about="what to sort by; a - before it: largest first",
                choices=("name", "-lag", "-rate_in", "-size_bytes", "-records", "-under_replicated"),
            ),
            "limit": _LIMIT,
        },
        listed="topics",
        narrow=_NARROW_LIST,
    ),
    ReadTool(
        name="describe_topic",
        title="One topic",
        about="Partitions of a topic: leader, in-sync replicas, offsets, sizes, rates, open transactions, "
        "and how far each group's members are.",
        view="topic",
        arguments={"topic": _TOPIC, "at": _AT},
        is_open=True,
        narrow="describe_group shows one group's part of it",
    ),
    ReadTool(
        name="read_messages",
        title="Records of a topic",
        about="A page of records with keys, values and headers, newest first unless told otherwise. `newer` "
        "and `older` of the answer are cursors for the next page.",
        endpoint="/messages",
        arguments={
            "topic": _TOPIC,
            "partitions": Argument(about="only these, as 0,2,5"),
            "from": Argument(about="where to begin", choices=("newest", "oldest", "offset", "time")),
            "offset": Argument(
                about="with from=offset: the first offset", kind="integer", at_least=0, at_most=10**18
            ),
            "time": Argument(about="with from=time: as 2026-01-31T14:05:00Z or milliseconds", kind="time"),
            "cursor": Argument(about="`newer` or `older` of the page before"),
            "direction": Argument(about="with a cursor: which way to go on", choices=("newer", "older")),
            "key": Argument(about="only records with exactly this key"),
            "filter": Argument(about='a condition such as value.user.id == 42 and key ~ "ab*"'),
            "limit": Argument(about="how many records at most, 10 unless given", kind="integer", at_most=100),
        },
        always={"limit": "10"},
        narrow="limit: fewer, from the same place (cursors go on after the whole page); filter; key",
        longest_text=2000,
    ),
    ReadTool(
        name="topic_distribution",
        title="How a topic's records are distributed",
        about="From a sample of records: share of each partition, sizes, and the most frequent keys.",
        view="topic-distribution",
        arguments={"topic": _TOPIC},
    ),
    ReadTool(
        name="list_groups",
        title="Consumer groups",
        about="Consumer groups with state, members, topics, lag in records and in time, and trend.",
        view="groups",
        arguments={
            "filter": _FILTER,
            "sort": Argument(
                about="what to sort by; a - before it: largest first",
                choices=("id", "-lag", "-behind", "-members"),
            ),
            "limit": _LIMIT,
        },
        listed="groups",
        narrow=_NARROW_LIST,
    ),
    ReadTool(
        name="describe_group",
        title="One consumer group",
        about="Members of a group with their partitions, lag of each partition, the slowest member and since "
        "when, why the last rebalances happened and what they moved, what one more consumer would change.",
        view="group",
        arguments={"group": _GROUP, "at": _AT},
        narrow="at: an earlier moment has earlier entries of the timeline",
        is_open=True,
    ),
    ReadTool(
        name="history",
        title="What happened",
        about="The time for which the cluster recorded events, and the events: nodes, leaders, rebalances.",
        view="history",
        narrow="cluster_overview or describe_group with `at` shows one moment",
    ),
    ReadTool(
        name="list_pipelines",
        title="Pipelines",
        about="Spark queries that report their progress: state, rates, lag, state size, last error.",
        view="pipelines",
        arguments={"filter": _FILTER},
        listed="pipelines",
        narrow="filter: a part of the name; or describe_pipeline",
        without=frozenset({"recent"}),
    ),
    ReadTool(
        name="describe_pipeline",
        title="One pipeline",
        about="One Spark query: its last batches, sources, lag by partition, state, sink, last error.",
        view="pipeline",
        arguments={"name": Argument(about="the query's name, as list_pipelines shows it", required=True)},
    ),
    ReadTool(
        name="dead_letters",
        title="Dead letters",
        about="Records whose handling failed: topics of them with their errors, or one topic's newest ones.",
        view="dead-letters",
        arguments={
            "topic": Argument(about="one topic of dead letters; left out: all of them"),
            "error": Argument(about="with a topic: only records with this error, as the list names it"),
        },
        narrow="topic: one of them; error: one kind",
    ),
    ReadTool(
        name="plan_topic",
        title="Capacity of a topic and its group",
        about="How many consumers and partitions a topic needs, computed from measured rates, and what "
        "happens to the lag when a consumer or a node fails.",
        view="plan",
        arguments={"topic": _TOPIC, "group": Argument(about="the group that reads it; left out: the first")},
        is_open=True,
    ),
    ReadTool(
        name="list_clients",
        title="Clients",
        about="Who is connected, with which software, which requests they send and what last went wrong.",
        view="clients",
        arguments={
            "filter": Argument(about="only clients whose id, user, host or group contains it", to="q")
        },
        listed="clients",
        narrow="filter: a part of a client id, user, host or group",
    ),
    ReadTool(
        name="configs",
        title="Settings",
        about="Settings of one topic or node with where each comes from, or what is set anywhere. "
        "Secrets are never shown.",
        view="configs",
        arguments={
            "topic": Argument(about="one topic"),
            "node": Argument(about="one node's id"),
            "filter": Argument(about="only settings, or topics, whose name contains it", to="q"),
        },
        narrow="filter: a part of the setting's name; or one topic or node",
    ),
    ReadTool(
        name="acls",
        title="ACLs",
        about="Who may do what, from where, on which resources.",
        view="acls",
        arguments={
            "filter": Argument(about="only those whose principal, resource or host contains it", to="q")
        },
        listed="acls",
        narrow="filter: a part of the principal, resource or host",
    ),
    ReadTool(
        name="users",
        title="Users",
        about="Users whose passwords the cluster keeps (SCRAM), with mechanisms; never passwords.",
        view="users",
        arguments={"filter": _FILTER},
        listed="users",
        narrow="filter: a part of the name",
    ),
    ReadTool(
        name="quotas",
        title="Quotas",
        about="Limits of users, client ids and addresses.",
        view="quotas",
        arguments={"filter": _FILTER},
        listed="quotas",
        narrow="filter: a part of the name",
    ),
    ReadTool(
        name="transactions",
        title="Transactions",
        about="Open transactions with their age, and partitions whose readers wait for one.",
        view="transactions",
    ),
)


def find_tool(name: str) -> ReadTool:
    for tool in TOOLS:
        if tool.name == name:
            return tool
    names = ", ".join(tool.name for tool in TOOLS)
    raise ViewError(f"there is no tool {name[:50]!r}", next_step=f"one of: {names}")
