"""What `.option(…)` may say of reads and of writes, checked.

Pure. Names of Spark's own Kafka connector are aliases. Read next: option_values.py, places.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from headrace.client.bootstrap import DEFAULT_BOOTSTRAP, parse_bootstrap
from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import local_path
from pyspark_headrace.columns import FORMATS, TYPED, Form
from pyspark_headrace.limits import Limits
from pyspark_headrace.option_values import Given
from pyspark_headrace.security_options import NO_SECURITY, SecurityOptions, security_of

if TYPE_CHECKING:  # planning a query loads neither pyarrow nor the client
    from headrace.client.arrow.writer import Compression

DataLossPolicy = Literal["fail", "skip", "earliest"]
ExactlyOnce = Literal["batch", "off"]
PlaceKind = Literal["earliest", "latest", "group", "offsets", "timestamp", "timestamps"]

_BOTH = ("bootstrap", "timeoutMs")
READ_NAMES = (
    *_BOTH,
    *("subscribe", "subscribePattern", "assign", "columns", "includeHeaders"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("group", "onDataLoss", "failOnDataLoss", "isolation", "budget", "pushdown"),
    *("minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "stopFile"),
    *("key", "value", "keySchema", "valueSchema", "registry"),
    *("rejectsTopic", "rejectsTable"),
)
WRITE_NAMES = (
    *_BOTH,
    *("topic", "compression", "includeHeaders"),
    *("exactlyOnce", "sinkId", "batchId", "transactionTimeoutMs", "commitMessageBytes"),
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
_NO_MEANING = frozenset(
    {
        *("groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries"),
        *("fetchoffset.retryintervalms", "checkpointlocation", "queryname", "outputmode"),
    }
)
"""Of Spark and its connector: nothing here to be tuned by them."""

_OURS = "__headrace_"
"""Topics that sinks and brokers keep for themselves: read by name, never because a pattern fits."""

DEFAULT_BUDGET = 32 << 20
DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_TRANSACTION_TIMEOUT_MS = 300_000
DEFAULT_MESSAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions are read: names, a pattern, or partitions of topics. One of them is there."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @property
    def asked(self) -> tuple[str, ...] | None:
        """The topics that must be there; None: whichever match."""
        return tuple(self.partitions) if self.partitions is not None else self.names

    def takes(self, topic: str, partition: int | None = None) -> bool:
        if self.partitions is not None:
            chosen = self.partitions.get(topic, ())
            return bool(chosen) if partition is None else partition in chosen
        if self.pattern is not None:
            return not topic.startswith(_OURS) and re.fullmatch(self.pattern, topic) is not None
        return topic in (self.names or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to begin or end. `numbers`: offsets (-2 earliest, -1 latest) or times by topic and partition."""

    kind: PlaceKind
    timestamp: int = 0
    numbers: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    bootstrap: str
    selection: Selection
    columns: tuple[str, ...] | None
    include_headers: bool
    starting: Place
    ending: Place
    later_than_all: Literal["error", "latest"]
    """Where a query begins whose starting time is later than every record."""
    group: str | None
    on_data_loss: DataLossPolicy
    committed_only: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    limits: Limits
    forms: Mapping[str, Form]
    """How keys and values are read."""
    rejects_topic: str | None
    """Where records go that cannot be read so."""
    rejects_table: str | None
    """The same as the folder of a Delta table."""
    pushdown: bool
    stop_file: str | None
    """Where it is there, no micro-batch begins."""
    budget: int
    timeout_ms: int
    security: SecurityOptions = NO_SECURITY


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    bootstrap: str
    topic: str | None
    compression: Compression
    timeout_ms: int
    exactly_once: ExactlyOnce | None = None
    """None: wherever the broker serves transactions."""
    sink_id: str | None = None
    """Who the sink is to its former and later runs; None: the id of its query."""
    batch_id: int | None = None
    """Of a batch write: a number by which it is known when it comes again."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    message_bytes: int = DEFAULT_MESSAGE_BYTES
    """Up to so many bytes of a task's batches go to the driver directly."""
    security: SecurityOptions = NO_SECURITY


def read_settings(options: Mapping[str, str], *, streaming: bool) -> ReadSettings:
    security, others = security_of(options)
    given = Given(_usable(others), names=READ_NAMES, aliases=READ_ALIASES, ignored=_NO_MEANING)
    settings = ReadSettings(
        bootstrap=_bootstrap(given),
        selection=_selection(given),
        columns=given.names("columns"),
        include_headers=given.boolean("includeHeaders", False),
        starting=_place(given, "starting", "latest" if streaming else "earliest"),
        ending=_place(given, "ending", "latest"),
        later_than_all="latest"
        if given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
        else "error",
        group=given.text("group"),
        on_data_loss=_on_data_loss(given),
        committed_only=given.choice("isolation", ("read_committed", "read_uncommitted"), "read_committed")
        == "read_committed",
        min_partitions=given.integer("minPartitions"),
        max_records_per_partition=given.integer("maxRecordsPerPartition"),
        limits=_limits(given),
        forms={name: _form(given, name) for name in TYPED},
        rejects_topic=given.text("rejectsTopic"),
        rejects_table=_rejects_table(given),
        pushdown=given.boolean("pushdown", False),
        stop_file=given.text("stopFile") or None,
        budget=given.integer("budget", least=1 << 16) or DEFAULT_BUDGET,
        timeout_ms=given.duration_ms("timeoutMs", DEFAULT_TIMEOUT_MS),
        security=security,
    )
    _check_together(given, settings, streaming=streaming)
    return settings


def write_settings(options: Mapping[str, str], *, streaming: bool) -> WriteSettings:
    security, others = security_of(options)
    given = Given(_usable(others), names=WRITE_NAMES, aliases=WRITE_ALIASES, ignored=_NO_MEANING)
    codecs: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    chosen = given.choice("compression", codecs, "none")
    settings = WriteSettings(
        bootstrap=_bootstrap(given),
        topic=given.text("topic"),
        compression=next(codec for codec in codecs if codec == chosen),
        timeout_ms=given.duration_ms("timeoutMs", 2 * DEFAULT_TIMEOUT_MS),
        exactly_once=_exactly_once(given),
        sink_id=given.text("sinkId") or None,
        batch_id=given.integer("batchId", least=0),
        transaction_timeout_ms=given.duration_ms("transactionTimeoutMs", DEFAULT_TRANSACTION_TIMEOUT_MS),
        message_bytes=given.integer("commitMessageBytes") or DEFAULT_MESSAGE_BYTES,
        security=security,
    )
    _check_identity(settings, streaming=streaming)
    return settings


def _exactly_once(given: Given) -> ExactlyOnce | None:
    """A batch that has a number is to be recognised, which only a transaction can."""
    if "exactlyOnce" not in given:
        return "batch" if "batchId" in given else None
    return "batch" if given.choice("exactlyOnce", ("batch", "off"), "batch") == "batch" else "off"


def _check_identity(settings: WriteSettings, *, streaming: bool) -> None:
    if settings.batch_id is None:
        return
    if streaming:
        raise ClientError(
            "option 'batchId' is for batch writes: a stream numbers its batches itself",
            next_step="leave it out",
        )
    if settings.sink_id is None:
        raise ClientError(
            "option 'batchId' needs a sink that it counts for", next_step='add .option("sinkId", …)'
        )
    if settings.exactly_once == "off":
        raise ClientError(
            "option 'batchId' has no meaning with exactlyOnce=off", next_step="leave one of them out"
        )


def _usable(options: Mapping[str, str]) -> dict[str, str]:
    """Without what only tunes Java's clients."""
    aliases = READ_ALIASES | WRITE_ALIASES
    return {
        name: value
        for name, value in options.items()
        if not name.lower().startswith("kafka.") or name.lower() in aliases
    }


def _bootstrap(given: Given) -> str:
    bootstrap = given.text("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise ClientError(f"option 'bootstrap': {error.what}", next_step="write it as HOST:PORT,…") from None
    return bootstrap


def _selection(given: Given) -> Selection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        said = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise ClientError(
            f"one option has to say what is read, but {said}",
            next_step="use subscribe (names), subscribePattern (a regular expression) or assign (JSON)",
        )
    pattern = given.text("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise given.wrong("subscribePattern", f"it is no regular expression: {error}") from None
    return Selection(
        names=given.names("subscribe"),
        pattern=pattern,
        partitions=_assigned(given) if "assign" in given else None,
    )


def _assigned(given: Given) -> Mapping[str, tuple[int, ...]]:
    partitions = given.partitions("assign")
    empty = [topic for topic, chosen in partitions.items() if not chosen]
    if empty or not partitions:
        raise given.wrong(
            "assign", f"name the partitions of {empty[0] if empty else 'a topic'!r}, or use subscribe"
        )
    return partitions


def _place(given: Given, end: Literal["starting", "ending"], default: PlaceKind) -> Place:
    """As in Spark's connector, a timestamp goes before timestamps by partition, and these before offsets."""
    timestamp = given.integer(f"{end}Timestamp", least=0)
    if timestamp is not None:
        return Place(kind="timestamp", timestamp=timestamp)
    if f"{end}OffsetsByTimestamp" in given:
        return Place(kind="timestamps", numbers=given.numbers_by_partition(f"{end}OffsetsByTimestamp"))
    name = f"{end}Offsets"
    text = given.text(name)
    if text is None:
        return Place(kind=default)
    words: tuple[PlaceKind, ...] = ("earliest", "latest", "group") if end == "starting" else ("latest",)
    for word in words:
        if text.lower() == word:
            return Place(kind=word)
    if not text.startswith("{"):
        raise given.wrong(name, f'use {", ".join(words)} or JSON such as {{"orders": {{"0": 23}}}}')
    return Place(kind="offsets", numbers=given.numbers_by_partition(name))


def _on_data_loss(given: Given) -> DataLossPolicy:
    default = "fail" if given.boolean("failOnDataLoss", True) else "skip"
    policies: tuple[DataLossPolicy, ...] = ("fail", "skip", "earliest")
    chosen = given.choice("onDataLoss", policies, default)
    return next(policy for policy in policies if policy == chosen)


def _form(given: Given, name: str) -> Form:
    return Form(
        word=given.choice(name, FORMATS, "raw") if name in given else None,
        schema=given.text(f"{name}Schema"),
        registry=given.text("registry"),
    )


def _rejects_table(given: Given) -> str | None:
    written = given.text("rejectsTable")
    if written is None:
        return None
    if "rejectsTopic" in given:
        raise ClientError(
            "options 'rejectsTopic' and 'rejectsTable' are both given", next_step="give one of them"
        )
    if not written:
        raise given.wrong("rejectsTable", "give the folder of a Delta table, like /data/rejects")
    if find_spec("deltalake") is None:
        raise ClientError(
            "option 'rejectsTable' needs deltalake, which is not installed",
            next_step="pip install headrace[spark]",
        )
    return str(local_path(written))


def _limits(given: Given) -> Limits:
    return Limits(
        max_rows=given.integer("maxOffsetsPerTrigger"),
        max_bytes=given.integer("maxBytesPerTrigger"),
        min_rows=given.integer("minOffsetsPerTrigger"),
        max_delay_ms=given.duration_ms("maxTriggerDelay", Limits().max_delay_ms),
    )


def _check_together(given: Given, settings: ReadSettings, *, streaming: bool) -> None:
    if settings.starting.kind == "group" and settings.group is None:
        raise ClientError(
            "startingOffsets=group begins where a group committed, but no group is given",
            next_step='add .option("group", …)',
        )
    low, high = settings.limits.min_rows, settings.limits.max_rows
    if low is not None and high is not None and low > high:
        raise ClientError(f"minOffsetsPerTrigger {low} is more than maxOffsetsPerTrigger {high}")
    ends = [
        name for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if name in given
    ]
    if streaming and ends:
        raise ClientError(
            f"option {ends[0]!r} is for batch reads: a stream does not end",
            next_step="leave it out; trigger(availableNow=True) stops at what is there now",
        )
