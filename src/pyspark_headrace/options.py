# SPDX-License-Identifier: Apache-2.0
"""The `.option(…)` names of reads and writes, parsed and checked into settings.

Pure. Names of Spark's own Kafka connector are aliases. Read next: option_values.py, reading/offset_specs.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from headrace.client.bootstrap import parse_bootstrap
from headrace.client.errors import ClientError
from headrace.client.security_options import split_security_options
from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.pipelines.delta.storage_options import split_storage_options, table_place
from headrace.pipelines.delta.table import TablePlace, local_path
from pyspark_headrace.columns import FORMATS, TYPED, ColumnFormat
from pyspark_headrace.kafka_names import check_kafka_options
from pyspark_headrace.limits import Limits
from pyspark_headrace.option_values import OptionValues
from pyspark_headrace.replays import REPLAY_CHECKS, ReplayCheck

if TYPE_CHECKING:  # planning a query loads neither pyarrow nor the client
    from headrace.client.arrow.write.write_request import Compression

DataLossPolicy = Literal["fail", "skip", "earliest"]
ExactlyOnce = Literal["batch", "off"]
OffsetSpecKind = Literal["earliest", "latest", "group", "offsets", "timestamp", "timestamps"]

_BOTH = ("bootstrap", "timeoutMs")
READ_NAMES = (
    *_BOTH,
    *("subscribe", "subscribePattern", "assign", "columns", "includeHeaders"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("group", "onDataLoss", "failOnDataLoss", "isolation", "budget"),
    *("minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "stopFile"),
    *("key", "value", "keySchema", "valueSchema", "registry"),
    *("rejectsTopic", "rejectsTable", "reportRejects", "topicIds", "startingTable"),
)
WRITE_NAMES = (
    *_BOTH,
    *("topic", "compression", "includeHeaders"),
    *("exactlyOnce", "sinkId", "batchId", "transactionTimeoutMs", "commitMessageBytes"),
    *("checkpointLocation", "replayCheck"),
)
READ_ALIASES = {
    "kafka.bootstrap.servers": "bootstrap",
    "bootstrap.servers": "bootstrap",
    "kafka.group.id": "group",
    "kafka.isolation.level": "isolation",
}
WRITE_ALIASES = {
    "kafka.bootstrap.servers": "bootstrap",
    "bootstrap.servers": "bootstrap",
    "kafka.compression.type": "compression",
}
_IGNORED = frozenset(
    {
        *("groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries"),
        *("fetchoffset.retryintervalms", "queryname", "outputmode"),
    }
)
"""Options of Spark and its Kafka connector that are accepted and ignored."""
_IGNORED_IN_READS = _IGNORED | {"checkpointlocation", "pushdown"}

_INTERNAL_PREFIX = "__headrace_"
"""Prefix of internal topics: they are read by name and never matched by a pattern."""

DEFAULT_BUDGET = 32 << 20
DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_TRANSACTION_TIMEOUT_MS = 300_000
DEFAULT_MESSAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The partitions to read: by topic names, a pattern, or explicit partitions. Exactly one is set."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @property
    def required_topics(self) -> tuple[str, ...] | None:
        """Topics that must exist; None: any that match the pattern."""
        return tuple(self.partitions) if self.partitions is not None else self.names

    def includes(self, topic: str, partition: int | None = None) -> bool:
        if self.partitions is not None:
            chosen = self.partitions.get(topic, ())
            return bool(chosen) if partition is None else partition in chosen
        if self.pattern is not None:
            return not topic.startswith(_INTERNAL_PREFIX) and re.fullmatch(self.pattern, topic) is not None
        return topic in (self.names or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """Start or end of a read. `numbers`: offsets (-2 earliest, -1 latest) or times by topic and partition."""

    kind: OffsetSpecKind
    timestamp: int = 0
    numbers: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    bootstrap: str
    selection: Selection
    columns: tuple[str, ...] | None
    include_headers: bool
    starting: OffsetSpec
    ending: OffsetSpec
    timestamp_beyond_end: Literal["error", "latest"]
    """What to do when the starting timestamp is later than every record."""
    group: str | None
    on_data_loss: DataLossPolicy
    committed_only: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    limits: Limits
    formats: Mapping[str, ColumnFormat]
    """How keys and values are decoded."""
    rejects_topic: str | None
    """Topic for records that cannot be decoded."""
    rejects_table: TablePlace | None
    """Delta table for records that cannot be decoded."""
    report_rejects: bool
    """False: another query reports such records, and this one leaves them out."""
    topic_ids: Mapping[str, str]
    """Ids that topics must have; others of the same name are refused."""
    starting_table: str | None
    """The path of a table of the same topic that a stream reads first."""
    stop_file: str | None
    """While this file exists, no new micro-batch is planned."""
    budget: int
    timeout_ms: int
    security: SecuritySettings = NO_SECURITY


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    bootstrap: str
    topic: str | None
    compression: Compression
    timeout_ms: int
    exactly_once: ExactlyOnce | None = None
    """None: on when the broker supports transactions."""
    sink_id: str | None = None
    """Identifies the sink across restarts; None: the query's id."""
    batch_id: int | None = None
    """Number of a batch write, so that a repeated write is detected."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    message_bytes: int = DEFAULT_MESSAGE_BYTES
    """Encoded batches up to this size go to the driver in the commit message."""
    checkpoint: str | None = None
    """The checkpoint of a stream, where the query names it as an option."""
    replay_check: ReplayCheck = "offsets"
    security: SecuritySettings = NO_SECURITY


def read_settings(options: Mapping[str, str], *, streaming: bool) -> ReadSettings:
    security, others = split_security_options(options)
    storage, others = split_storage_options(others)
    values = OptionValues(
        check_kafka_options(others, READ_ALIASES),
        names=READ_NAMES,
        aliases=READ_ALIASES,
        ignored=_IGNORED_IN_READS,
    )
    settings = ReadSettings(
        bootstrap=_bootstrap(values),
        selection=_selection(values),
        columns=values.names("columns"),
        include_headers=values.boolean("includeHeaders", False),
        starting=_offset_spec(values, "starting", "latest" if streaming else "earliest"),
        ending=_offset_spec(values, "ending", "latest"),
        timestamp_beyond_end="latest"
        if values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
        else "error",
        group=values.text("group"),
        on_data_loss=_on_data_loss(values),
        committed_only=values.choice("isolation", ("read_committed", "read_uncommitted"), "read_committed")
        == "read_committed",
        min_partitions=values.integer("minPartitions"),
        max_records_per_partition=values.integer("maxRecordsPerPartition"),
        limits=_limits(values),
        formats={name: _format(values, name) for name in TYPED},
        rejects_topic=values.text("rejectsTopic"),
        rejects_table=_rejects_table(values, storage),
        report_rejects=values.boolean("reportRejects", True),
        topic_ids=values.texts_by_name("topicIds"),
        starting_table=_starting_table(values, streaming=streaming),
        stop_file=values.text("stopFile") or None,
        budget=values.integer("budget", least=1 << 16) or DEFAULT_BUDGET,
        timeout_ms=values.duration_ms("timeoutMs", DEFAULT_TIMEOUT_MS),
        security=security,
    )
    _check_together(values, settings, streaming=streaming)
    return settings


def write_settings(options: Mapping[str, str], *, streaming: bool) -> WriteSettings:
    security, others = split_security_options(options)
    values = OptionValues(
        check_kafka_options(others, WRITE_ALIASES), names=WRITE_NAMES, aliases=WRITE_ALIASES, ignored=_IGNORED
    )
    codecs: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    chosen = values.choice("compression", codecs, "none")
    settings = WriteSettings(
        bootstrap=_bootstrap(values),
        topic=values.text("topic"),
        compression=next(codec for codec in codecs if codec == chosen),
        timeout_ms=values.duration_ms("timeoutMs", 2 * DEFAULT_TIMEOUT_MS),
        exactly_once=_exactly_once(values),
        sink_id=values.text("sinkId") or None,
        batch_id=values.integer("batchId", least=0),
        transaction_timeout_ms=values.duration_ms("transactionTimeoutMs", DEFAULT_TRANSACTION_TIMEOUT_MS),
        message_bytes=values.integer("commitMessageBytes") or DEFAULT_MESSAGE_BYTES,
        checkpoint=values.text("checkpointLocation"),
        replay_check=replay_check(values),
        security=security,
    )
    _check_identity(settings, streaming=streaming)
    return settings


def _exactly_once(values: OptionValues) -> ExactlyOnce | None:
    """A batch id implies exactly-once: only a transaction can detect a repeated batch."""
    if "exactlyOnce" not in values:
        return "batch" if "batchId" in values else None
    return "batch" if values.choice("exactlyOnce", ("batch", "off"), "batch") == "batch" else "off"


def replay_check(values: OptionValues) -> ReplayCheck:
    chosen = values.choice("replayCheck", REPLAY_CHECKS, "offsets")
    return next(check for check in REPLAY_CHECKS if check == chosen)


def _check_identity(settings: WriteSettings, *, streaming: bool) -> None:
    if settings.batch_id is None:
        return
    if streaming:
        raise ClientError(
            "option 'batchId' is for batch writes: a stream numbers its batches itself",
            next_step="leave it out",
        )
    if settings.sink_id is None:
        raise ClientError("option 'batchId' needs option 'sinkId'", next_step='add .option("sinkId", …)')
    if settings.exactly_once == "off":
        raise ClientError(
            "option 'batchId' has no meaning with exactlyOnce=off", next_step="leave one of them out"
        )


def _bootstrap(values: OptionValues) -> str:
    """Required: on executors, neither a variable nor 127.0.0.1 means the same as on the driver."""
    bootstrap = values.text("bootstrap")
    if not bootstrap:
        raise ClientError(
            "option 'bootstrap' is not set",
            next_step='add .option("bootstrap", "HOST:PORT"), which kafka.bootstrap.servers also means',
        )
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise ClientError(f"option 'bootstrap': {error.what}", next_step="write it as HOST:PORT,…") from None
    return bootstrap


def _selection(values: OptionValues) -> Selection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in values]
    if len(ways) != 1:
        found = f"{' and '.join(ways)} are set" if ways else "none is set"
        raise ClientError(
            f"exactly one option selects what to read, but {found}",
            next_step="use subscribe (names), subscribePattern (a regular expression) or assign (JSON)",
        )
    pattern = values.text("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise values.wrong("subscribePattern", f"it is not a valid regular expression: {error}") from None
    return Selection(
        names=values.names("subscribe"),
        pattern=pattern,
        partitions=_assigned(values) if "assign" in values else None,
    )


def _assigned(values: OptionValues) -> Mapping[str, tuple[int, ...]]:
    partitions = values.partitions("assign")
    empty = [topic for topic, chosen in partitions.items() if not chosen]
    if empty or not partitions:
        raise values.wrong(
            "assign", f"name the partitions of {empty[0] if empty else 'a topic'!r}, or use subscribe"
        )
    return partitions


def _offset_spec(
    values: OptionValues, end: Literal["starting", "ending"], default: OffsetSpecKind
) -> OffsetSpec:
    """As in Spark's connector: timestamp over timestamps by partition over offsets."""
    timestamp = values.integer(f"{end}Timestamp", least=0)
    if timestamp is not None:
        return OffsetSpec(kind="timestamp", timestamp=timestamp)
    if f"{end}OffsetsByTimestamp" in values:
        return OffsetSpec(kind="timestamps", numbers=values.numbers_by_partition(f"{end}OffsetsByTimestamp"))
    name = f"{end}Offsets"
    text = values.text(name)
    if text is None:
        return OffsetSpec(kind=default)
    words: tuple[OffsetSpecKind, ...] = ("earliest", "latest", "group") if end == "starting" else ("latest",)
    for word in words:
        if text.lower() == word:
            return OffsetSpec(kind=word)
    if not text.startswith("{"):
        raise values.wrong(name, f'use {", ".join(words)} or JSON such as {{"orders": {{"0": 23}}}}')
    return OffsetSpec(kind="offsets", numbers=values.numbers_by_partition(name))


def _on_data_loss(values: OptionValues) -> DataLossPolicy:
    default = "fail" if values.boolean("failOnDataLoss", True) else "skip"
    policies: tuple[DataLossPolicy, ...] = ("fail", "skip", "earliest")
    chosen = values.choice("onDataLoss", policies, default)
    return next(policy for policy in policies if policy == chosen)


def _format(values: OptionValues, name: str) -> ColumnFormat:
    return ColumnFormat(
        name=values.choice(name, FORMATS, "raw") if name in values else None,
        schema=values.text(f"{name}Schema"),
        registry=values.text("registry"),
    )


def _rejects_table(values: OptionValues, storage: Mapping[str, str]) -> TablePlace | None:
    written = values.text("rejectsTable")
    if written is None:
        if storage:
            raise ClientError(
                "storage options have no meaning without 'rejectsTable'", next_step="leave them out"
            )
        return None
    if "rejectsTopic" in values:
        raise ClientError(
            "options 'rejectsTopic' and 'rejectsTable' are both set", next_step="set only one of them"
        )
    if not written:
        raise values.wrong("rejectsTable", "use the folder of a Delta table, like /data/rejects")
    if find_spec("deltalake") is None:
        raise ClientError(
            "option 'rejectsTable' needs deltalake, which is not installed",
            next_step="pip install headrace[spark]",
        )
    return table_place(written, storage)


def _starting_table(values: OptionValues, *, streaming: bool) -> str | None:
    """Whether the read is a stream is checked later: Spark asks for its schema before it says so."""
    path = values.text("startingTable") or None
    others = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    starts = [name for name in others if name in values]
    if path is not None and starts:
        raise ClientError(
            f"options 'startingTable' and {starts[0]!r} are both set",
            next_step="leave one out: after its table a query goes on where that ends",
        )
    if path is not None and streaming and find_spec("deltalake") is None:
        raise ClientError(
            "option 'startingTable' needs deltalake, which is not installed",
            next_step="pip install headrace[spark]",
        )
    return path if path is None else str(local_path(path))


def _limits(values: OptionValues) -> Limits:
    return Limits(
        max_rows=values.integer("maxOffsetsPerTrigger"),
        max_bytes=values.integer("maxBytesPerTrigger"),
        min_rows=values.integer("minOffsetsPerTrigger"),
        max_delay_ms=values.duration_ms("maxTriggerDelay", Limits().max_delay_ms),
    )


def _check_together(values: OptionValues, settings: ReadSettings, *, streaming: bool) -> None:
    if settings.starting.kind == "group" and settings.group is None:
        raise ClientError(
            "startingOffsets=group starts at a group's committed offsets, but no group is set",
            next_step='add .option("group", …)',
        )
    low, high = settings.limits.min_rows, settings.limits.max_rows
    if low is not None and high is not None and low > high:
        raise ClientError(f"minOffsetsPerTrigger {low} is greater than maxOffsetsPerTrigger {high}")
    ends = [
        name for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if name in values
    ]
    if streaming and ends:
        raise ClientError(
            f"option {ends[0]!r} is for batch reads: a stream does not end",
            next_step="leave it out; trigger(availableNow=True) stops at what is there now",
        )
