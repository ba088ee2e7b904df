# SPDX-License-Identifier: Apache-2.0
"""`headrace.Admin`: topics, settings and consumer groups of any Kafka cluster, for programs and notebooks.

The requests are those of the command line (tools/); here they are one small class. Needs no extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.client_config import connect_with
from headrace.client.errors import ClientError
from headrace.client.tools.admin import (
    DEFAULT_TIMEOUT_MS,
    ConfigValue,
    ResourceKind,
    TopicDescription,
    TopicSummary,
)
from headrace.client.tools.group_calls import GroupDescription, GroupListing
from headrace.client.tools.group_report import GroupWatch, PartitionReport
from headrace.client.tools.groups import Groups
from headrace.client.tools.reset import OffsetChange, Strategy, plan_changes
from headrace.types import TopicPartition

ResetTo = Literal["earliest", "latest"] | int | datetime
"""An int is an offset; a datetime means the first record at that time or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a group is behind in one partition.

    `records`: offsets from the committed one to the end; None where the group has committed nothing or the
    topic is gone. `seconds`: the age of the first record that is not consumed; 0.0 where there is none, None
    where its age is not known.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    records: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind, by partition and altogether."""

    group: str
    partitions: tuple[PartitionLag, ...]

    @property
    def records(self) -> int:
        """Of all partitions together."""
        return sum(each.records or 0 for each in self.partitions)

    @property
    def seconds(self) -> float | None:
        """Of the partition that is furthest behind; None where no age is known."""
        return max((each.seconds for each in self.partitions if each.seconds is not None), default=None)


class Admin:
    """Administers a Kafka cluster, Headrace or any other: topics, settings, consumer groups and their lag.

    Args:
        bootstrap: `HOST:PORT,…`; without it the variable `HEADRACE_BOOTSTRAP`, then 127.0.0.1:9092.
        config: a properties file of a Kafka client with TLS and login; without it the one that
            `HEADRACE_CLIENT_CONFIG` names.
        timeout_ms: how long a request may take.

    Raises:
        ClientError: when no broker answers; in every method, when the cluster fails or refuses the request.

    Example:
        ```python
        with headrace.Admin() as admin:
            admin.create_topic("orders", partitions=3, configs={"retention.ms": 86_400_000})
            print([topic.name for topic in admin.topics()])
            print(admin.lag("billing").records)
        ```
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        config: str | Path | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self._cluster = connect_with(chosen_bootstrap(bootstrap), config)
        self._open: Groups | None = Groups(self._cluster, timeout_ms=timeout_ms)

    # topics

    def topics(self, *, internal: bool = False) -> list[TopicSummary]:
        """All topics by name, without internal ones unless `internal` is True."""
        return self._tools.list_topics(internal=internal)

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic with leader, replicas and in-sync replicas of every partition."""
        return self._tools.describe_topic(name)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Creates a topic; what is left out is the broker's default. ClientError if it exists already."""
        self._tools.create_topic(
            name, partitions=partitions, replication_factor=replication_factor, configs=_texts(configs or {})
        )

    def add_partitions(self, topic: str, total: int) -> None:
        """Gives a topic more partitions: `total` is their new number. Keys may move to other partitions."""
        self._tools.add_partitions(topic, total)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        self._tools.delete_topic(name)

    # settings

    def configs(self, *, topic: str | None = None, node: int | None = None) -> dict[str, ConfigValue]:
        """All settings of a topic or of a node, by name: each with its value and where that comes from."""
        return {each.name: each for each in self._tools.configs(*_resource(topic, node))}

    def set_configs(
        self,
        values: Mapping[str, object] | None = None,
        *,
        topic: str | None = None,
        node: int | None = None,
        unset: Iterable[str] = (),
    ) -> None:
        """Changes settings of a topic or of a node; `unset` returns some to their default.

        Example:
            `admin.set_configs({"retention.ms": 3_600_000}, topic="orders")`
        """
        kind, name = _resource(topic, node)
        self._tools.alter_configs(kind, name, values=_texts(values or {}), unset=unset)

    # groups

    def groups(self) -> list[GroupListing]:
        """All groups by name, with type and state."""
        return self._tools.list_groups()

    def describe_group(self, group: str) -> GroupDescription:
        """A group with its state, its members and the partitions assigned to each."""
        return self._tools.describe_group(group)

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed, by (topic, partition)."""
        return self._tools.committed(group)

    def lag(self, group: str) -> GroupLag:
        """How far a group is behind, in records and in seconds, by partition and altogether.

        A partition that a member reads without having committed is listed with unknown lag.
        """
        report = GroupWatch(self._cluster, group, groups=self._tools).report()
        return GroupLag(group=group, partitions=tuple(_lag(each) for each in report.partitions))

    def reset_offsets(self, group: str, topic: str, to: ResetTo) -> list[OffsetChange]:
        """Commits new offsets of a topic for a group that has no members, and returns old and new ones.

        Args:
            group: its consumers must be stopped; a group that does not exist is created.
            topic: all its partitions are reset.
            to: "earliest", "latest", an offset, or a datetime: the first record at that time or later.
        """
        strategy = _strategy(to)
        partitions = {
            TopicPartition(topic, each.index) for each in self._tools.describe_topic(topic).partitions
        }
        known = self._tools.offsets_for_reset(strategy, partitions, self._tools.committed(group))
        changes = plan_changes(strategy, partitions, known)
        self._tools.alter_offsets(group, {change.partition: change.new for change in changes})
        return changes

    def delete_group(self, group: str) -> None:
        """Deletes a group that has no members, with its offsets."""
        self._tools.delete_group(group)

    # the object itself

    def close(self) -> None:
        """Closes the connections. A context manager does so at the end of its block."""
        self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"headrace.Admin({self._cluster.bootstrap!r})"

    @property
    def _tools(self) -> Groups:
        if self._open is None:
            raise ClientError("this Admin is closed", next_step="open another: headrace.Admin()")
        return self._open


def _resource(topic: str | None, node: int | None) -> tuple[ResourceKind, str]:
    if (topic is None) == (node is None):
        raise ClientError("settings are those of a topic or of a node", next_step="give topic= or node=")
    return ("topic", topic) if topic is not None else ("node", str(node))


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """As brokers write them: `true`, not `True`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }


def _strategy(to: ResetTo) -> Strategy:
    if isinstance(to, datetime):
        return Strategy(kind="time", value=round(to.timestamp() * 1000))
    if isinstance(to, int) and not isinstance(to, bool):
        return Strategy(kind="offset", value=to)
    if to in ("earliest", "latest"):
        return Strategy(kind=to)
    raise ClientError(
        f"to={to!r} does not say where to reset to",
        next_step='use "earliest", "latest", an offset or a datetime',
    )


def _lag(report: PartitionReport) -> PartitionLag:
    seconds = None if report.behind is None else report.behind.behind_ms / 1000
    return PartitionLag(
        topic=report.partition.topic,
        partition=report.partition.partition,
        committed=report.committed,
        end=report.end,
        records=report.lag,
        seconds=0.0 if report.lag == 0 else seconds,
    )
