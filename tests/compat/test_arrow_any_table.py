# SPDX-License-Identifier: Apache-2.0
"""Any Arrow table that headrace.write takes is read back the same, by row-oriented clients and by ours."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace
from headrace.client.arrow.kernels.types import HEADERS
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_tool import JavaTool
from tests.compat.row_readers import RowReaders, Seen

# A failing example is not made smaller: the clients read on where the one before ended.
LIVE = settings(
    deadline=None,
    max_examples=60,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=True,
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TEXT_TYPES = (pa.string(), pa.large_string())
BYTE_TYPES = (pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary()))

texts = st.text(max_size=40)
contents = st.binary(max_size=40) | st.binary(min_size=120, max_size=2000)
header_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
"""librdkafka's Python binding cuts names at a zero."""
header_lists = st.lists(st.tuples(header_names, st.none() | st.binary(max_size=200)), max_size=4)
timestamps = st.integers(0, 1_750_000_000_000)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    """Keys or values: text or bytes, some null, in one of the types that hold them."""
    kind = draw(st.sampled_from((*TEXT_TYPES, *BYTE_TYPES)))
    items = texts if kind in TEXT_TYPES else contents
    drawn = draw(st.lists(st.none() | items, min_size=rows, max_size=rows))
    return pa.array(drawn, kind.value_type if pa.types.is_dictionary(kind) else kind).cast(kind)


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Of one or several chunks, perhaps a part of a larger one."""
    rows = draw(st.integers(1, 60))
    headers = draw(st.lists(header_lists, min_size=rows, max_size=rows))
    structs = [[{"key": key, "value": value} for key, value in each] for each in headers]
    table = pa.table(
        {
            "key": draw(columns(rows)),
            "value": draw(columns(rows)),
            "headers": pa.array(structs, HEADERS),
            "timestamp": pa.array(draw(st.lists(timestamps, min_size=rows, max_size=rows)), pa.int64()),
        }
    )
    start = draw(st.integers(0, rows - 1))
    parts = [table.slice(start), table.slice(0, draw(st.integers(0, rows)))]
    return pa.concat_tables(parts[: draw(st.integers(1, 2))])


def rows_of(table: Any) -> list[Seen]:
    return [
        Seen(
            row["timestamp"],
            as_bytes(row["key"]),
            as_bytes(row["value"]),
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of one broker or the other."""
    if request.param == "headrace":
        yield request.getfixturevalue("bootstrap")
        return
    apache: KafkaEngine = request.getfixturevalue("kafka_engine")
    with apache.start(tmp_path_factory.mktemp("apache"), {}) as node:
        yield node.bootstrap


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}  # of records with timestamps of any year
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def write(table: Any, topic: str, bootstrap: str, codec: Any, batch_bytes: int) -> None:
    headrace.write(
        table,
        topic,
        bootstrap=bootstrap,
        key="key",
        headers="headers",
        timestamp="timestamp",
        compression=codec,
        batch_bytes=batch_bytes,
    )


def test_any_table_is_read_back_by_row_oriented_clients(either: str, topic: str) -> None:
    create(either, topic)
    written = 0

    with RowReaders(either, topic) as readers:

        @LIVE
        @given(tables(), st.sampled_from(CODECS), st.sampled_from((100, 5000, 900_000)))
        def check(table: Any, codec: str, batch_bytes: int) -> None:
            nonlocal written
            write(table, topic, either, codec, batch_bytes)
            expected = rows_of(table)
            for client, seen in readers.read(table.num_rows).items():
                assert seen == expected, client
            back = headrace.read(topic, bootstrap=either, start=written).read_all()
            times = back["timestamp"].cast(pa.int64())
            place = back.schema.get_field_index("timestamp")
            assert rows_of(back.set_column(place, "timestamp", times)) == expected
            written += table.num_rows

        check()


@pytest.mark.compat_jvm
@pytest.mark.parametrize("codec", CODECS)
def test_the_console_consumer_prints_what_was_written(java: JavaTool, topic: str, codec: str) -> None:
    """Its lines cannot hold every byte: keys, values and headers here are printable."""
    create(java.bootstrap, topic)
    letters = string.ascii_letters + "äöü€🚰 "
    rows = [
        {
            "key": None if n % 3 == 0 else f"key-{n}",
            "value": None if n % 5 == 0 else letters[n % 40 :] * (n % 7),
            "headers": [{"key": f"h{h}", "value": None if h == 2 else b"%d" % n} for h in range(n % 4)],
            "timestamp": 1_600_000_000_000 + n,
        }
        for n in range(200)
    ]
    fields = {"key": pa.string(), "value": pa.string(), "headers": HEADERS, "timestamp": pa.int64()}
    write(pa.Table.from_pylist(rows, pa.schema(fields)), topic, java.bootstrap, codec, 1000)
    shown = ("timestamp", "partition", "offset", "headers", "key", "value")
    properties = [*(f"print.{what}=true" for what in shown), "null.literal=NULL", "key.separator=|"]
    options = [part for each in properties for part in ("--formatter-property", each)]
    printed = java(
        "console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "200"),
        *("--timeout-ms", "20000", *options),
    )
    assert printed.split("\n")[:-1] == [as_printed(row, offset) for offset, row in enumerate(rows)]


def as_printed(row: dict[str, Any], offset: int) -> str:
    headers = ",".join(f"{each['key']}:{(each['value'] or b'NULL').decode()}" for each in row["headers"])
    texts = ("NULL" if row[name] is None else row[name] for name in ("key", "value"))
    return "|".join(
        (f"CreateTime:{row['timestamp']}", "Partition:0", f"Offset:{offset}", headers or "NO_HEADERS", *texts)
    )
